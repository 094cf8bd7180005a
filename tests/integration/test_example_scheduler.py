"""A scheduler of about 250 lines that nothing outside tests/ knows runs jobs in lockstepd as the others do."""

import pathlib
import signal

import harness

EXAMPLE = pathlib.Path(harness.BIN).parent / "tests" / "lockstepd_example"
SLEEP = "import time\nprint('rank up', flush=True)\ntime.sleep(600)\n"
# Agents that never claim their node: one ends at once, one writes down who it is and that it was asked to end.
ENDS = "#!/bin/sh\nexit 3\n"
STAYS = """#!/bin/sh
trap 'echo asked >>"$0.asked"' TERM
echo $$ >>"$0.pids"
while :; do sleep 0.1; done
"""


class ExampleDaemon(harness.Daemon):
    agent = harness.BIN / "lockstep-agent"

    def command(self):
        return [EXAMPLE, "--listen", "127.0.0.1:0", "--data-dir", self.data, "--agent-path", self.agent]


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

    def use_agent(self, text):
        self.daemon.agent = self.root / "agent"
        harness.write_whole(self.daemon.agent, text)
        self.daemon.agent.chmod(0o755)
        self.daemon.restart()

    def children(self):
        """State and name of each of lockstepd's."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                before, _, after = stat.read_text().rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if after.split()[1] == str(self.daemon.process.pid):
                found.append((after.split()[0], before.split("(", 1)[1]))
        return found

    def test_agents_that_end_before_they_claim_their_node_are_told_and_waited_for(self):
        self.use_agent(ENDS)
        job = self.daemon.submit(harness.command_job("ends", "true", resources={"nodes": 2, "ranks_per_node": 1}))["id"]
        self.assertEqual(self.daemon.wait_state(job, {"succeeded", "failed"})["state"], "failed")
        harness.wait_until(lambda: not self.children(), 10, "no agent is left, not even as a zombie")

    def test_agents_that_never_claim_their_node_are_ended_with_the_job(self):
        self.use_agent(STAYS)
        pids, asked = (self.daemon.agent.with_name(f"agent.{name}") for name in ("pids", "asked"))
        job = self.daemon.submit(harness.command_job("stays", "true", resources={"nodes": 2, "ranks_per_node": 1}))["id"]
        harness.wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 20, "both agents are there")
        self.daemon.cli("cancel", job)
        harness.wait_until(lambda: asked.exists() and len(asked.read_text().split()) == 2, 10, "both are asked to end")
        self.daemon.wait_state(job, {"cancelled"})
        harness.wait_until(lambda: not self.children(), 30, "who does not end is killed")
        self.assertEqual(len(pids.read_text().split()), 2, "each was started once")

    def test_other_children_of_lockstepd_can_be_waited_for(self):
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        ignored = int(status.split("SigIgn:")[1].split()[0], 16)
        self.assertFalse(ignored & 1 << signal.SIGCHLD - 1, "their ends would go to nobody")

    def test_a_job_goes_on_when_lockstepd_is_stopped(self):
        job = self.run_ranks()
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        self.assertEqual(self.daemon.job(job)["state"], "running")
        self.daemon.cli("cancel", job)
        self.assertEqual(self.daemon.wait_state(job, {"cancelled", "failed", "succeeded"})["state"], "cancelled")


if __name__ == "__main__":
    harness.main()
