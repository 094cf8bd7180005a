"""A job whose ranks are killed, frozen and cut off: each fault is put down to the rank that it struck, and the weights at
the end are those of a run without faults, bit by bit. One fault of each kind; `tests/fault/run chaos` has half an
hour of them, and 32 ranks."""

import pathlib
import sys
import unittest

import harness

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
import chaos  # noqa: E402

SIZE = chaos.Size(nodes=2, per_node=2)
# Beside other tests everything on a machine may stand still for seconds: no rank hangs then.
HANG_SECONDS = 10
STEPS_AFTER = 60  # after the last fault, of which nothing may come
WHY_NOT = chaos.why_not()


class Chaos(harness.TestCase):
    @unittest.skipIf(WHY_NOT, f"no connection of another process can be cut, which needs root: {WHY_NOT}")
    def test_every_fault_is_put_down_to_its_rank_and_leaves_the_weights_as_they_would_be(self):
        faults = chaos.one_of_each("1", SIZE)
        self.assertEqual([kind for _, kind, _ in faults], list(chaos.FAULTS))
        job = chaos.Job(self.daemon, self.root / "chaos", 10**9, chaos.PERIOD, True, SIZE, HANG_SECONDS)
        _, _, struck = chaos.under_fire(job, faults, 300)
        self.assertEqual([kind for kind, *_ in struck], list(chaos.FAULTS))
        harness.wait_until(job.settled, 60, "the ranks go on after the last fault")
        last, weights, done = job.finish(job.progress()[2] + STEPS_AFTER)
        self.assertEqual(chaos.wrong_culprits(struck, done)[0], [])
        step, same, _ = chaos.Job(self.daemon, self.root / "same", last, 0, False, SIZE, HANG_SECONDS).finish()
        self.assertEqual(step, last)
        self.assertTrue(weights == same, f"after {last} steps the weights are not those of a run without faults")


if __name__ == "__main__":
    harness.main()
