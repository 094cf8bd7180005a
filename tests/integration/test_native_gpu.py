"""The native trainer on GPUs, as jobs of a real lockstepd. Needs a GPU and a lockstep-train with CUDA
(cmake -DLOCKSTEP_TORCH=…), and for several ranks on one GPU an NCCL of 2.30 or later: `tests/gpu` brings all of it (ctest's
gpu.native_gpu).

Without them what a user meets is tested: a GPU that is asked for and cannot be had is a named cause."""

import os
import pathlib
import re
import signal
import subprocess
import time

import gpu_tests
import harness

TRAIN = harness.BIN / "lockstep-train"
SHARED = {"nodes": 1, "ranks_per_node": 4, "gpus_per_node": 1, "ranks_per_gpu": 4}
ALONE = {"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 1}


def has_cuda():
    linked = subprocess.run(["ldd", TRAIN], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return "libtorch_cuda" in linked


def pid_of(job_id, rank):
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            if b"lockstep-train" not in (folder / "cmdline").read_bytes():
                continue
        except OSError:
            continue
        if f"LOCKSTEP_JOB_ID={job_id}".encode() in variables and f"RANK={rank}".encode() in variables:
            return int(folder.name)
    raise AssertionError(f"no process of rank {rank}")


class Case(harness.TestCase):
    def setUp(self):
        if not TRAIN.exists():
            self.skipTest("lockstep-train is not built: no LibTorch")
        super().setUp()

    def submit(self, resources, train, **fields):
        data = {"train_samples": 6400, "test_samples": 200, "checkpoint_every_steps": 0}
        return self.daemon.submit({"name": "native-gpu", "framework": "native", "resources": resources,
                                   "train": {**data, **train}, **fields})["id"]

    def succeeded(self, job_id, ranks):
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        logs = "\n".join(self.daemon.rank_log(job_id, rank) for rank in range(ranks))
        self.assertEqual(done["state"], "succeeded", f"{done}\n{logs[-3000:]}")
        return done, logs


class WithoutAGpu(Case):
    def setUp(self):
        if not gpu_tests.no_gpu() and has_cuda():
            self.skipTest("this machine has a GPU")
        super().setUp()

    def test_what_needs_one_is_refused_before_anything_runs(self):
        for train, pointer in (({"devices": "gpu"}, "/train/devices"), ({"precision": "fp16"}, "/train/precision")):
            status, answer = self.daemon.api("POST", "/v1/jobs", {"name": "x", "framework": "native", "train": train,
                                                                  "resources": {"nodes": 1, "ranks_per_node": 1}})
            self.assertEqual(status, 400, answer)
            self.assertEqual([error["pointer"] for error in answer["errors"]], [pointer], answer)
            self.assertIn("/resources/gpus_per_node", answer["errors"][0]["message"])

    def test_gpus_that_the_job_does_not_ask_for_cannot_be_named(self):
        for resources, train, words in ((ALONE, {"devices": "gpu:0,1", "strategy": "replicated"}, "gpu 1 is not there: a node has 1"),
                                        ({"ranks_per_node": 2, "gpus_per_node": 4}, {"devices": "gpu:3"}, "1 GPUs for 2 ranks")):
            status, answer = self.daemon.api("POST", "/v1/jobs", {"name": "x", "framework": "native", "train": train,
                                                                  "resources": resources})
            self.assertEqual(status, 400, answer)
            self.assertEqual([error["pointer"] for error in answer["errors"]], ["/train/devices"], answer)
            self.assertIn(words, answer["errors"][0]["message"])


@gpu_tests.needs_gpu
class OnAGpu(Case):
    def setUp(self):
        why = gpu_tests.no_gpu() or ("" if has_cuda() else "lockstep-train is linked with a LibTorch without CUDA")
        if why:
            self.skipTest(why)
        super().setUp()

    def submit(self, resources, train, **fields):
        why = gpu_tests.no_sharing(gpu_tests.linked_nccl(TRAIN)) if "ranks_per_gpu" in resources else ""
        if why:
            self.skipTest(why)
        return super().submit(resources, train, **fields)

    def test_one_rank_trains_on_the_gpu_that_the_job_asks_for(self):
        for more in ({}, {"precision": "bf16"}, {"precision": "fp16"}):
            job_id = self.submit(ALONE, {"model": "mnist_convnet", "batch_size": 128, "max_steps": 200, "epochs": 9, **more})
            _, log = self.succeeded(job_id, 1)
            self.assertIn("computing on a GPU", log)
            losses = [point[3] for point in self.daemon.series(job_id)[0]]
            self.assertLess(losses[-1], losses[0] / 3, log[-3000:])
            print(more, "\n".join(log.splitlines()[-1:]))

    def kill_one_of_four(self, rank, **train):
        """Kills a rank of a job that would train for hours, so that it is found at work however fast the GPU is. All go on; then
        another job trains from the checkpoints of the first to its end: its id and log."""
        folder = self.root / "checkpoints"

        def submit(**more):
            return self.submit(SHARED, {"model": "mnist_convnet", "batch_size": 32, "epochs": 1_000_000, "checkpoint_every_steps": 50,
                                        **train, **more}, recovery={}, checkpoint={"directory": str(folder)})

        def steps(number):
            return self.daemon.wait_for(job_id, lambda job: job.get("step", 0) > number, 90, f"step {number}")["step"]

        job_id = submit()
        steps(200)
        killed = time.monotonic()
        os.kill(pid_of(job_id, rank), signal.SIGKILL)
        self.daemon.wait_generation(job_id, 2, 30)
        again = time.monotonic()
        # Of the first generation nobody is left: what comes above its last step is the second's.
        reached = steps(self.daemon.job(job_id)["step"] + 60)
        print(f"kill to a running generation {again - killed:.2f} s, to 60 steps more {time.monotonic() - killed:.2f} s")
        self.daemon.cli("cancel", job_id)
        done = self.daemon.wait_state(job_id, harness.FINAL, 60)
        self.assertEqual(done["state"], "cancelled", done)
        first, second = done["attempts"][0]["generations"]
        self.assertEqual((first["cause"]["class"], first["cause"]["rank"]), ("rank_signal", rank), done)
        self.assertGreaterEqual(second["resumed_from_step"], 150, done)
        last = max(points[-1][0] for points in self.daemon.series(job_id).values()) + 200
        job_id = submit(max_steps=last)
        _, log = self.succeeded(job_id, 4)
        series = self.daemon.series(job_id)
        self.assertGreater(min(points[0][0] for points in series.values()), reached - 50, "it began with a checkpoint")
        self.assertEqual({rank: points[-1][0] for rank, points in series.items()}, dict.fromkeys(range(4), last))
        return job_id, log

    def test_four_ranks_by_nccl_and_a_killed_one(self):
        job_id, log = self.kill_one_of_four(2, devices="gpu")
        self.assertLess(self.daemon.series(job_id)[0][-1][3], 0.5)
        # The norm is of the mean gradient over all ranks: where ranks go ways of their own it differs.
        norms = {points[-1][3] for points in self.daemon.series(job_id, "grad_norm").values()}
        self.assertEqual(len(norms), 1, norms)
        self.assertGreater(float(re.search(r"accuracy ([0-9.]+)", log)[1]), 0.9, log[-300:])
        print(log.splitlines()[-1])

    def test_four_ranks_sum_several_buckets_beside_backward_as_one_rank_has_them(self):
        # 20 million parameters: without a CUDA graph, in two buckets.
        train = {"model": "alexnet_split", "dataset": {"name": "digits", "resize": 64}, "optimizer": "sgd", "learning_rate": 0.01,
                 "dropout": 0.0, "max_steps": 20, "epochs": 9, "devices": "gpu"}
        one = self.submit(ALONE, {**train, "batch_size": 64})
        self.succeeded(one, 1)
        four = self.submit(SHARED, {**train, "batch_size": 16})
        self.succeeded(four, 4)
        alone = [point[3] for point in self.daemon.series(one)[0]]
        ranks = [[point[3] for point in points] for points in self.daemon.series(four).values()]
        self.assertEqual([len(losses) for losses in (alone, *ranks)], [20] * 5)
        for step, losses in enumerate(zip(*ranks, strict=True)):
            self.assertAlmostEqual(sum(losses) / 4, alone[step], delta=0.03, msg=f"step {step + 1}")
        norms = {points[-1][3] for points in self.daemon.series(four, "grad_norm").values()}
        self.assertEqual(len(norms), 1, norms)

    def losses_are_those_of_one_rank(self, resources, train, sharing=1, **fields):
        """`sharing`: ranks that each have a part of a step's samples."""
        common = {"model": "mlp", "optimizer": "sgd", "learning_rate": 0.05, "dropout": 0.0, "max_steps": 20, "epochs": 9}
        one = self.submit(ALONE, {**common, "strategy": "single", "batch_size": 64, "devices": "gpu"})
        self.succeeded(one, 1)
        alone = [point[3] for point in self.daemon.series(one)[0]]
        ranks = resources["ranks_per_node"]
        job_id = self.submit(resources, {**common, "batch_size": 64 // sharing, **train}, **fields)
        _, log = self.succeeded(job_id, ranks)
        self.assertIn("computing on", log)
        series = [[point[3] for point in points] for points in self.daemon.series(job_id).values() if points]
        self.assertEqual({len(losses) for losses in series}, {20}, log[-3000:])
        for step, losses in enumerate(zip(*series, strict=True)):
            self.assertAlmostEqual(sum(losses) / len(losses), alone[step], delta=0.03, msg=f"step {step + 1}")
        return log

    def test_a_pipeline_sends_from_gpu_to_gpu_and_has_the_losses_of_one_rank(self):
        self.losses_are_those_of_one_rank(SHARED, {"strategy": "pipeline", "devices": "gpu"})

    def test_two_pipelines_sum_their_gradients_by_nccl(self):
        self.losses_are_those_of_one_rank(SHARED, {"strategy": "pipeline", "stages": 2, "devices": "gpu:0"}, sharing=2)

    def test_a_killed_stage_is_the_cause_and_all_go_on(self):
        self.kill_one_of_four(1, devices="gpu", strategy="pipeline")

    def test_a_worker_of_a_parameter_server_computes_on_its_nodes_gpu(self):
        log = self.losses_are_those_of_one_rank(
            {"nodes": 1, "ranks_per_node": 2, "gpus_per_node": 1}, {"strategy": "parameter_server"},
            roles=[{"name": "ps", "count": 1}, {"name": "worker", "count": 1}])
        self.assertEqual(log.count("computing on a GPU"), 1, log[:2000])

    def test_replicas_have_all_gpus_of_their_node(self):
        gpus = gpu_tests.gpus()
        for strategy in ("replicated", "central_storage"):
            log = self.losses_are_those_of_one_rank({"nodes": 1, "ranks_per_node": 1, "gpus_per_node": gpus}, {"strategy": strategy})
            self.assertIn("computing on several GPUs" if gpus > 1 else "computing on a GPU", log)

    def test_a_batch_that_does_not_fit_is_the_cause_with_its_sizes(self):
        job_id = self.submit(ALONE, {"model": "mobilenet_v2", "batch_size": 16384, "max_steps": 2, "train_samples": 20000,
                                     "dataset": {"name": "digits", "resize": 224}, "loader_workers": 0})
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        message = done["cause"].get("message", "")
        self.assertIn("a batch_size of 16384 does not fit on", message, done)
        self.assertIn("GiB", message)

    def test_a_gpu_that_is_not_there_is_named(self):
        job_id = self.submit({**ALONE, "ranks_per_node": 2}, {"max_steps": 2})
        done = self.daemon.wait_state(job_id, harness.FINAL, 60)
        self.assertEqual(done["state"], "failed", done)
        self.assertIn("no GPU 1: this process sees 1", str(done["cause"]), done)


if __name__ == "__main__":
    harness.main()
