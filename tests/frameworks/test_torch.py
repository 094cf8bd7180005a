"""torch 2.x and what trains on it: DDP, Lightning, Accelerate, Hugging Face's Trainer, DeepSpeed, Keras."""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import unittest

import frameworks
import harness

SERVER = pathlib.Path(harness.BIN).parent / "tests" / "tcp_store_server"


class Torch(frameworks.Framework):
    ENVIRONMENT = "torch"

    @unittest.skipUnless(SERVER.exists(), f"no {SERVER}")
    @frameworks.in_every_run
    def test_its_own_store_clients_at_our_store(self):
        with subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            port = server.stdout.readline().strip()
            clients = subprocess.run([self.python(), harness.FIXTURES / "tcp_store_clients.py", port],
                                     capture_output=True, text=True, timeout=180, check=False)
            said, _ = server.communicate(timeout=60)
        self.assertEqual((clients.returncode, clients.stdout), (0, "good\n"), clients.stderr)
        self.assertRegex(said, r"queries \d{3,} refused 0")
        self.saw("torch", "TCPStore clients (libuv) at the agent's store", "every operation, 64 clients at once")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_ddp(self):
        job = self.trains("pytorch", "torch_ddp.py", nodes=2)
        self.assert_losses(job, range(4), 12)
        checksums = {self.daemon.rank_log(job, rank).split("checksum")[1].strip() for rank in range(4)}
        self.assertEqual(len(checksums), 1)
        self.saw("torch", "DDP (gloo), the agent's store", "2 × 2 ranks; every loss of each; equal weights")

    def test_nothing_but_lockstep_run(self):
        self.assert_run("torch_ddp.py", [0, 1])
        self.saw("torch", "lockstep run -n 2 -- python", "the framework is guessed; every loss of each")

    @frameworks.on_slurm
    def test_a_rank_that_is_stuck(self):
        self.assert_stuck("pytorch", "torch_ddp.py")
        self.saw("torch", "hang of a rank", "named, with file and line")

    @frameworks.on_slurm
    def test_torchrun(self):
        job = self.trains("pytorch", ["-m", "torch.distributed.run", frameworks.PROGRAMS / "torch_ddp.py"], nodes=2,
                          launch="node")
        self.assert_losses(job, range(4), 12)
        self.saw("torch", "torchrun, launch node", "2 × 2 ranks; every loss of each")

    @frameworks.in_every_run
    def test_ranks_that_a_script_spawns_meet_at_its_own_port(self):
        program = frameworks.harness.FIXTURES / "spawns_ranks.py"
        job = self.submit("pytorch", [program, "", frameworks.harness.quiet_port()], ranks=1)
        done = self.ends(job)
        self.assertIn("sum 3.0", self.daemon.rank_log(job, 0))
        self.assertIn("the script starts 2 ranks itself", " ".join(done["warnings"]))
        self.saw("torch", "mp.spawn, MASTER_PORT of the script's own", "2 ranks that meet there")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("pytorch", "torch_ddp.py", "--bad-data", 1, text="is out of bounds")
        self.saw("torch", "exception of a rank", "named")

    @frameworks.on_slurm
    def test_a_profile(self):
        job = self.submit("pytorch", "torch_ddp.py", "--epochs", 100_000)
        harness.wait_until(lambda: self.daemon.series(job), frameworks.SECONDS, "it makes steps")
        folder = self.root / "profile"
        done = self.daemon.cli("profile", job, "--ranks", "0-1", "--seconds", "2", "--output", folder, seconds=120)
        for rank in range(2):
            with gzip.open(folder / f"rank-{rank:05d}.trace.json.gz") as file:
                names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
            for what in ("aten::addmm", "DistributedDataParallel.forward", "Optimizer.step#Adam.step"):
                self.assertIn(what, names, done.stderr)
            self.assertTrue(any("all_reduce" in name for name in names), sorted(names))
            self.assertIn("aten::addmm", (folder / f"rank-{rank:05d}.operations.txt").read_text())
            self.assertIn("torch_ddp.py:", (folder / f"rank-{rank:05d}.stacks.txt").read_text())
        step = self.daemon.get(f"/v1/jobs/{job}").get("step", 0)
        self.daemon.wait_for(job, lambda one: one.get("step", 0) > step + 10, 60, "it goes on")
        self.daemon.cli("cancel", job)
        self.saw("torch", "lockstep profile", "stacks, trace with DDP's all_reduce, and operations of 2 ranks")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_a_killed_rank(self):
        state = self.root / "state.pt"
        job = self.assert_goes_on("pytorch", "torch_ddp.py", "--epochs", 60, "--checkpoint", state,
                                  checkpoint=state.exists)
        self.assertIn("resumes at epoch", self.daemon.rank_log(job, 1))
        self.saw("torch", "kill of a rank", "generation 2 resumes from the script's file")


    @frameworks.on_slurm
    def test_sharded(self):
        for kind, name in (("fsdp1", "FullyShardedDataParallel"), ("fsdp2", "fully_shard")):
            job = self.trains("pytorch", "torch_fsdp.py", kind)
            self.assert_losses(job, range(2), 12)
            self.assert_logs(job, *(f"rank {rank} of 2 holds 2405 parameters" for rank in range(2)))  # of 4810
            self.saw("torch", f"{name} on the CPU (gloo)", "2 ranks, each with half of the parameters; 12 losses of each")


