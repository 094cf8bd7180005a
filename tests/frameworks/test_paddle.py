"""PaddlePaddle: the lesson's script under every way to start it, and parameter servers."""

import frameworks
import harness


class Paddle(frameworks.Framework):
    ENVIRONMENT = "paddle"

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_ranks(self):
        job = self.trains("paddle", "paddle_mnist.py", nodes=2)
        self.assert_logs(job, *(f"rank {rank} of 4 on cpu" for rank in range(4)), ranks=4)
        self.assert_losses(job, range(4), 20)
        self.saw("paddlepaddle", "init_parallel_env, DataParallel (gloo)", "2 × 2 ranks; 20 losses of each")

    @frameworks.on_slurm
    def test_its_own_launcher(self):
        job = self.trains("paddle", ["-m", "paddle.distributed.launch", frameworks.PROGRAMS / "paddle_mnist.py"],
                          launch="node")
        self.assert_losses(job, range(2), 20)
        self.saw("paddlepaddle", "paddle.distributed.launch, launch node", "2 ranks; 20 losses of each")

    def test_spawn(self):
        job = self.trains("paddle", "paddle_mnist.py", "--spawn", 2, launch="node")
        self.assert_losses(job, range(2), 20)
        self.saw("paddlepaddle", "paddle.distributed.spawn, launch node", "2 ranks; 20 losses of each")

    def test_servers_and_trainers(self):
        # The wheel of Paddle 3 for the CPU is built without its parameter servers: the roles meet, and end there.
        job = self.submit("paddle", "paddle_servers.py", ranks=4, environment={"FLAGS_enable_pir_api": "0"},
                          roles=[{"name": "ps", "count": 2}, {"name": "worker", "count": 2}])
        cause = self.ends(job, "failed")["cause"]
        self.assertRegex(cause["message"], "CommContext|DistFleetWrapper")
        self.saw("paddlepaddle", "parameter servers: 2 ps, 2 workers",
                 "not possible: the wheel is built without them (no CommContext, no DistFleetWrapper); the job says so")

    def test_a_script_that_nobody_has_told_to_be_parallel(self):
        job = self.submit("command", "paddle_mnist.py")
        self.assertIn("ranks train by themselves", " ".join(self.ends(job)["warnings"]))
        self.saw("paddlepaddle", "framework command", "its own warning becomes one of the job")

    def test_nothing_but_lockstep_run(self):
        self.assert_run("paddle_mnist.py", [0, 1])
        self.saw("paddlepaddle", "lockstep run -n 2 -- python", "the framework is guessed; the loss of each")

    def test_a_rank_that_is_stuck(self):
        self.assert_stuck("paddle", "paddle_mnist.py")
        self.saw("paddlepaddle", "hang of a rank", "named, with file and line")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("paddle", "paddle_mnist.py", "--bad-data", 1, text="label value")
        self.saw("paddlepaddle", "exception of a rank", "named")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_a_killed_rank(self):
        state = self.root / "mnist.pdparams"
        job = self.assert_goes_on("paddle", "paddle_mnist.py", "--epochs", 12, "--state", state, checkpoint=state.exists)
        self.assertIn("resumes at epoch", self.daemon.rank_log(job, 1))
        self.saw("paddlepaddle", "kill of a rank", "generation 2 resumes from the saved state")

    def test_a_profile(self):
        job = self.submit("paddle", "paddle_mnist.py", "--epochs", 1_000_000)
        harness.wait_until(lambda: self.daemon.series(job), frameworks.SECONDS, "it makes steps")
        said, recorded = self.profile(job)
        self.assertIn("no trace: paddle's profiler can end a process in which another thread computes", said)
        for names, table, stacks in recorded:
            self.assertEqual((names, table), (set(), ""), said)
            self.assertIn("paddle_mnist.py:", stacks)
        self.assert_trains_on(job)
        self.daemon.cli("cancel", job)
        self.saw("paddlepaddle", "lockstep profile", "stacks of 2 ranks, and why there is no trace")

    def test_callback(self):
        self.assert_callback("paddle", metrics=("step_seconds", "samples"))
        self.saw("paddlepaddle", "lockstep.paddle.LockstepCallback for Model.fit()", "every step of each rank")


if __name__ == "__main__":
    frameworks.main()
