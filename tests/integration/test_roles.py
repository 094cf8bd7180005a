"""Roles: the ranks that end the job, and the others, which are stopped then."""

import harness
from harness import FIXTURES, PYTHON

SCRIPT = str(FIXTURES / "servers_and_workers.py")
ROLES = [{"name": "ps", "count": 1}, {"name": "worker", "count": 3}]


class Roles(harness.TestCase):
    def job(self, *arguments, **fields):
        return harness.command_job("ps", PYTHON, SCRIPT, *arguments, roles=ROLES,
                                   resources={"nodes": 2, "ranks_per_node": 2}, **fields)

    def test_the_job_has_succeeded_when_its_workers_have_and_the_server_is_stopped(self):
        job = self.daemon.submit(self.job())
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertNotIn("cause", done)
        ranks = self.daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"]
        self.assertEqual([(r["role"], r["state"]) for r in ranks],
                         [("ps", "stopped")] + [("worker", "succeeded")] * 3)
        self.assertEqual(self.daemon.rank_log(job["id"], 0), "ps 0 serves\n")
        self.assertRegex(self.daemon.rank_log(job["id"], 3), r"worker 2 of 3 ends with (2\.[5-9]|3\.[0-6])",
                         "a gradient of another worker that comes late moves it by 0.6 at most")
        losses = self.daemon.series(job["id"])
        self.assertEqual(sorted(losses), [1, 2, 3])
        self.assertEqual(self.daemon.get(f"/v1/jobs/{job['id']}/spec")["roles"],
                         [{"name": "ps", "count": 1, "ends_job": False},
                          {"name": "worker", "count": 3, "ends_job": True}])

    def test_a_worker_that_fails_is_the_cause_and_the_server_its_echo(self):
        job = self.daemon.submit(self.job("1"))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual((done["cause"]["rank"], done["cause"]["exit_code"]), (2, 9))

    def test_a_restart_of_the_daemon_changes_nothing(self):
        job = self.daemon.submit(harness.command_job(
            "ps", "/bin/sh", "-c", '[ $LOCKSTEP_ROLE = ps ] && exec sleep 600; '
            'until [ -e go ]; do sleep 0.02; done', roles=ROLES,
            working_directory=str(self.root), resources={"nodes": 2, "ranks_per_node": 2}))
        self.daemon.wait_state(job["id"], "running")
        self.daemon.restart()
        (self.root / "go").touch()
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)

    def test_a_cancel_is_a_cancel_with_roles_too(self):
        job = self.daemon.submit(harness.command_job(
            "ps", "/bin/sleep", "600", roles=ROLES, resources={"nodes": 2, "ranks_per_node": 2}))
        self.daemon.wait_state(job["id"], "running")
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job['id']}/cancel")[0], 200)
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL)["state"], "cancelled")

    def test_wrong_roles_are_refused_by_name(self):
        for framework in ("pytorch", "jax", "accelerate", "deepspeed", "lightning"):
            answer = self.daemon.api("POST", "/v1/jobs", {
                "name": "a", "framework": framework, "command": ["x"], "roles": ROLES,
                "resources": {"ranks_per_node": 4}})
            self.assert_problem(answer, 400, "/roles/0/name", f"framework {framework} has no such role")


if __name__ == "__main__":
    harness.main()