class Lightning(frameworks.Framework):
    ENVIRONMENT = "torch"

    def two_ranks(self):
        """Lightning wants the job's shape in the script's own arguments."""
        shape = self.shape(1, 2)
        return "--nodes", shape["nodes"], "--devices", shape["ranks_per_node"]

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_ddp_on_two_nodes(self):
        job = self.trains("lightning", "lightning_tips.py", nodes=2)
        self.assert_logs(job, *(f"TorchElasticEnvironment rank {rank} of 4" for rank in range(4)), ranks=4)
        self.saw("torch lightning", "ddp, 2 nodes, accumulated gradients",
                 "2 × 2 ranks; off a terminal Lightning prints a loss once, at the end, on rank 0")

    @frameworks.on_slurm
    def test_each_way_to_know_its_ranks(self):
        # Whichever of its environments Lightning, or the script, takes: each says the same ranks.
        for kind in ("slurm", "lightning") if frameworks.SLURM else ("lightning",):
            job = self.trains("lightning", "lightning_tips.py", "--environment", kind, nodes=2)
            name = {"slurm": "SLURMEnvironment", "lightning": "LightningEnvironment"}[kind]
            self.assert_logs(job, *(f"{name} rank {rank} of 4" for rank in range(4)), ranks=4)
            self.saw("torch lightning", f"{name}, chosen by the script", "2 × 2 ranks, each its own number")

    @frameworks.on_slurm
    def test_it_starts_the_ranks_of_each_node(self):
        job = self.trains("lightning", "lightning_tips.py", nodes=2, launch="node")
        self.assertIn("LightningEnvironment rank 0 of 4", self.daemon.rank_log(job, 0))
        self.saw("torch lightning", "ddp over 2 nodes, launch node", "2 × 2 ranks, of which Lightning starts one a node itself")

    def test_it_spawns_its_own_ranks(self):
        for strategy in ("ddp", "ddp_spawn"):
            job = self.trains("lightning", "lightning_tips.py", "--nodes", 1, "--strategy", strategy, launch="node")
            self.assertIn("LightningEnvironment rank 0 of 2", self.daemon.rank_log(job, 0))
        self.saw("torch lightning", "ddp and ddp_spawn, launch node", "2 ranks that Lightning starts itself")

    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("lightning", "lightning_tips.py", *self.two_ranks(), "--bad-data", 1, text="is out of bounds")
        self.saw("torch lightning", "exception of a rank", "named")

    @frameworks.on_slurm
    def test_a_killed_rank(self):
        folder = self.root / "checkpoints"
        job = self.submit("lightning", "lightning_tips.py", *self.two_ranks(), "--epochs", 12, "--folder", folder,
                          recovery={"max_restarts": 1}, environment=self.held())
        harness.wait_until((folder / "last.ckpt").exists, frameworks.SECONDS, "a checkpoint")
        self.kill_rank(job, 1)
        self.assert_restarted(job, 1)
        self.assertIn("Restored all states from the checkpoint", self.daemon.rank_log(job, 0))
        self.saw("torch lightning", "kill of a rank", "generation 2 resumes from ModelCheckpoint's last")


