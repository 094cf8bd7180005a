"""JAX over several processes, and Keras on JAX."""

import pathlib
import tempfile
import threading

import frameworks
import harness

OWN = """
import glob, gzip, json, os, tempfile
import jax, jax.numpy as jnp
rank = os.environ["LOCKSTEP_RANK"]
step = jax.jit(lambda w: w - 0.1 * jnp.tanh(w @ w))
w = jnp.ones((32, 32))
def records(more):
    global w
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder)
        while True:
            w = step(w).block_until_ready()
            if not more():
                break
        jax.profiler.stop_trace()
        [path] = glob.glob(folder + "/plugins/profile/*/*.trace.json.gz")
        with gzip.open(path) as file:
            names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
        assert any(name.startswith("PjitFunction") for name in names), names
        open("own." + rank, "a").write(".")
step(w)
open("begun." + rank, "w").close()
def first():
    import time; time.sleep(0.05)
    return not os.path.exists("first")
records(first)
while not os.path.exists("stop"):
    for _ in range(1000):
        w = step(w).block_until_ready()
    records(lambda: False)
"""

ENDS = """
import os
import jax, jax.numpy as jnp
step = jax.jit(lambda w: w - 0.1 * jnp.tanh(w @ w))
w = step(jnp.ones((32, 32)))
with open("begun.new", "w") as file:
    file.write(os.environ["LOCKSTEP_SOCKET"])
os.rename("begun.new", "begun")
while not os.path.exists("stop"):
    w = step(w).block_until_ready()
"""


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

    def test_a_profile(self):
        job = self.submit("jax", "jax_dp.py", "--steps", 1_000_000)
        harness.wait_until(lambda: self.daemon.series(job), frameworks.SECONDS, "it makes steps")
        said, recorded = self.profile(job)
        for names, table, stacks in recorded:
            self.assertIn("PjitFunction(train_step)", names, said)
            self.assertTrue(any(name.startswith("all-reduce") for name in names), sorted(names))
            self.assertRegex(table, r"(?m)^Operations of compiled programs, \d+\.\d\d s$")
            self.assertRegex(table, r"(?m)^\S+ \(jit_train_step\) +\d+\.\d{3} +\d+\.\d% +\d+\.\d{3} +\d+ +\d+\.\d$")
            self.assertIn("jax_dp.py:", stacks)
        self.assert_trains_on(job)
        self.daemon.cli("cancel", job)
        self.saw("jax", "lockstep profile", "stacks, trace with the compiled programs' operations, and table of 2 ranks")

    def test_a_script_that_profiles_itself(self):
        self.assert_own_profile("jax", OWN)
        self.saw("jax", "lockstep profile of a script that profiles itself", "ours is not begun, or ends; its own are whole")

    def test_a_script_that_ends_while_it_is_profiled(self):
        # What XLA's profiler does in C++ must be over before the interpreter is taken down.
        for name in ("ask", "stacks.txt", "jax"):
            work = pathlib.Path(tempfile.mkdtemp(dir=self.root))
            (work / "train.py").write_text(ENDS)
            job = self.submit("jax", [work / "train.py"], ranks=1, working_directory=str(work))
            harness.wait_until((work / "begun").exists, frameworks.SECONDS, "it trains")
            asking = threading.Thread(target=lambda asked=job: self.daemon.cli(
                "profile", asked, "--seconds", "1", "--output", self.root / "profile", seconds=200, check=False))
            asking.start()
            self.addCleanup(asking.join)
            folder = pathlib.Path((work / "begun").read_text()).parent
            harness.wait_until(lambda at=folder, what=name: any(at.glob(f"profile.*.{what}*")), 60, f"{name} is there")
            (work / "stop").touch()
            self.ends(job)
            asking.join()
        self.saw("jax", "end of a script while it is profiled", "it succeeds")

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
