"""lockstep login: a person sees the certificate once, then address, fingerprint and token are kept."""

import os
import pty
import subprocess
import urllib.parse

import harness


class Login(harness.TestCase):
    DAEMON_ARGUMENTS = ("--tls", "always")

    def setUp(self):
        original, harness.Daemon = harness.Daemon, harness.TlsDaemon
        self.addCleanup(setattr, harness, "Daemon", original)
        super().setUp()
        self.home = self.root / "home"
        self.home.mkdir()
        self.kept = self.home / ".config" / "lockstep"

    def environment(self, **more):
        own = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "XDG_"))}
        return {**own, "HOME": str(self.home), **more}

    def lockstep(self, *arguments, stdin="", **more):
        return subprocess.run([harness.BIN / "lockstep", *arguments], input=stdin, capture_output=True,
                              text=True, timeout=60, check=False, env=self.environment(**more))

    def on_a_terminal(self, answers):
        """(exit code, everything that was on the screen); `answers`: (question, what is typed)."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(harness.BIN / "lockstep", ["lockstep", "login", self.daemon.url], self.environment())
        screen = b""

        def read():
            nonlocal screen
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # EIO: the program has ended
                piece = b""
            screen += piece
            return piece

        for question, answer in answers:
            while question.encode() not in screen and read():
                pass
            os.write(terminal, answer.encode() + b"\n")
        while read():
            pass
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen.decode()

    def test_a_person_confirms_the_certificate_and_types_a_token_that_is_not_shown(self):
        code, screen = self.on_a_terminal((("[y/N]", "y"), ("Token:", self.daemon.token)))
        self.assertEqual(code, 0, screen)
        self.assertIn(self.daemon.fingerprint, screen)
        self.assertNotIn(self.daemon.token, screen)
        self.assertIn(f"logged in to {self.daemon.url} as ", screen)
        for name in ("config.toml", "token"):
            self.assertEqual((self.kept / name).stat().st_mode & 0o777, 0o600, name)
        self.assertNotIn(self.daemon.token, (self.kept / "config.toml").read_text())
        jobs = self.lockstep("jobs", "--json")
        self.assertEqual(jobs.returncode, 0, jobs.stderr)
        # Another address gets neither the token nor the trust.
        other = self.daemon.url.replace("127.0.0.1", "localhost")
        self.assertEqual(self.lockstep("jobs", "--url", other).returncode, 5)

    def test_a_person_who_says_no_has_sent_nothing(self):
        code, screen = self.on_a_terminal((("[y/N]", ""),))
        self.assertEqual(code, 5, screen)
        self.assertIn("not logged in", screen)
        self.assertFalse(self.kept.exists())

    def test_a_program_gives_fingerprint_and_token(self):
        nobody = self.lockstep("login", self.daemon.url, stdin=self.daemon.token)
        self.assertEqual(nobody.returncode, 2, nobody.stderr)
        self.assertIn("give --fingerprint", nobody.stderr)
        printed = self.daemon.fingerprint.removeprefix("sha256:").upper()
        printed = ":".join(printed[i:i + 2] for i in range(0, 64, 2))  # as openssl prints it
        done = self.lockstep("login", self.daemon.url, "--fingerprint", printed, stdin=self.daemon.token)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lockstep("jobs").returncode, 0)

    def test_what_is_wrong_is_not_kept(self):
        good = ("--fingerprint", self.daemon.fingerprint)
        wrong = self.lockstep("login", self.daemon.url, *good, LOCKSTEP_TOKEN="lks_guessed")
        self.assertEqual(wrong.returncode, 5, wrong.stderr)
        other = self.lockstep("login", self.daemon.url, "--fingerprint", "0" * 64,
                              LOCKSTEP_TOKEN=self.daemon.token)
        self.assertEqual(other.returncode, 5, other.stderr)
        self.assertIn(f"shows certificate {self.daemon.fingerprint}", other.stderr)
        bad = self.lockstep("login", self.daemon.url, "--fingerprint", "sha256:1")
        self.assertEqual(bad.returncode, 2, bad.stderr)
        clear = self.lockstep("login", "http://192.0.2.1:8470", LOCKSTEP_TOKEN="x")
        self.assertEqual(clear.returncode, 2, clear.stderr)
        self.assertIn("unencrypted", clear.stderr)
        empty = self.lockstep("login", self.daemon.url, *good)
        self.assertEqual(empty.returncode, 2, empty.stderr)
        self.assertFalse(self.kept.exists())

    def test_what_was_kept_is_forgotten_and_the_token_works_on(self):
        self.lockstep("login", self.daemon.url, "--fingerprint", self.daemon.fingerprint,
                      LOCKSTEP_TOKEN=self.daemon.token)
        done = self.lockstep("login", self.daemon.url, "--forget")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("lockstep token revoke", done.stdout)
        self.assertEqual(list(self.kept.iterdir()), [])
        access = ("--url", self.daemon.url, "--fingerprint", self.daemon.fingerprint)
        self.assertEqual(self.lockstep("jobs", *access).returncode, 5)
        self.assertEqual(self.lockstep("jobs", *access, LOCKSTEP_TOKEN=self.daemon.token).returncode, 0)
        self.assertEqual(self.lockstep("login", self.daemon.url, "--forget").returncode, 3)

    def test_a_daemon_with_another_certificate_is_refused_until_the_next_login(self):
        self.lockstep("login", self.daemon.url, "--fingerprint", self.daemon.fingerprint,
                      LOCKSTEP_TOKEN=self.daemon.token)
        first = self.daemon.fingerprint
        port = urllib.parse.urlsplit(self.daemon.url).port
        self.daemon.stop()
        for file in ("certificate.pem", "key.pem"):
            (self.daemon.data / "tls" / file).unlink()
        command = [f"127.0.0.1:{port}" if word == "127.0.0.1:0" else word for word in self.daemon.command()]
        self.daemon.command = lambda: command
        self.daemon.start()
        refused = self.lockstep("jobs")
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn(f"{first} is expected", refused.stderr)
        code, screen = self.on_a_terminal((("[y/N]", "y"), ("Token:", self.daemon.token)))
        self.assertEqual(code, 0, screen)
        self.assertIn("ANOTHER one than before", screen)
        self.assertEqual(self.lockstep("jobs").returncode, 0)


if __name__ == "__main__":
    harness.main()
