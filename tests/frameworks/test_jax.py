"""JAX over several processes, and Keras on JAX."""

import frameworks


class Jax(frameworks.Framework):
    ENVIRONMENT = "jax"

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_four_processes_are_one_mesh(self):
        job = self.trains("jax", "jax_dp.py", nodes=2)
        self.assert_logs(job, *(f"process {n} of 4, 4 devices" for n in range(4)), ranks=4)
        losses = self.assert_losses(job, range(4), 20)
        self.assertEqual(len({str([p[3] for p in points]) for points in losses.values()}), 1, "one loss for all")
        self.saw("jax", "multi-process, one mesh", "2 × 2 ranks; 20 losses of each")

    def test_nothing_but_lockstep_run(self):
        self.assert_run("jax_dp.py", [0, 1])
        self.assert_run("keras_jax.py", [0, 1])
        self.saw("jax keras", "lockstep run -n 2 -- python", "the framework is guessed; the loss of each")

    def test_a_rank_that_is_stuck(self):
        self.assert_stuck("jax", "jax_dp.py")
        self.saw("jax", "hang of a rank", "named, with file and line")

    @frameworks.on_slurm
    def test_the_exception_of_a_process_that_waits_for_its_peers_at_exit(self):
        # jax.distributed shuts down in an exit function that waits five minutes for the other processes, which
        # wait for this one's next step: neither ever ended, and the job looked like a hang.
        cause = self.assert_culprit("jax", "jax_dp.py", "--bad-data", 1, text="ValueError: matmul")
        self.assertIn("matmul: Input operand 1 has a mismatch", cause["message"])
        self.saw("jax", "exception of one process", "named; ended 30 s after it, jax itself waits 300 s")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_a_killed_process(self):
        state = self.root / "weights.npz"
        job = self.assert_goes_on("jax", "jax_dp.py", "--steps", 3000, "--checkpoint", state, checkpoint=state.exists)
        self.assertIn("resumes after step", self.daemon.rank_log(job, 1))
        self.saw("jax", "kill of a process", "generation 2 resumes from the script's file")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_keras_on_jax(self):
        job = self.trains("keras", "keras_jax.py", environment={"KERAS_BACKEND": "jax"})
        self.assert_logs(job, "process 0 of 2, 2 devices", "process 1 of 2, 2 devices")
        self.assert_losses(job, range(2))
        self.saw("jax keras", "Keras on JAX: distribution.initialize(), DataParallel, fit()",
                 "2 ranks; loss of each from the progress bar")

    def test_keras_whose_backend_the_script_chooses(self):
        # Only the script knows: nothing in the specification says jax.
        job = self.trains("keras", "keras_jax.py")
        self.assert_logs(job, "process 0 of 2, 2 devices", "process 1 of 2, 2 devices")

    def test_callbacks(self):
        self.assert_callback("jax")
        self.assert_callback("keras", environment={"KERAS_BACKEND": "jax"}, metrics=("step_seconds",))
        self.saw("jax keras", "lockstep.jax, lockstep.keras.LockstepCallback", "every step of each rank")

    def test_the_package_meets_where_the_agent_has_the_master_port(self):
        # Torch's store and Horovod's rendezvous listen there: JAX's coordinator could not.
        for framework in ("pytorch", "horovod"):
            self.assert_callback("jax", framework=framework)
        self.saw("jax", "lockstep.jax.initialize() under pytorch and horovod", "every step of each rank")

    def test_keras_measured_without_a_change(self):
        job = self.trains("keras", "keras_jax.py", environment=frameworks.MEASURED)
        for points in self.assert_losses(job, range(2), 16).values():
            self.assertEqual([point[0] for point in points], list(range(1, 17)))
        self.assertEqual(sorted(self.daemon.series(job, "step_seconds")), [0, 1])
        self.saw("jax keras", "fit() with LOCKSTEP_PYTHON_HOOKS=measure", "16 of 16 steps of each rank")


if __name__ == "__main__":
    frameworks.main()
