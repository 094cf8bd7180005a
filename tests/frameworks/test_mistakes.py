"""What people get wrong, with the real frameworks: each mistake is named, by Lockstep or in the framework's own words."""

import socket

import frameworks


class Mistakes(frameworks.Framework):
    def cause(self, *arguments, **fields):
        return self.ends(self.submit(*arguments, **fields), "failed")["cause"]

    def message(self, *arguments, **fields):
        """What the cause says of a rank."""
        cause = self.cause(*arguments, **fields)
        self.assertIn("rank", cause, cause)
        return cause["message"]


class Torch(Mistakes):
    ENVIRONMENT = "torch"

    @frameworks.in_every_run
    def test_init_twice(self):
        said = self.message("pytorch", "mistakes.py", "torch-twice")
        self.assertIn("initialize the default process group twice", said)
        self.saw("torch", "mistake: init_process_group() twice", "the cause, in torch's words")

    def test_a_port_that_the_script_insists_on(self):
        with socket.create_server(("", 0)) as taken:
            port = taken.getsockname()[1]
            cause = self.cause("pytorch", "mistakes.py", "torch-port", port, launch="node")
        self.assertIn(f"port: {port}", cause["message"])
        self.assertIn("EADDRINUSE", cause["message"])
        self.assertTrue(cause["node"])
        self.saw("torch", "mistake: a port of the script's own that is taken", "the cause, with node and port")

    def accelerate(self, *lines, state="succeeded"):
        """The warnings of a job of two processes under `accelerate launch` with this configuration."""
        folder = self.root / "home" / "accelerate"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "default_config.yaml").write_text("\n".join((
            "compute_environment: LOCAL_MACHINE", "machine_rank: 0", "main_training_function: main",
            "mixed_precision: 'no'", "use_cpu: true", *lines)) + "\n")
        job = self.submit("accelerate", ["-m", "accelerate.commands.launch", "--main_process_port", "{master_port}",
                                         frameworks.PROGRAMS / "accelerate_loop.py"],
                          launch="node", environment={"HF_HOME": str(folder.parent)})
        warnings = self.ends(job, state).get("warnings", [])
        self.assertIn(f"{folder}/default_config.yaml", self.daemon.rank_log(job) + self.node_log(job))
        return " ".join(warnings)

    def node_log(self, job):
        return "".join(path.read_text() for path in (self.daemon.data / "runs" / job).rglob("*.log"))

    def test_an_accelerate_config_of_another_shape(self):
        said = self.accelerate("distributed_type: MULTI_GPU", "num_machines: 1", "num_processes: 3")
        self.assertIn("a world size 3 of an expected 2", said)
        self.saw("torch accelerate", "mistake: accelerate config is for 3 processes, the job has 2",
                 "a warning of the job; the log names the file")

    def test_an_accelerate_config_that_starts_one_process(self):
        # MULTI_CPU without a host file for mpirun is one process, whatever num_processes says.
        said = self.accelerate("distributed_type: MULTI_CPU", "num_machines: 1", "num_processes: 2")
        self.assertIn("ranks train by themselves, not together: one has a world size 1 of an expected 2", said)
        self.saw("torch accelerate", "mistake: accelerate config is MULTI_CPU without mpirun", "a warning: it trains alone")

    def test_a_keras_backend_that_is_not_there(self):
        said = self.message("keras", "with_callbacks.py", "keras", environment={"KERAS_BACKEND": "jax"})
        self.assertIn("No module named 'jax'", said)
        self.saw("torch keras", "mistake: KERAS_BACKEND=jax, not installed", "the cause: No module named 'jax'")


class TensorFlow(Mistakes):
    ENVIRONMENT = "tensorflow"

    def test_a_strategy_twice(self):
        said = self.message("tensorflow", "mistakes.py", "tf-late")
        self.assertIn("Collective ops must be configured at program startup", said)
        self.saw("tensorflow-cpu", "mistake: MultiWorkerMirroredStrategy after the first operation", "the cause, in TensorFlow's words")


class Jax(Mistakes):
    ENVIRONMENT = "jax"

    @frameworks.in_every_run
    def test_init_twice(self):
        said = self.message("jax", "mistakes.py", "jax-twice")
        self.assertIn("only be called once", said)
        self.saw("jax", "mistake: jax.distributed.initialize() twice", "the cause, in JAX's words")


class Paddle(Mistakes):
    ENVIRONMENT = "paddle"

    def test_init_twice(self):
        job = self.trains("paddle", "mistakes.py", "paddle-twice")
        self.assert_logs(job, "rank 0 of 2", "rank 1 of 2")
        self.saw("paddlepaddle", "mistake: init_parallel_env() twice", "harmless: Paddle ignores the second")


if __name__ == "__main__":
    frameworks.main()
