"""Every framework: what its ranks are told holds on real agents and ports. tests/frameworks has the frameworks."""

import unittest

import harness
from harness import FIXTURES, PYTHON

TWO_BY_TWO = {"nodes": 2, "ranks_per_node": 2}


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


if __name__ == "__main__":
    unittest.main(verbosity=2)
