"""What is known of a launcher's ranks while they run: /metrics has each child under its own rank, and what is wrong with
a run names the child, not its launcher. Real torchrun, two nodes of three ranks."""

import math
import re
import unittest

import harness
from harness import FIXTURES, PYTHON
from test_children import NO_TORCH, TORCH, debian_torch, torchrun

# Of two ranks of a node one that is slow would be told as the node. Neither rank is a node's first, under which a launcher
# would be known.
PER_NODE, WORLD, SLOW, DIVERGES = 3, 6, 5, 1


@unittest.skipUnless(TORCH, NO_TORCH)
class ChildrenMetrics(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.gate = self.root / "gate"

    def submit(self, how):
        # With a mark before each line, as --tee makes it; Debian's torchrun knows no other way.
        options = ("--redirects", "1", "--tee", "1") if debian_torch() else ()
        script = [str(FIXTURES / "launched_steps.py"), how, str(self.gate), str(SLOW), str(DIVERGES)]
        return self.daemon.submit({"name": how, "framework": "pytorch", "launch": "node",
                                   "resources": {"nodes": 2, "ranks_per_node": PER_NODE},
                                   "command": torchrun(*options) + script})["id"]

    def samples(self, job, family):
        """{rank: value} of a family's samples of the job; the value as it stands there."""
        found = re.findall(r'^' + family + r'\{job_id="' + job + r'",rank="(\d+)"\} (\S+)$',
                           self.daemon.text("/metrics"), re.MULTILINE)
        self.assertEqual(len(dict(found)), len(found), f"a rank has two samples of {family}: {found}")
        return {int(rank): float(value) for rank, value in found}

    def assert_own_losses(self, job):
        def all_past_step_five():
            steps = self.samples(job, "lockstep_rank_step")
            return len(steps) == WORLD and min(steps.values()) > 5
        harness.wait_until(all_past_step_five, 120, "each rank's steps are in /metrics")
        losses = self.samples(job, "lockstep_rank_loss")
        self.assertEqual(sorted(losses), list(range(WORLD)))
        self.assertTrue(math.isnan(losses[DIVERGES]), losses)
        for rank in {*range(WORLD)} - {DIVERGES}:
            self.assertTrue(100 * rank <= losses[rank] < 100 * rank + 2, losses)
        self.assertEqual(sorted(self.samples(job, "lockstep_rank_report_age_seconds")), list(range(WORLD)))
        counted = self.samples(job, "lockstep_rank_nonfinite_total")
        self.assertEqual([rank for rank, number in sorted(counted.items()) if number], [DIVERGES], counted)
        places = re.findall(r'^lockstep_rank_info\{job_id="' + job + r'",rank="(\d+)",node="([^"]+)",local_rank="(\d+)"\} 1$',
                            self.daemon.text("/metrics"), re.MULTILINE)
        self.assertEqual([(int(rank), int(local)) for rank, _, local in places], [(r, r % PER_NODE) for r in range(WORLD)])
        nodes = [node for _, node, _ in places]
        self.assertEqual([len(set(nodes)), *(len(set(nodes[first:first + PER_NODE])) for first in (0, PER_NODE))],
                         [2, 1, 1], places)

    def anomalies(self, job, kind):
        return [event for event in self.daemon.events(job)
                if event["kind"] == "anomaly" and event["data"]["anomaly"] == kind]

    def ended(self, job):
        self.gate.touch()
        self.daemon.wait_state(job, "succeeded", 120)

    def test_children_that_report_have_series_and_anomalies_of_their_own(self):
        job = self.submit("report")
        self.assert_own_losses(job)
        busy = self.samples(job, "lockstep_rank_busy_seconds")
        self.assertEqual(sorted(busy), list(range(WORLD)))
        self.assertEqual(busy[SLOW], 0.2)
        # Thirty seconds of it, so that nobody is called slow for a moment.
        harness.wait_until(lambda: self.anomalies(job, "straggler"), 90, "the slow child is told")
        for kind, rank in (("straggler", SLOW), ("nonfinite", DIVERGES)):
            self.assertEqual([event["rank"] for event in self.anomalies(job, kind)], [rank], kind)
        scores = self.samples(job, "lockstep_rank_straggler_score")
        self.assertEqual([rank for rank, score in sorted(scores.items()) if score < 0.75], [SLOW], scores)
        show = self.daemon.cli("show", job).stdout
        self.assertRegex(show, rf"straggler +rank {SLOW} on \S+")
        self.assertRegex(show, rf"nonfinite +rank {DIVERGES} on \S+ +loss is NaN, step 5")
        self.ended(job)

    def test_children_that_only_print_have_series_and_anomalies_of_their_own(self):
        job = self.submit("print")
        self.assert_own_losses(job)
        harness.wait_until(lambda: self.anomalies(job, "nonfinite"), 60, "the NaN is told")
        event, = self.anomalies(job, "nonfinite")
        self.assertEqual((event["rank"], event["data"]["step"]), (DIVERGES, 5))
        self.ended(job)


if __name__ == "__main__":
    harness.main()
