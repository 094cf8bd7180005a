"""Which lockstepd the Python package takes an address for."""

import os
import pathlib
import socket
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "job" / "rank" / "python"))

import lockstep  # noqa: E402
from lockstep import _found  # noqa: E402


class Address(unittest.TestCase):
    def test_without_a_scheme_it_is_https_unless_it_is_this_machine_s(self):
        # The token was sent in clear, as to http://.
        for given, taken in {"login1:8470": "https://login1:8470", "login1/lockstep": "https://login1/lockstep",
                             "127.0.0.1@login1": "https://127.0.0.1@login1", "127.0.0.1.example": "https://127.0.0.1.example",
                             "localhost:8470": "http://localhost:8470", "127.0.0.1": "http://127.0.0.1",
                             "[::1]:8470": "http://[::1]:8470", "http://login1:8470": "http://login1:8470", "": ""}.items():
            self.assertEqual(_found.with_scheme(given), taken)

    def test_of_the_settings_too(self):
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home) / "lockstep"
            folder.mkdir()
            (folder / "config.toml").write_text('url = "login1:8470"\nfingerprint = "sha256:cc"\n')
            with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}, clear=True):
                for url in ("", "login1:8470", "https://login1"):
                    daemon = lockstep.Daemon(url)
                    self.assertEqual(_found.place_of(daemon.url), ("https", "login1", 8470))
                    self.assertEqual(daemon.fingerprint, "sha256:cc")
                self.assertEqual(lockstep.Daemon("http://login1:8470").fingerprint, "")


class Listener(unittest.TestCase):
    """A port of the loopback is anybody's who binds it: whoever did was sent the token."""

    def listener(self, address="127.0.0.1", family=socket.AF_INET, **options):
        made = socket.create_server((address, 0), family=family, **options)
        self.addCleanup(made.close)
        return made, made.getsockname()[1]

    def test_is_found_at_its_address_and_where_any_is_taken(self):
        _, port = self.listener()
        self.assertEqual(_found.listeners_at("127.0.0.1", port), {os.geteuid()})
        self.assertEqual(_found.listeners_at("127.0.0.2", port), set())
        _, port = self.listener("0.0.0.0")
        self.assertEqual(_found.listeners_at("127.0.0.1", port), {os.geteuid()})
        if socket.has_dualstack_ipv6():
            _, port = self.listener("::", socket.AF_INET6, dualstack_ipv6=True)
            self.assertEqual(_found.listeners_at("127.0.0.1", port), {os.geteuid()})
            self.assertEqual(_found.listeners_at("::1", port), {os.geteuid()})
        self.assertIsNone(_found.stranger_at("localhost", port, ()))

    @unittest.skipIf(os.getuid() != 0, "root alone gives a socket to another user")
    def test_of_another_user_is_sent_no_byte_of_the_token(self):
        made, port = self.listener()
        os.fchown(made.fileno(), 65533, -1)
        self.assertEqual(_found.stranger_at("localhost", port, ()), 65533)
        self.assertIsNone(_found.stranger_at("127.0.0.1", port, {65533}))
        with tempfile.TemporaryDirectory() as home, \
                mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}, clear=True):
            with self.assertRaisesRegex(lockstep.DaemonError, "uid 65533"):
                lockstep.Daemon(f"http://127.0.0.1:{port}", token="secret").whoami()
        made.setblocking(False)
        with self.assertRaises(BlockingIOError):
            made.accept()


if __name__ == "__main__":
    unittest.main()
