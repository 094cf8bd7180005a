"""Every framework: what its ranks are told holds on real agents and ports, and where the framework can
be imported an ordinary script of it trains. What is not installed is skipped aloud."""

import re
import unittest

import harness
from harness import FIXTURES, PYTHON

TWO_BY_TWO = {"nodes": 2, "ranks_per_node": 2}
SCRIPTS = FIXTURES / "frameworks"


class Told(harness.TestCase):
    """Each rank listens at the address that it is told is its own, and calls every other."""

    def meet(self, framework, form, **fields):
        job = self.daemon.submit({
            "name": "meet", "framework": framework, "resources": TWO_BY_TWO,
            "command": [PYTHON, str(FIXTURES / "endpoints.py"), form], **fields})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 120)
        self.assertEqual(done["state"], "succeeded", done)
        logs = [self.daemon.rank_log(job["id"], rank) for rank in range(4)]
        for log in logs:
            self.assertIn("has met 3", log)
        return logs

    def test_tensorflow_workers(self):
        self.assertEqual([log.splitlines()[0] for log in self.meet("tensorflow", "tensorflow")],
                         [f"task worker {rank}" for rank in range(4)])

    def test_tensorflow_with_servers(self):
        roles = [{"name": "chief", "count": 1}, {"name": "ps", "count": 1}, {"name": "worker", "count": 2}]
        for role in roles:
            role["ends_job"] = True
        self.assertEqual([log.splitlines()[0] for log in
                          self.meet("tensorflow", "tensorflow", roles=roles)],
                         ["task chief 0", "task ps 0", "task worker 0", "task worker 1"])

    def test_keras_on_tensorflow_and_on_jax(self):
        self.meet("keras", "tensorflow")
        self.meet("keras", "keras_jax", environment={"KERAS_BACKEND": "jax"})

    def test_paddle_collective(self):
        self.meet("paddle", "paddle")

    def test_paddle_servers(self):
        self.meet("paddle", "paddle_servers", roles=[
            {"name": "ps", "count": 2, "ends_job": True}, {"name": "worker", "count": 2}])

    def test_two_jobs_at_a_time_share_no_port(self):
        jobs = [self.daemon.submit({
            "name": "meet", "framework": "paddle", "resources": TWO_BY_TWO,
            "command": [PYTHON, str(FIXTURES / "endpoints.py"), "paddle"]}) for _ in range(2)]
        for job in jobs:
            self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 120)["state"], "succeeded")


class Real(harness.TestCase):
    """What is printed as `loss is: [x]` is seen; the last one is smaller than the first."""

    def train(self, framework, module, script, ranks=(0, 1, 2, 3), resources=None, **fields):
        if not harness.has_module(module):
            self.skipTest(f"{framework}: no module {module} for {PYTHON}")
        job = self.daemon.submit({
            "name": framework, "framework": framework, "resources": resources or TWO_BY_TWO,
            "command": [PYTHON, str(SCRIPTS / script)], **fields})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 300)
        self.assertEqual(done["state"], "succeeded", done)
        losses = self.daemon.series(job["id"])
        self.assertEqual(sorted(losses), list(ranks))
        for points in losses.values():
            self.assertLess(points[-1][3], points[0][3])
        return job["id"]

    def test_lightning(self):
        self.train("lightning", "lightning", "lightning_fit.py")

    def test_accelerate(self):
        self.train("accelerate", "accelerate", "accelerate_fit.py")

    def test_deepspeed(self):
        self.train("deepspeed", "deepspeed", "deepspeed_fit.py")

    def test_keras_on_torch(self):
        if not harness.has_module("torch"):
            self.skipTest("keras: no module torch")
        self.train("keras", "keras", "keras_torch.py", environment={"KERAS_BACKEND": "torch"})

    def test_tensorflow_workers(self):
        self.train("tensorflow", "tensorflow", "tensorflow_fit.py", ranks=(0, 1),
                   resources={"nodes": 2, "ranks_per_node": 1})

    def test_tensorflow_with_servers(self):
        self.train("tensorflow", "tensorflow", "tensorflow_fit.py", ranks=(0,), roles=[
            {"name": "chief", "count": 1}, {"name": "ps", "count": 1}, {"name": "worker", "count": 2}])

    def test_paddle_collective(self):
        self.train("paddle", "paddle", "paddle_fit.py", ranks=(0, 1),
                   resources={"nodes": 2, "ranks_per_node": 1})

    def test_paddle_launch_as_the_user_s_command(self):
        if not harness.has_module("paddle"):
            self.skipTest(f"paddle: no module paddle for {PYTHON}")
        job = self.daemon.submit({
            "name": "launch", "framework": "paddle", "launch": "node", "resources": TWO_BY_TWO,
            "command": [PYTHON, "-m", "paddle.distributed.launch", str(SCRIPTS / "paddle_fit.py")]})
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 300)["state"], "succeeded")

    def test_accelerate_launch_as_the_user_s_command(self):
        if not harness.has_module("accelerate"):
            self.skipTest(f"accelerate: no module accelerate for {PYTHON}")
        job = self.daemon.submit({
            "name": "launch", "framework": "accelerate", "launch": "node", "resources": TWO_BY_TWO,
            # With --cpu its launcher starts one process (or mpirun); so torch's launcher and the variable.
            "environment": {"ACCELERATE_USE_CPU": "true"},
            "command": [PYTHON, "-m", "accelerate.commands.launch", "--multi_gpu",
                        "--num_machines", "2", "--num_processes", "{world_size}",
                        "--machine_rank", "{node_rank}", "--main_process_ip", "{master_addr}",
                        "--main_process_port", "{master_port}", str(SCRIPTS / "accelerate_fit.py")]})
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 300)["state"], "succeeded")

    def test_jax(self):
        if not harness.has_module("jax"):
            self.skipTest(f"jax: no module jax for {PYTHON}")
        job = self.daemon.submit({
            "name": "jax", "framework": "jax", "resources": TWO_BY_TWO,
            "environment": {"JAX_PLATFORMS": "cpu"},  # where there are GPUs, there may be fewer than 4
            "command": [PYTHON, str(SCRIPTS / "jax_gather.py")]})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 300)
        self.assertEqual(done["state"], "succeeded", done)
        for rank in range(4):
            self.assertTrue(re.search(rf"^{rank} of 4: \[0, 1, 2, 3\]$",
                                      self.daemon.rank_log(job["id"], rank), re.M))


if __name__ == "__main__":
    unittest.main(verbosity=2)
