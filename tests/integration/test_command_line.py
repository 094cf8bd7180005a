"""The program lockstep itself, whatever the verb: output that cannot be written, arguments that make no sense."""

import os
import signal
import subprocess

import harness
from harness import BIN


class CommandLine(harness.TestCase):
    def lockstep(self, *arguments, stdout=subprocess.PIPE, environment=None, cwd=None):
        return subprocess.run([BIN / "lockstep", *arguments], stdin=subprocess.DEVNULL, stdout=stdout, cwd=cwd or self.root,
                              stderr=subprocess.PIPE, timeout=60 * harness.PATIENCE, check=False,
                              env=environment or self.daemon.cli_environment())

    def finished_job(self, script="echo out"):
        job_id = self.daemon.submit(harness.command_job("talks", "/bin/sh", "-c", script))["id"]
        self.daemon.wait_state(job_id, harness.FINAL)
        return job_id

    def test_output_that_cannot_be_written_is_said_and_ends_with_8(self):
        job_id = self.finished_job(f"{BIN}/lockstep-agent report loss=0.5 step=1; echo out")
        spec = self.root / "job.json"
        spec.write_text('{"name": "x", "framework": "command", "command": ["true"]}')
        for arguments in (("jobs",), ("jobs", "--json"), ("jobs", "-q"), ("show", job_id), ("logs", job_id), ("logs", job_id, "-f"),
                          ("logs", job_id, "-t"), ("events", job_id), ("events", job_id, "-f"), ("ranks", job_id),
                          ("spec", job_id), ("script", job_id, "--help"), ("nodes",), ("cluster",), ("whoami",), ("du",),
                          ("token", "list"), ("render", spec), ("submit", spec), ("top", job_id, "--once"), ("follow", job_id),
                          ("explain",), ("completion", "bash"), ("manual",), ("open", "--print"), ("--help",), ("--version",),
                          ("run", "--dry-run", "-o", "-", "true"), ("run", "-w", "true"), ("export", job_id, "--csv", "-")):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                done = self.lockstep(*arguments, stdout=full)
                self.assertEqual(done.returncode, 8, done.stderr)
                self.assertIn(b"No space left on device", done.stderr)
                self.assertEqual(done.stderr.count(b"error: "), 1, done.stderr)

    def test_output_that_is_closed_is_said_and_goes_nowhere_else(self):
        # A connection would get the number of standard output, and lockstepd what is printed.
        done = subprocess.run(["/bin/sh", "-c", 'exec "$0" jobs --json >&-', BIN / "lockstep"], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=60 * harness.PATIENCE, check=False,
                              env=self.daemon.cli_environment())
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn(b"error: write standard output: Bad file descriptor", done.stderr)

    def test_a_view_that_goes_on_ends_when_nobody_gets_it(self):
        job_id = self.daemon.submit(harness.command_job("goes-on", "/bin/sh", "-c", "while :; do echo on; sleep 0.1; done"))["id"]
        self.daemon.wait_state(job_id, "running")
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.lockstep("logs", job_id, "-f", stdout=full).returncode, 8)
        self.assertEqual(self.daemon.job(job_id)["state"], "running")

    def test_a_reader_that_has_seen_enough_ends_it_without_a_word(self):
        self.finished_job()
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = self.lockstep("jobs", "--json", stdout=writing)
        finally:
            os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, b""))

    def test_a_specification_is_kept_under_a_bare_name(self):
        done = self.lockstep("run", "-o", "job.json", "--dry-run", "--name", "kept", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"kept"', (self.root / "job.json").read_text())
        done = self.lockstep("run", "-o", "/dev/full", "--dry-run", "--", "true")
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn(b"error: -o: write /dev/full: No space left on device", done.stderr)
        done = self.lockstep("run", "-o", "no/such/job.json", "--dry-run", "--", "true")
        self.assertEqual(done.returncode, 8, done.stderr)


if __name__ == "__main__":
    harness.main()
