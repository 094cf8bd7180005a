"""Cancelling: running, waiting and finished jobs; nothing of the job is left."""

import contextlib
import threading

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

    def test_ranks_that_end_well_when_asked_to_stop_are_still_a_cancelled_job(self):
        polite = "trap 'echo asked to stop; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        job = self.daemon.submit(harness.command_job("polite", "/bin/sh", "-c", polite,
                                                     resources={"nodes": 2, "ranks_per_node": 1}))
        self.daemon.wait_state(job["id"], "running")
        for rank in (0, 1):
            harness.wait_until(lambda r=rank: "ready" in self.daemon.rank_log(job["id"], r), 20, "its trap is set")
        self.assertIn(self.cancel(job["id"])[0], (200, 202))
        done = self.daemon.wait_state(job["id"], harness.FINAL, 40)
        self.assertEqual(done["state"], "cancelled", done)
        self.assertEqual(done["cause"]["class"], "cancelled_by_user")
        for rank in self.daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"]:
            self.assertEqual(rank["exit_code"], 0, "it did end well")
            self.assertIn("asked to stop", self.daemon.rank_log(job["id"], rank["rank"]))

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


class CancelInTheQueue(harness.TestCase):
    """One job holds all memory, another waits for it, is cancelled, and must never start; whenever
    the daemon is killed, and although there is room for all when it is back."""

    DAEMON_ARGUMENTS = ("--local-cores", "64", "--local-memory-mb", "1000")

    def setUp(self):
        super().setUp()
        gate = f"until [ -e {self.root}/go ]; do sleep 0.05; done"
        self.holder = self.submit("holder", "/bin/sh", "-c", gate)
        self.daemon.wait_state(self.holder, "running")
        self.waiting = self.submit("waiting", "/bin/sh", "-c", f"touch {self.root}/started")
        self.daemon.wait_for(self.waiting, lambda j: "memory" in j.get("pending_reason", ""), what="it waits")

    def submit(self, name, *argv):
        return self.daemon.submit(harness.command_job(name, *argv, resources={"memory_mb_per_node": 1000}))["id"]

    def cancel(self):
        self.assertIn(self.daemon.api("POST", f"/v1/jobs/{self.waiting}/cancel")[0], (200, 202))

    def start_with_room(self):
        self.daemon.arguments = ("--local-cores", "64", "--local-memory-mb", "64000")
        self.daemon.start()

    def traces(self, job_id):
        """Files that an agent makes."""
        attempt = self.daemon.data / "runs" / job_id / "a1"
        return [file for trace in ("*.claim*", "agent-*", "rank-*", "*.result.json") for file in attempt.glob(trace)]

    def check_never_started(self):
        done = self.daemon.wait_state(self.waiting, harness.FINAL, 30)
        self.assertEqual(done["state"], "cancelled", done)
        self.assertEqual(done["cause"]["class"], "cancelled_by_user")
        (self.root / "go").touch()
        self.assertEqual(self.daemon.wait_state(self.holder, harness.FINAL, 40)["state"], "succeeded")
        # First come, first served: what comes later has run, so the other one's turn is over.
        later = self.submit("later", "/bin/true")
        self.assertEqual(self.daemon.wait_state(later, harness.FINAL, 30)["state"], "succeeded")
        self.assertEqual(self.daemon.job(self.waiting)["state"], "cancelled")
        self.assertEqual(self.traces(self.waiting), [], "an agent was started")
        self.assertFalse((self.root / "started").exists())
        self.assertNotEqual(self.traces(later), [])

    def test_killed_while_many_are_being_cancelled(self):
        # Some cancels are stored when the daemon dies, and what they ask for is not done yet.
        jobs = [self.waiting] + [self.submit(f"waiting-{i:02}", "/bin/true") for i in range(23)]
        for job in jobs:
            self.daemon.wait_for(job, lambda j: "memory" in j.get("pending_reason", ""), what="it waits")
        answered = set()
        first = threading.Event()

        def cancel(mine):
            with contextlib.suppress(harness.Unreachable):
                for job in mine:
                    if self.daemon.api("POST", f"/v1/jobs/{job}/cancel")[0] in (200, 202):
                        answered.add(job)
                        first.set()

        clients = [threading.Thread(target=cancel, args=(jobs[i::8],)) for i in range(8)]
        for client in clients:
            client.start()
        self.assertTrue(first.wait(20))
        self.daemon.kill9()
        for client in clients:
            client.join()
        self.start_with_room()
        for job in jobs:
            done = self.daemon.wait_state(job, harness.FINAL, 60)
            if done["state"] == "cancelled":  # asked for while it waited, whether answered or not
                self.assertEqual(self.traces(job), [], "an agent was started")
            else:
                self.assertEqual(done["state"], "succeeded", done)
                self.assertNotIn(job, answered)

    def test_killed_at_once_after_the_cancel(self):
        self.cancel()
        self.daemon.kill9()
        self.start_with_room()
        self.check_never_started()

    def test_killed_when_the_job_is_cancelled(self):
        self.cancel()
        self.daemon.wait_state(self.waiting, "cancelled", 20)
        self.daemon.kill9()
        self.start_with_room()
        self.check_never_started()

    def test_killed_before_the_cancel(self):
        self.daemon.restart()
        self.cancel()
        self.check_never_started()

    def test_killed_before_and_after_the_cancel(self):
        self.daemon.restart()
        self.cancel()
        self.daemon.kill9()
        self.start_with_room()
        self.check_never_started()


if __name__ == "__main__":
    harness.main()
