"""Agents that must not get in: each is refused by name, in its own log and in its job's events."""

import json
import os
import pathlib
import stat
import subprocess

import harness

CLOCK = harness.BIN.parent / "tests" / "shifted_clock.so"


class Refused(harness.TestCase):
    """Between lockstepd and its agent stands a script that spoils what the agent is told."""

    DAEMON_ARGUMENTS = ("--tls", "always")

    def setUp(self):
        original, harness.Daemon = harness.Daemon, harness.TlsDaemon
        self.addCleanup(setattr, harness, "Daemon", original)
        super().setUp()

    def start_with(self, spoil):
        """A daemon whose agents are started by a script: `spoil`, then the agent."""
        script = self.root / "agent"
        script.write_text(f"#!/bin/sh\nset -e\ncase \"$1\" in run) {spoil} ;; esac\n"
                          f"exec '{harness.BIN / 'lockstep-agent'}' \"$@\"\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.daemon.stop()
        self.daemon.arguments = (*self.DAEMON_ARGUMENTS, "--agent-path", str(script))
        self.daemon.start()

    def fails(self, spec=None):
        """The job of an agent that does not get in, and what that agent wrote."""
        job = self.daemon.submit(spec or harness.command_job("refused", "/bin/echo", "hi"))
        job = self.daemon.wait_state(job["id"], "failed")
        return job, self.agent_log(job["id"])

    def agent_log(self, job_id):
        folder = pathlib.Path(self.daemon.data) / "runs" / job_id / "a1"
        return "".join(path.read_text(errors="replace") for path in sorted(folder.glob("agent-*.log")))

    def reasons(self, job_id):
        return [event["data"].get("message", "") + event["data"].get("reason", "")
                for event in self.daemon.events(job_id) if event["kind"] in ("fault", "agent_refused")]

    # In an attempt's directory; $3 is the argument of --attempt-dir.
    def edit(self, field, value):
        return f"""sed -i 's|"{field}": *"[^"]*"|"{field}": "{value}"|' "$3/agent.json" """

    def test_a_wrong_fingerprint(self):
        wrong = "sha256:" + "0" * 64
        self.start_with(self.edit("fingerprint", wrong))
        job, log = self.fails()
        right = (self.daemon.data / "fingerprint").read_text().strip()
        for text in (log, job["cause"]["message"], " ".join(self.reasons(job["id"]))):
            self.assertIn(f"shows certificate {right} but {wrong} is expected", text)

    def test_a_wrong_ticket(self):
        self.start_with(self.edit("ticket", "lkt_guessed"))
        job, log = self.fails()
        for text in (log, job["cause"]["message"], " ".join(self.reasons(job["id"]))):
            self.assertIn("status 401: no live attempt has this ticket", text)

    def test_a_clock_that_is_an_hour_off(self):
        if not CLOCK.exists():
            self.skipTest(f"{CLOCK} is not built")
        # What HELLO takes on its way, which is seconds while a disk is slow, makes it older.
        for shift, word, found in ((-3600, "behind", r"3599|360\d"), (3600, "ahead", r"359\d|360[01]")):
            self.start_with(f"export LD_PRELOAD='{CLOCK}' LOCKSTEP_TEST_CLOCK_SHIFT={shift} "
                            "ASAN_OPTIONS=verify_asan_link_order=0")
            job, log = self.fails()
            for text in (log, job["cause"]["message"]):
                self.assertRegex(text, rf"the clock of \S+ is ({found}) s {word}")
            kinds = [event["kind"] for event in self.daemon.events(job["id"])]
            self.assertIn("agent_refused", kinds)
            self.assertNotIn("agent_claimed", kinds)

    def test_a_replayed_ticket(self):
        release = self.root / "release"
        job = self.daemon.submit(harness.command_job(
            "robbed", "/bin/sh", "-c", f"while [ ! -e {release} ]; do sleep 0.05; done"))
        self.daemon.wait_state(job["id"], "running")
        theft = self.root / "theft"
        theft.mkdir(mode=0o700)
        told = json.loads((pathlib.Path(self.daemon.data) / "runs" / job["id"] / "a1" / "agent.json").read_text())
        (theft / "agent.json").write_text(json.dumps(told))

        def thief():
            for claim in theft.glob("*.claim"):
                claim.unlink()
            return subprocess.run(
                [harness.BIN / "lockstep-agent", "run", "--attempt-dir", theft, "--node", "0"],
                capture_output=True, text=True, timeout=60, check=False,
                env={k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")})

        during = thief()
        self.assertEqual(during.returncode, 4, during.stderr)
        self.assertIn("node 0 was claimed by another agent", during.stderr)
        self.assertIn("node 0 was claimed by another agent", self.reasons(job["id"]))
        self.assertEqual(self.daemon.job(job["id"])["state"], "running")
        release.touch()
        self.daemon.wait_state(job["id"], "succeeded")
        after = thief()
        self.assertIn("the job is over", after.stderr)
        self.assertFalse(list(theft.glob("rank-*.log")), "nothing runs for a thief")


if __name__ == "__main__":
    harness.main()
