"""Memory is never oversubscribed: what does not fit waits and says for what; what never fits is refused."""

import harness

MEMORY = 1000  # MiB the local scheduler hands out


class Queue(harness.TestCase):
    DAEMON_ARGUMENTS = ("--local-memory-mb", str(MEMORY))

    def holder(self, name, memory):
        return harness.command_job(name, "/bin/sleep", "1000", resources={"memory_mb_per_node": memory})

    def test_the_second_job_waits_for_memory_and_runs_when_the_first_is_gone(self):
        first = self.daemon.submit(self.holder("first", 600))["id"]
        self.daemon.wait_state(first, "running")
        second = self.daemon.submit(self.holder("second", 600))["id"]
        waiting = self.daemon.wait_for(second, lambda j: "memory" in j.get("pending_reason", ""),
                                       what="it says that it waits for memory")
        self.assertIn(waiting["state"], ("accepted", "queued"))
        self.assertEqual(self.daemon.job(first)["state"], "running")
        # A restart forgets neither who runs nor who waits.
        self.daemon.restart()
        self.daemon.wait_for(second, lambda j: "memory" in j.get("pending_reason", ""), what="it still waits")
        self.assertEqual(self.daemon.wait_state(first, "running")["attempts"][0]["number"], 1)
        self.daemon.api("POST", f"/v1/jobs/{first}/cancel")
        self.daemon.wait_state(second, "running", 40)
        self.assertEqual(self.daemon.job(first)["state"], "cancelled")
        self.daemon.api("POST", f"/v1/jobs/{second}/cancel")
        self.daemon.wait_state(second, "cancelled", 40)

    def test_a_waiting_job_can_be_cancelled(self):
        first = self.daemon.submit(self.holder("first", 600))["id"]
        second = self.daemon.submit(self.holder("second", 600))["id"]
        self.daemon.wait_for(second, lambda j: "memory" in j.get("pending_reason", ""), what="it waits")
        self.daemon.api("POST", f"/v1/jobs/{second}/cancel")
        self.daemon.wait_state(second, "cancelled", 20)
        self.assertIn(self.daemon.job(first)["state"], ("starting", "running"))

    def test_what_can_never_fit_is_refused_with_the_field(self):
        answer = self.daemon.api("POST", "/v1/jobs", self.holder("huge", MEMORY + 1))
        self.assert_problem(answer, 400, "/resources/memory_mb_per_node")


if __name__ == "__main__":
    harness.main()
