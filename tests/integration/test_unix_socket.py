"""Programs of one user on one machine: the command line and local agents use lockstepd's Unix socket, so that who
binds its port while it is down is told no token. Nor is another user who binds one that was named."""

import json
import os
import socket
import stat
import subprocess
import threading
import unittest
import urllib.parse

import harness


class Squatter:
    """Listens where lockstepd did, and keeps what it is told."""

    def __init__(self, port, user=None):
        self.told = []
        self.listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        if user is not None:  # the kernel's word on whose it is
            os.fchown(self.listener.fileno(), user, -1)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.serve(connection)

    def serve(self, connection):
        connection.settimeout(5)
        try:
            self.told.append(connection.recv(65536).decode(errors="replace"))
        except OSError:
            self.told.append("")

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


class Forwarder(Squatter):
    """As a lockstepd of that user would listen: what it is told goes to another."""

    def __init__(self, url, user):
        self.to = urllib.parse.urlsplit(url)
        super().__init__(0, user)

    def serve(self, connection):
        with socket.create_connection((self.to.hostname, self.to.port)) as there:
            connection.settimeout(60 * harness.PATIENCE)
            there.settimeout(60 * harness.PATIENCE)
            there.sendall(connection.recv(65536))
            there.shutdown(socket.SHUT_WR)
            while more := there.recv(65536):
                connection.sendall(more)


class UnixSocket(harness.TestCase):
    def cli(self, *words, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "XDG_"))}
        environment |= {"HOME": str(self.root), "LOCKSTEP_DATA_DIR": str(self.daemon.data), **variables}
        return subprocess.run([harness.BIN / "lockstep", *map(str, words)], env=environment, capture_output=True,
                              text=True, timeout=60 * harness.PATIENCE, check=False)

    def see_the_agent_dial(self):
        """In place of lockstepd: the agent has tried, and tries again."""
        file = self.daemon.data / "lockstepd.sock"
        file.unlink()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(file))
            listener.listen()
            listener.settimeout(60 * harness.PATIENCE)
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(10)
                    self.assertIn(b"GET /v1/agent", connection.recv(65536))

    def test_it_is_the_users_own_and_lockstep_finds_it(self):
        file = self.daemon.data / "lockstepd.sock"
        mode = file.stat().st_mode
        self.assertTrue(stat.S_ISSOCK(mode))
        self.assertEqual(mode & 0o777, 0o600)
        job = self.daemon.submit(harness.command_job("near", "/bin/echo", "hello"))
        self.daemon.wait_state(job["id"], "succeeded")
        shown = self.cli("logs", job["id"])
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("hello", shown.stdout)
        told = json.loads((self.daemon.data / "runs" / job["id"] / "a1/agent.json").read_text())
        self.assertEqual(told["socket"], str(file))

    def test_who_binds_the_port_of_one_that_is_down_is_told_nothing(self):
        go = self.root / "go"
        job = self.daemon.submit(harness.command_job(
            "holder", "/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done"))
        self.daemon.wait_state(job["id"], "running")
        port = urllib.parse.urlsplit(self.daemon.url).port
        self.daemon.kill9()
        squatter = Squatter(port)
        try:
            self.see_the_agent_dial()
            for words in (("jobs",), ("show", job["id"])):
                refused = self.cli(*words)
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn("no lockstepd runs with the data directory", refused.stderr)
            named = self.cli("jobs", LOCKSTEP_URL=self.daemon.url)
            self.assertIn("no lockstepd runs with the data directory", named.stderr)
            # Any other token than the data directory's went there.
            other = self.cli("jobs", LOCKSTEP_TOKEN="lks_mine")
            self.assertIn("no lockstepd runs with the data directory", other.stderr)
            self.assertEqual(squatter.told, [])
        finally:
            squatter.close()
        self.daemon.start()
        self.assertEqual(self.daemon.job(job["id"])["state"], "running")
        go.touch()
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(len(done["attempts"]), 1)

    def test_a_token_is_not_shown_to_another_port(self):
        squatter = Squatter(0)
        try:
            port = squatter.listener.getsockname()[1]
            refused = self.cli("jobs", LOCKSTEP_URL=f"http://127.0.0.1:{port}")
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(f"is for the lockstepd at {self.daemon.url}", refused.stderr)
            self.assertEqual(squatter.told, [])
        finally:
            squatter.close()

    @unittest.skipIf(os.getuid() != 0, "root alone gives a socket to another user")
    def test_another_users_socket_is_sent_no_token_that_was_given(self):
        squatter = Squatter(0, user=65533)
        try:
            file = self.root / "given"
            file.write_text("lks_mine\n")
            for words, variables in ((("jobs",), {"LOCKSTEP_TOKEN": "lks_mine"}), (("jobs", "--token-file", file), {}),
                                     (("follow", "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV"), {"LOCKSTEP_TOKEN": "lks_mine"})):
                refused = self.cli(*words, LOCKSTEP_URL=squatter.url, **variables)
                self.assertEqual(refused.returncode, 5, refused.stderr)
                self.assertIn("the token was not sent", refused.stderr)
                self.assertIn("uid 65533", refused.stderr)
            # The one that login kept, which was there before the squatter.
            config = self.root / ".config" / "lockstep" / "config.toml"
            config.parent.mkdir(parents=True)
            config.write_text(f'url = "{squatter.url}"\ntoken-file = "{file}"\n')
            self.assertIn("uid 65533", self.cli("jobs").stderr)
            self.assertEqual(squatter.told, [])
        finally:
            squatter.close()

    @unittest.skipIf(os.getuid() != 0, "root alone runs lockstepd as another user")
    def test_login_keeps_whose_lockstepd_it_is(self):
        proxy = Forwarder(self.daemon.url, user=65533)
        self.addCleanup(proxy.close)
        done = self.cli("login", proxy.url, LOCKSTEP_TOKEN=self.daemon.token)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("uid 65533", done.stderr)
        self.assertIn("listener = 65533", (self.root / ".config" / "lockstep" / "config.toml").read_text())
        jobs = self.cli("jobs")
        self.assertEqual(jobs.returncode, 0, jobs.stderr)


if __name__ == "__main__":
    harness.main()
