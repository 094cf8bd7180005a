"""An unmodified PyTorch DDP script: four ranks on two nodes, losses read from what it prints."""

import unittest

import harness


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
class PytorchDdp(harness.TestCase):
    def test_an_unmodified_script_runs_and_each_rank_s_loss_is_seen(self):
        job = self.daemon.submit({
            "name": "ddp", "framework": "pytorch",
            "command": [harness.PYTHON, str(harness.FIXTURES / "ddp_digits.py")],
            "resources": {"nodes": 2, "ranks_per_node": 2}})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 240)
        self.assertEqual(done["state"], "succeeded", done)
        losses = self.daemon.series(job["id"])
        self.assertEqual(sorted(losses), [0, 1, 2, 3])
        for rank, points in losses.items():
            self.assertEqual(len(points), 24, "3 epochs of 8 batches")
            self.assertEqual(sorted({p[0] for p in points}), [p[0] for p in points])
            self.assertLess(points[-1][3], 0.7 * points[0][3], f"rank {rank} did not learn")
        self.assertIn("rank 3 of 4, local 1", self.daemon.rank_log(job["id"], 3))


if __name__ == "__main__":
    harness.main()
