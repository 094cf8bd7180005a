"""Unmodified PyTorch DDP scripts: four ranks, losses read from what they print, one killed and all going on; by Gloo
everywhere, and by NCCL on one GPU that they share where there is one (`tests/gpu`; ctest's gpu.pytorch_ddp), with the torch
of LOCKSTEP_PYTHON."""

import os
import re
import signal
import subprocess
import time
import unittest

import gpu_tests
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


class Killed:
    """What four ranks go through, wherever they compute: a mixin."""

    EPOCHS = 20  # after the snapshot; those whose rank is killed go on until it is

    def test_one_of_four_ranks_is_killed_and_all_go_on_from_the_snapshot(self):
        snapshot, released = self.root / "snapshot.pt", self.root / "released"
        job_id = self.daemon.submit({
            "name": "ddp", "framework": "pytorch", "recovery": {}, "resources": self.RESOURCES,
            "environment": {"HELD_UNTIL": str(released)},
            "command": [harness.PYTHON, str(harness.FIXTURES / "ddp_snapshots.py"), str(snapshot), str(self.EPOCHS)]})["id"]

        def on_its_way():
            job = self.daemon.get(f"/v1/jobs/{job_id}")
            if job["state"] in harness.FINAL:
                self.fail(f"{job}\n{self.daemon.rank_log(job_id, 0)[-3000:]}")
            return snapshot.exists() and len(self.daemon.series(job_id).get(2, ())) > 16
        harness.wait_until(on_its_way, 120, "two epochs and a snapshot")
        ranks = self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]
        released.touch()  # for the next generation: these have looked
        killed = time.time()
        os.kill(next(rank["pid"] for rank in ranks if rank["rank"] == 2), signal.SIGKILL)
        self.daemon.wait_generation(job_id, 2, 60)
        gpu_tests.figure(f"one of four DDP ranks killed ({self.BACKEND}): until the next generation runs", time.time() - killed, "s")
        done = self.daemon.wait_state(job_id, harness.FINAL, 240)
        logs = [self.daemon.rank_log(job_id, rank) for rank in range(4)]
        self.assertEqual(done["state"], "succeeded", f"{done}\n{logs[0][-3000:]}")
        first, _ = done["attempts"][0]["generations"]
        self.assertEqual((first["cause"]["class"], first["cause"]["rank"]), ("rank_signal", 2), done)
        sums, snapshots = set(), set()
        for rank, log in enumerate(logs):
            self.assertEqual(log.count(f"rank {rank} of 4 by {self.BACKEND}"), 2, log[-3000:])
            again = log[log.index("goes on from the snapshot of epoch"):]
            epoch = int(re.match(r"\D+(\d+)", again)[1])
            trained = [int(number) for number in re.findall(r"Train Epoch: (\d+) ", again)]
            self.assertEqual(trained, [epoch + 1 + i // 8 for i in range(8 * self.EPOCHS)], f"rank {rank}: every step to the end")
            snapshots.add(epoch)
            sums.add(re.search(r"the sum of all weights is (\S+)", log)[1])
        self.assertEqual(len(snapshots), 1, snapshots)
        self.assertEqual(len(sums), 1, "the ranks have gone ways of their own")


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
@unittest.skipIf(not gpu_tests.no_gpu(), "this machine has a GPU: gpu.pytorch_ddp")
class OnCpus(Killed, harness.TestCase):
    RESOURCES = {"nodes": 2, "ranks_per_node": 2}
    BACKEND = "gloo"


@gpu_tests.needs_gpu
class OnOneGpu(Killed, harness.TestCase):
    # By the number of the GPU as scripts take it, LOCAL_RANK, all four have the same one.
    RESOURCES = {"nodes": 1, "ranks_per_node": 4, "gpus_per_node": 1, "ranks_per_gpu": 4}
    BACKEND = "nccl"

    def setUp(self):
        why = gpu_tests.no_gpu()
        if not why and subprocess.run([harness.PYTHON, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"],
                                      capture_output=True, check=False).returncode:
            why = f"a GPU, but {harness.PYTHON} has no torch that can use it: LOCKSTEP_PYTHON"
        if not why:
            torch = gpu_tests.torch_folder(harness.PYTHON)
            why = gpu_tests.no_sharing(gpu_tests.linked_nccl(torch / "lib" / "libtorch_cuda.so"))
        if why:
            self.skipTest(why)
        super().setUp()


if __name__ == "__main__":
    harness.main()
