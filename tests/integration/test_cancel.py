"""Cancelling: running, waiting and finished jobs; nothing of the job is left."""

import harness

SLEEPER = ("/bin/sh", "-c", "echo started; exec sleep 1000")


class Cancel(harness.TestCase):
    def cancel(self, job_id):
        return self.daemon.api("POST", f"/v1/jobs/{job_id}/cancel")

    def test_a_running_job_ends_as_cancelled_and_leaves_no_process(self):
        job = self.daemon.submit(harness.command_job("long", *SLEEPER,
                                                     resources={"nodes": 2, "ranks_per_node": 2}))
        self.daemon.wait_state(job["id"], "running")
        status, answer = self.cancel(job["id"])
        self.assertIn(status, (200, 202))
        self.assertEqual(answer["id"], job["id"])
        self.assertIn(self.cancel(job["id"])[0], (200, 202), "cancelling twice is cancelling once")
        done = self.daemon.wait_state(job["id"], harness.FINAL, 40)
        self.assertEqual(done["state"], "cancelled")
        self.assertEqual(done["cause"]["class"], "cancelled_by_user")
        harness.wait_until(lambda: not harness.processes_with(f"runs/{job['id']}"), 20, "its agents are gone")
        for rank in self.daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"]:
            self.assertNotEqual(rank["state"], "running")

    def test_the_command_line_cancels(self):
        job = self.daemon.submit(harness.command_job("long", *SLEEPER))
        self.daemon.wait_state(job["id"], "running")
        self.daemon.cli("cancel", job["id"])
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 40)["state"], "cancelled")

    def test_cancelling_a_finished_job_changes_nothing(self):
        job = self.daemon.submit(harness.command_job("short", "/bin/true"))
        self.daemon.wait_state(job["id"], "succeeded")
        self.assertIn(self.cancel(job["id"])[0], (200, 202, 409))
        self.assertEqual(self.daemon.job(job["id"])["state"], "succeeded")

    def test_cancelling_a_job_that_is_not_there(self):
        self.assert_problem(self.cancel("ls-00000000000000000000000000"), 404)

    def test_a_cancel_survives_a_crash_of_the_daemon(self):
        job = self.daemon.submit(harness.command_job("long", *SLEEPER))
        self.daemon.wait_state(job["id"], "running")
        self.assertIn(self.cancel(job["id"])[0], (200, 202))
        self.daemon.restart()
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 40)["state"], "cancelled")


if __name__ == "__main__":
    harness.main()
