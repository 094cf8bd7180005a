"""lockstepd and systemd, as far as a socket goes: that it serves, that it lives, that it ends."""

import os
import pathlib
import signal
import socket
import tempfile
import unittest

import harness


class ServiceManager(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.addCleanup(folder.cleanup)
        self.daemon = harness.Daemon(pathlib.Path(folder.name))
        self.addCleanup(self.daemon.clean_up)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.settimeout(30 * harness.PATIENCE)

    def start(self, address, microseconds=400_000):
        self.manager.bind(address)
        told = {"NOTIFY_SOCKET": address.replace("\0", "@"), "WATCHDOG_USEC": str(microseconds)}
        plain = self.daemon.environment()
        self.daemon.environment = lambda: {**plain, **told}
        self.daemon.start()

    def wait_for(self, word):
        while True:
            told = self.manager.recv(4096).decode()
            if word in told.splitlines():
                return told

    def test_it_says_that_it_serves_lives_and_ends(self):
        self.start(str(self.daemon.root / "notify"))
        self.assertIn(f"STATUS=serving {self.daemon.url}", self.wait_for("READY=1").splitlines())
        for _ in range(3):
            self.wait_for("WATCHDOG=1")
        # One that stands still says nothing: systemd ends and restarts it.
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        self.manager.settimeout(1.5)
        with self.assertRaises(TimeoutError):
            while True:
                self.manager.recv(4096)
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        self.manager.settimeout(30 * harness.PATIENCE)
        self.wait_for("WATCHDOG=1")
        self.daemon.process.send_signal(signal.SIGTERM)
        self.wait_for("STOPPING=1")
        self.assertEqual(self.daemon.process.wait(30 * harness.PATIENCE), 0)

    def test_an_abstract_socket_is_told_and_ranks_are_not_told_of_it(self):
        self.start(f"\0lockstep-test-{os.getpid()}")
        self.wait_for("READY=1")
        job = self.daemon.submit(harness.command_job("env", "/usr/bin/env"))
        self.daemon.wait_state(job["id"], harness.FINAL)
        log = self.daemon.cli("logs", job["id"]).stdout
        self.assertIn("LOCKSTEP_RANK=0", log)
        self.assertNotIn("NOTIFY_SOCKET", log)
        self.assertNotIn("WATCHDOG", log)


if __name__ == "__main__":
    harness.main()
