"""The wall clock of lockstepd's machine jumps by an hour, ahead and back, while jobs run, wait and end: nothing is lost,
restarted, called silent or removed, and what comes afterwards runs."""

import struct
import unittest

import events
import harness

CLOCK = harness.BIN.parent / "tests" / "shifted_clock.so"
HOUR = 3600


@unittest.skipUnless(CLOCK.exists(), f"{CLOCK} is not built")
class Jumps(harness.TestCase):
    DAEMON_ARGUMENTS = ("--keep-days", "1", "--history-days", "1", "--local-cores", "8")

    def setUp(self):
        super().setUp()
        self.daemon.stop()
        self.clock = self.root / "clock"
        self.jump_to(0)
        self.daemon.preload = {"LD_PRELOAD": str(CLOCK), "LOCKSTEP_TEST_CLOCK_FILE": str(self.clock),
                               "ASAN_OPTIONS": "verify_asan_link_order=0"}
        # As on one machine its agents have the same clock; they get none of lockstepd's environment.
        agent = self.root / "agent"
        agent.write_text("#!/bin/sh\n" + "".join(f"export {name}='{value}'\n" for name, value in self.daemon.preload.items()) +
                         f"exec '{harness.BIN / 'lockstep-agent'}' \"$@\"\n")
        agent.chmod(0o755)
        self.daemon.arguments = (*self.DAEMON_ARGUMENTS, "--agent-path", str(agent))
        self.daemon.start()

    def jump_to(self, seconds):
        # The same file: it is mapped.
        with open(self.clock, "r+b" if self.clock.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))

    def steps(self, job):
        return self.daemon.get(f"/v1/jobs/{job}").get("step", 0)

    def goes_on(self, job, more=3):
        seen = self.steps(job)
        harness.wait_until(lambda: self.steps(job) >= seen + more, 30, "steps go on")

    def test_what_runs_goes_on_and_what_comes_after_runs(self):
        release = self.root / "release"
        script = (f"i=0; while [ ! -e {release} ]; do i=$((i+1)); echo \"step=$i loss=0.5\"; sleep 0.05; done; "
                  "echo done")
        job = self.daemon.submit(harness.command_job(
            "runs", "/bin/sh", "-c", script, resources={"nodes": 2, "time_limit": "30"},
            recovery={"max_restarts": 3}))["id"]
        self.daemon.wait_state(job, "running")
        over = self.daemon.submit(harness.command_job("over", "/bin/true"))["id"]
        self.daemon.wait_state(over, "succeeded")
        self.goes_on(job)
        # An hour ahead, back, an hour behind, right again; each time a job from begin to end.
        for shift in (HOUR, 0, -HOUR, 0):
            with self.subTest(shift=shift):
                self.jump_to(shift)
                self.goes_on(job, 40)  # 2 s at least: lockstepd looks at what is due once a second
                after = self.daemon.submit(harness.command_job("after", "/bin/sh", "-c", "echo loss=0.25 step=1"))["id"]
                self.daemon.wait_state(after, "succeeded")
                self.assertEqual(self.daemon.get(f"/v1/jobs/{job}")["state"], "running")
        self.daemon.restart()
        self.goes_on(job)
        release.touch()
        done = self.daemon.wait_state(job, harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        events.assert_undisturbed(self, done)
        self.assertEqual(self.daemon.get(f"/v1/jobs/{over}")["state"], "succeeded", "keep-days has not removed it")

    def test_a_day_that_nobody_has_seen_pass_makes_no_job_old(self):
        job = self.daemon.submit(harness.command_job("kept", "/bin/true"))["id"]
        self.daemon.wait_state(job, "succeeded")
        self.jump_to(40 * 24 * HOUR)
        self.daemon.restart()  # looks at the ages of jobs at once
        again = self.daemon.submit(harness.command_job("again", "/bin/true"))["id"]
        self.daemon.wait_state(again, "succeeded")
        self.assertEqual(self.daemon.api("GET", f"/v1/jobs/{job}")[0], 200)
        self.jump_to(0)
        self.daemon.restart()
        self.assertEqual(self.daemon.get(f"/v1/jobs/{again}")["state"], "succeeded")


if __name__ == "__main__":
    harness.main()