class Accelerate(frameworks.Framework):
    ENVIRONMENT = "torch"

    @frameworks.on_slurm
    def test_ranks(self):
        job = self.trains("accelerate", "accelerate_loop.py", nodes=2)
        self.assert_logs(job, *(f"rank {rank} of 4" for rank in range(4)), ranks=4)
        self.assert_losses(job, range(4), 16)
        self.saw("torch accelerate", "prepare(), accumulate()", "2 × 2 ranks; 16 losses of each")

    def test_its_own_launcher(self):
        job = self.trains("accelerate", ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1",
                                         "--num_processes", "{world_size}", "--main_process_port", "{master_port}",
                                         frameworks.PROGRAMS / "accelerate_loop.py"],
                          launch="node", environment={"ACCELERATE_USE_CPU": "true"})
        self.assert_losses(job, range(2), 32)
        self.saw("torch accelerate", "accelerate launch, launch node", "2 ranks; 32 losses of each")

    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("accelerate", "accelerate_loop.py", "--bad-data", 1, text="is out of bounds")
        self.saw("torch accelerate", "exception of a rank", "named")


    @frameworks.on_slurm
    def test_a_killed_rank(self):
        folder = self.root / "state"
        folder.mkdir()
        job = self.assert_goes_on("accelerate", "accelerate_loop.py", "--epochs", 40, "--folder", folder,
                                  checkpoint=(folder / "epoch").exists)
        self.assertIn("resumes at epoch", self.daemon.rank_log(job, 1))
        self.saw("torch accelerate", "kill of a rank", "generation 2 resumes from save_state()")


class Trainer(frameworks.Framework):
    """Hugging Face's."""
    ENVIRONMENT = "torch"

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_ranks(self):
        job = self.trains("pytorch", "hf_trainer.py", "--folder", self.root / "trainer")
        self.assert_logs(job, "rank 0 of 2 at step 12", "rank 1 of 2 at step 12")
        self.assert_losses(job, [0], 12)
        self.saw("torch transformers", "Trainer", "2 ranks; Trainer logs the mean of all on rank 0: 12 losses")

    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("pytorch", "hf_trainer.py", "--folder", self.root / "trainer", "--bad-data", 1,
                            text="index out of range")
        self.saw("torch transformers", "exception of a rank", "named")

    @frameworks.on_slurm
    def test_a_killed_rank(self):
        folder = self.root / "trainer"
        job = self.assert_goes_on("pytorch", "hf_trainer.py", "--folder", folder, "--steps", 400,
                                  checkpoint=lambda: any(folder.glob("checkpoint-*/trainer_state.json")))
        self.assert_logs(job, "rank 0 of 2 at step 400", "rank 1 of 2 at step 400")
        self.saw("torch transformers", "kill of a rank", "generation 2 resumes from Trainer's newest checkpoint")


    def test_fewer_nodes_and_all_again(self):
        """resources.min_nodes: a node is cut off (its agent frozen), and comes back."""
        job = self.submit("pytorch", "hf_trainer.py", "--folder", self.root / "trainer", "--steps", 1_000_000,
                          resources={"nodes": 3, "min_nodes": 2}, recovery={"grow_after_seconds": 1},
                          environment={"OMP_NUM_THREADS": "1"})
        self.assert_world(job, 1, 3)
        agent = next(event["data"]["pid"] for event in self.daemon.events(job)
                     if event["kind"] == "agent_claimed" and event["data"]["node_rank"] == 1)
        os.kill(agent, signal.SIGSTOP)
        try:
            self.assert_world(job, 2, 2)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.assert_world(job, 3, 3)
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.ends(job, "cancelled")
        self.saw("torch transformers", "min_nodes: 3 nodes, 2, 3 again", "resumes from Trainer's newest checkpoint in each world")

    def assert_world(self, job, number, nodes):
        """Until that generation has that many nodes and has made Trainer's next checkpoints."""
        def newest():
            return max((int(path.name.partition("-")[2]) for path in (self.root / "trainer").glob("checkpoint-*")), default=0)

        self.assertEqual(self.daemon.wait_generation(job, number, frameworks.SECONDS)["nodes"], nodes)
        before = newest()
        self.assertTrue(number == 1 or before > 0)  # from which it goes on: numbers below it are not waited for
        harness.wait_until(lambda: newest() > before + 4, frameworks.SECONDS, f"checkpoints of generation {number}")


