"""lockstepd knows how far each agent's clock is from its own: a real agent whose wall clock is shifted."""

import math
import re
import stat

import harness

CLOCK = harness.BIN.parent / "tests" / "shifted_clock.so"
METRIC = re.compile(r"^lockstep_agent_clock_offset_max_seconds (\S+)$", re.MULTILINE)


class ClockOffset(harness.TestCase):
    def offset(self):
        return float(METRIC.search(self.daemon.text("/metrics")).group(1))

    def measured(self, shift):
        agent = self.root / f"agent{shift}"
        agent.write_text(f"#!/bin/sh\nexport LD_PRELOAD='{CLOCK}' LOCKSTEP_TEST_CLOCK_SHIFT={shift}\n"
                         f"exec '{harness.BIN / 'lockstep-agent'}' \"$@\"\n", encoding="utf-8")
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        self.daemon.stop()
        self.daemon.arguments = ("--agent-path", str(agent))
        self.daemon.start()
        self.assertTrue(math.isnan(self.offset()), "nothing is measured, which is not 0")
        job = self.daemon.submit(harness.command_job("clock", "/bin/sh", "-c", "exec sleep 600"))["id"]

        def near():  # the best of several measurements: the first may have waited on its way
            offset = self.offset()
            return offset if abs(offset - abs(shift)) < 0.1 else None
        offset = harness.wait_until(near, 20, "the offset is measured")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")
        return offset

    def test_the_offset_of_an_agents_clock_is_measured(self):
        if not CLOCK.exists():
            self.fail("the shifted clock is not built: target shifted_clock")
        for shift in (3, -2):
            found = self.measured(shift)
            # The same machine's clock: only the way there and back can be wrong.
            self.assertAlmostEqual(found, abs(shift), delta=0.1)


if __name__ == "__main__":
    harness.main()
