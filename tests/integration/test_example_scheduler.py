"""A scheduler of 200 lines that nothing outside tests/ knows runs jobs in lockstepd as the others do."""

import pathlib

import harness

EXAMPLE = pathlib.Path(harness.BIN).parent / "tests" / "lockstepd_example"
SLEEP = "import time\nprint('rank up', flush=True)\ntime.sleep(600)\n"


class ExampleDaemon(harness.Daemon):
    def command(self):
        return [EXAMPLE, "--listen", "127.0.0.1:0", "--data-dir", self.data,
                "--agent-path", harness.BIN / "lockstep-agent"]


class ExampleScheduler(harness.TestCase):
    DAEMON = ExampleDaemon

    def run_ranks(self, **fields):
        spec = harness.command_job("ranks", "python3", "-c", SLEEP, resources={"nodes": 2, "ranks_per_node": 2}, **fields)
        job = self.daemon.submit(spec)["id"]
        self.daemon.wait_state(job, {"running"})
        harness.wait_until(lambda: all("rank up" in self.daemon.rank_log(job, rank) for rank in range(4)),
                           30, "four ranks are up")
        return job

    def test_trains_on_two_nodes_and_names_them(self):
        job = self.daemon.submit(harness.small_native_job(nodes=2, ranks_per_node=1))["id"]
        done = self.daemon.wait_state(job, {"succeeded", "failed"})
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(done["attempts"][0]["nodes"], ["example0", "example1"])
        self.assertTrue(done["attempts"][0]["scheduler_id"].startswith("example-"), done)
        self.assertEqual(self.daemon.get("/v1/cluster")["scheduler"], "example")

    def test_a_job_goes_on_under_the_next_daemon_and_is_cancelled_there(self):
        job = self.run_ranks()
        self.daemon.restart()
        self.assertEqual(self.daemon.job(job)["state"], "running")
        self.daemon.cli("cancel", job)
        done = self.daemon.wait_state(job, {"cancelled", "failed", "succeeded"})
        self.assertEqual(done["state"], "cancelled")
        self.assertEqual(len(done["attempts"]), 1)

    def test_what_never_runs_there_is_refused_and_a_script_is_not_there(self):
        spec = harness.command_job("gpus", "true", resources={"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 1})
        answer = self.daemon.api("POST", "/v1/jobs", spec)
        self.assert_problem(answer, 400, "/resources/gpus_per_node", "there are none here")
        job = self.run_ranks()
        answer = self.daemon.api("GET", f"/v1/jobs/{job}/script")
        self.assert_problem(answer, 404, text="the example scheduler uses no batch script")
        self.daemon.cli("cancel", job)
        self.daemon.wait_state(job, {"cancelled"})


if __name__ == "__main__":
    harness.main()