class DeepSpeed(frameworks.Framework):
    ENVIRONMENT = "torch"

    @frameworks.on_slurm
    def test_zero_1(self):
        job = self.trains("deepspeed", "deepspeed_loop.py")
        self.assert_losses(job, range(2), 20)
        self.saw("torch deepspeed", "ZeRO 1 over gloo",
                 "2 ranks; 20 losses of each. The first run compiles DeepSpeed's shared-memory operator, 100 s")

    @frameworks.on_slurm
    def test_a_killed_rank(self):
        folder = self.root / "state"
        self.assert_goes_on("deepspeed", "deepspeed_loop.py", "--steps", 40, "--folder", folder,
                            checkpoint=lambda: (folder / "latest").exists())
        self.saw("torch deepspeed", "kill of a rank", "generation 2 resumes from DeepSpeed's checkpoint")

    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("deepspeed", "deepspeed_loop.py", "--bad-data", 1, text="is out of bounds")
        self.saw("torch deepspeed", "exception of a rank", "named")


class Keras(frameworks.Framework):
    ENVIRONMENT = "torch"

    def test_the_guide(self):
        job = self.trains("keras", "keras_torch_guide.py", 2, launch="node", environment={"KERAS_BACKEND": "torch"})
        self.assert_losses(job, range(2))
        self.saw("torch keras", "Keras on torch: the guide's model, loop and start_processes(fork), launch node",
                 "2 ranks; the loss of each")


class Callbacks(frameworks.Framework):
    """lockstep.lightning, .accelerate, .transformers, .keras under the real ones."""
    ENVIRONMENT = "torch"

    def test_lightning(self):
        # 32 micro-batches a rank's half: 16, two for a step.
        self.assert_callback("lightning", framework="lightning", metrics=("accuracy", "step_seconds", "data_wait_seconds"))
        self.saw("torch lightning", "lockstep.lightning: callback and logger", "every optimizer step of each rank")

    def test_accelerate(self):
        job = self.trains("accelerate", "with_callbacks.py", "accelerate")
        self.assertEqual([point[0] for point in self.assert_losses(job, [0])[0]], list(range(1, 9)))
        self.saw("torch accelerate", "lockstep.accelerate.LockstepTracker", "every step, of rank 0: Accelerate calls trackers there")

    def test_transformers(self):
        self.assert_callback("transformers", self.root / "out", framework="pytorch", metrics=("step_seconds", "grad_norm"))
        self.saw("torch transformers", "lockstep.transformers.LockstepCallback", "every step of each rank")

    def test_keras(self):
        self.assert_callback("keras", metrics=("step_seconds",), environment={"KERAS_BACKEND": "torch"})
        self.saw("torch keras", "lockstep.keras.LockstepCallback", "every step of each rank")


