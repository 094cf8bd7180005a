"""Which lockstepd the Python package takes an address for."""

import os
import pathlib
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


if __name__ == "__main__":
    unittest.main()
