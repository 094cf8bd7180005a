"""TensorFlow's strategies: mirrored, central storage, several workers, parameter servers."""

import frameworks

SERVERS = [{"name": "chief", "count": 1}, {"name": "ps", "count": 1}, {"name": "worker", "count": 2}]


class TensorFlow(frameworks.Framework):
    ENVIRONMENT = "tensorflow"

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_workers_with_a_loop_of_their_own(self):
        job = self.trains("tensorflow", "tf_loop.py", nodes=2, ranks=1)
        self.assert_logs(job, "worker 0: 2 replicas", "worker 1: 2 replicas")
        self.assert_losses(job, range(2), 20)
        self.saw("tensorflow-cpu", "MultiWorkerMirroredStrategy, own loop", "2 × 1 ranks; 20 losses of each")

    @frameworks.on_slurm
    def test_workers_with_fit(self):
        job = self.trains("tensorflow", "tf_fit.py", "--strategy", "multiworker")
        self.assert_logs(job, "Number of devices: 2", "Number of devices: 2")
        self.assert_losses(job, range(2))
        self.saw("tensorflow-cpu tf-keras", "MultiWorkerMirroredStrategy, model.fit() of Keras 2",
                 "2 ranks; loss of each from the progress bar. Not with Keras 3 (TF_USE_LEGACY_KERAS=1)")

    def test_one_process_mirrored_and_central(self):
        for strategy in ("mirrored", "central"):
            job = self.trains("tensorflow", "tf_fit.py", "--strategy", strategy, ranks=1, launch="node")
            self.assertNotIn("TF_CONFIG", self.daemon.rank_log(job, 0))
            self.assert_losses(job, [0])
        self.saw("tensorflow-cpu keras", "MirroredStrategy, CentralStorageStrategy, model.fit()",
                 "1 process, launch node; loss from the progress bar")

    @frameworks.on_slurm
    def test_chief_servers_and_workers(self):
        job = self.trains("tensorflow", "tf_loop.py", ranks=4, roles=SERVERS)
        self.assert_losses(job, [0], 20)
        self.assertIn("ps 0 serves", self.daemon.rank_log(job, 1))
        self.assertIn("worker 1 serves", self.daemon.rank_log(job, 3))
        self.saw("tensorflow-cpu", "ParameterServerStrategy: chief, ps, 2 workers",
                 "the chief's loss; servers and workers are ended with it")

    def test_nothing_but_lockstep_run(self):
        self.assert_run("tf_loop.py", [0, 1])
        self.saw("tensorflow-cpu", "lockstep run -n 2 -- python", "the framework is guessed; the loss of each")

    def test_a_rank_that_is_stuck(self):
        self.assert_stuck("tensorflow", "tf_loop.py")
        self.saw("tensorflow-cpu", "hang of a rank", "named, with file and line")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_the_exception_of_a_worker(self):
        self.assert_culprit("tensorflow", "tf_loop.py", "--bad-data", 1, text="image 17 of worker 1")
        self.saw("tensorflow-cpu", "exception of a worker", "named")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_a_killed_worker(self):
        folder = self.root / "state"
        job = self.assert_goes_on("tensorflow", "tf_loop.py", "--steps", 1500, "--folder", folder,
                                  checkpoint=lambda: (folder / "checkpoint").exists())
        self.assertIn("restored step", self.daemon.rank_log(job, 1))
        self.saw("tensorflow-cpu", "kill of a worker", "generation 2 restores tf.train.Checkpoint")

    @frameworks.on_slurm
    def test_a_killed_chief(self):
        folder = self.root / "state"
        job = self.assert_goes_on("tensorflow", "tf_loop.py", "--steps", 600, "--folder", folder, rank=0, ranks=4,
                                  roles=SERVERS, checkpoint=lambda: (folder / "checkpoint").exists())
        self.assertIn("restored step", self.daemon.rank_log(job, 0))
        self.saw("tensorflow-cpu", "kill of the chief", "generation 2 of all roles restores")

    def test_callbacks(self):
        self.assert_callback("keras", metrics=("step_seconds",))
        self.assert_callback("tf_keras", metrics=("step_seconds",))
        self.saw("tensorflow-cpu keras tf-keras", "lockstep.keras.LockstepCallback with Keras 3 and tf_keras",
                 "every step of each rank")

    def test_workers_with_fit_measured_without_a_change(self):
        job = self.trains("tensorflow", "tf_fit.py", "--strategy", "multiworker", environment=frameworks.MEASURED)
        self.assert_losses(job, range(2), 32)
        self.saw("tensorflow-cpu tf-keras", "fit() of several workers with LOCKSTEP_PYTHON_HOOKS=measure",
                 "32 of 32 steps of each rank")


if __name__ == "__main__":
    frameworks.main()