class Measured(frameworks.Framework):
    """LOCKSTEP_PYTHON_HOOKS=measure: scripts that report nothing and print nothing."""
    ENVIRONMENT = "torch"

    def test_ddp_with_a_slow_rank(self):
        job = self.trains("pytorch", "silent_ddp.py", "--compute-seconds", 0.05, "--slow-rank", 1,
                          environment=frameworks.MEASURED)
        for points in self.assert_losses(job, range(2), 12).values():
            self.assertEqual(len(points), 12)

        def median(metric, rank):
            values = sorted(point[3] for point in self.daemon.series(job, metric)[rank])
            return values[len(values) // 2]

        # Rank 0 waits for rank 1, which is the busy one; their steps take the same time.
        self.assertGreater(median("comm_wait_seconds", 0), median("comm_wait_seconds", 1))
        self.assertGreater(median("busy_seconds", 1), median("busy_seconds", 0))
        self.assertGreater(median("step_seconds", 0), 0.04)
        self.saw("torch", "silent DDP script with LOCKSTEP_PYTHON_HOOKS=measure",
                 "12 of 12 losses of each rank; the slow rank is the busy one, the other waits for it")

    def test_ddp_whose_data_is_slow(self):
        job = self.trains("pytorch", "silent_ddp.py", "--load-seconds", 0.05, environment=frameworks.MEASURED)
        for points in self.daemon.series(job, "data_wait_seconds").values():
            self.assertGreater(sorted(point[3] for point in points)[len(points) // 2], 0.04)

    def test_several_trainings_of_a_process(self):
        # Only the first optimizer's steps counted, under a default device the loss was doubled, and a script that
        # looked for torch before it imported it was not measured at all.
        job = self.trains("pytorch", "silent_folds.py", ranks=1, environment=frameworks.MEASURED)
        points = self.daemon.series(job)[0]
        self.assertEqual([(point[0], point[3]) for point in points],
                         list(enumerate([1.0, 1.0, 2.0, 2.0, 3.0, 3.0], start=1)))  # a takeover costs the first of three

    @frameworks.on_slurm
    def test_lightning(self):
        job = self.trains("lightning", "lightning_tips.py", nodes=2, environment=frameworks.MEASURED)
        for points in self.assert_losses(job, range(4), 8).values():
            self.assertEqual(len(points), 8)  # 1,024 images in 32s over 4 ranks, two batches a step, two epochs
        self.saw("torch lightning", "ddp with LOCKSTEP_PYTHON_HOOKS=measure", "2 × 2 ranks; 8 of 8 optimizer steps of each")

    @frameworks.on_slurm
    def test_transformers(self):
        job = self.trains("pytorch", "hf_trainer.py", "--folder", self.root / "trainer", environment=frameworks.MEASURED)
        self.assert_losses(job, range(2), 12)
        self.assertEqual(sorted(self.daemon.series(job, "step_seconds")), [0, 1])
        self.saw("torch transformers", "Trainer with LOCKSTEP_PYTHON_HOOKS=measure", "12 of 12 steps of each rank")

    def test_losses_that_are_still_on_their_way_when_it_fails(self):
        for arguments, framework, fields in (((), "pytorch", {"environment": frameworks.MEASURED}),
                                             (("lightning",), "lightning", {})):
            with self.subTest(framework):
                job = self.submit(framework, "slow_device.py", *arguments, ranks=1, **fields)
                self.assertIn("the sixth batch is broken", self.ends(job, "failed")["cause"]["message"])
                self.assertEqual([point[0] for point in self.daemon.series(job)[0]], [1, 2, 3, 4, 5])

    def test_what_it_costs(self):
        # One rank, so that nothing waits: the median of the same 300 steps with and without, in turn, as the
        # machine's load changes.
        def microseconds(**environment):
            job = self.trains("pytorch", "silent_ddp.py", "--steps", 300, "--time", ranks=1, environment=environment)
            return float(self.daemon.rank_log(job, 0).split(" us a step")[0].split()[-1])

        pairs = [(microseconds(), microseconds(**frameworks.MEASURED)) for _ in range(2)]
        without, measured = (min(one) for one in zip(*pairs))
        self.assertLess(measured, 3 * without, pairs)
        self.saw("torch", "cost of measuring a step of DDP, 4 parameters", f"{without:.0f} us without, {measured:.0f} us with")


if __name__ == "__main__":
    frameworks.main()
