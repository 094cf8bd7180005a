"""`lockstep checkpoint` and the signal before the time limit reach only ranks that catch it: an
unprepared job must survive both. Real processes; the time limit is told to the agent as Slurm does."""

import os
import signal
import sys
import time

import harness

UNPREPARED = """
import pathlib, sys, time
print("ready", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("alive at the end", flush=True)
"""

# Asks once a turn, as a training loop would; forks children as a data loader does.
ASKING = """
import multiprocessing, os, pathlib, sys, time
import lockstep
end, late = pathlib.Path(sys.argv[1]), sys.argv[2] == "late"
def work(seconds):
    time.sleep(seconds)
if late:
    print("importing", flush=True)
    while not pathlib.Path(sys.argv[3]).exists():
        time.sleep(0.02)
assert not lockstep.checkpoint_requested()
child = multiprocessing.get_context("fork").Process(target=work, args=(600,), daemon=True)
child.start()
print("ready", flush=True)
asked = 0
while not end.exists():
    if lockstep.checkpoint_requested():
        asked += 1
        print(f"asked {asked} worker {'lives' if child.is_alive() else 'died'}", flush=True)
    time.sleep(0.02)
child.terminate()
"""


class CheckpointRequestTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.end = self.root / "end"

    def script(self, text):
        path = self.root / "script.py"
        path.write_text(text, encoding="utf-8")
        return path

    def run_script(self, text, *arguments, nodes=2, **fields):
        job = self.daemon.submit(harness.command_job("asked", sys.executable, self.script(text), self.end, *arguments,
                                                     resources={"nodes": nodes, "ranks_per_node": 1}, **fields))["id"]
        self.daemon.wait_state(job, "running")
        return job

    def wait_logs(self, job, text, ranks=2):
        logs = lambda: [self.daemon.rank_log(job, rank) for rank in range(ranks)]
        harness.wait_until(lambda: all(text in log for log in logs()), 20, f"{text!r} of every rank")
        return logs()

    def finish(self, job):
        self.end.touch()
        done = self.daemon.wait_state(job, harness.FINAL, 30)
        self.assertEqual(done["state"], "succeeded", done)
        return done

    def requests(self, job):
        return [e for e in self.daemon.events(job) if e["kind"] == "checkpoint_requested"]

    def agent_pids(self, job):
        return [e["data"]["pid"] for e in self.daemon.events(job) if e["kind"] == "agent_claimed"]

    def test_a_job_that_does_not_catch_the_signal_is_refused_and_lives(self):
        job = self.run_script(UNPREPARED)
        self.wait_logs(job, "ready")
        status, answer = self.daemon.api("POST", f"/v1/jobs/{job}/checkpoint")
        self.assertEqual(status, 409, answer)
        self.assertRegex(answer["detail"], r"^rank [01] on \S+: does not catch SIGUSR2; it would end the rank")
        self.assertIn("rank", self.daemon.cli("checkpoint", job, check=False).stderr)
        self.assertEqual(self.requests(job), [])
        self.finish(job)
        self.assertIn("alive at the end", self.daemon.rank_log(job, 0))

    def test_the_time_limit_does_not_end_a_job_that_does_not_catch_the_signal(self):
        job = self.run_script(UNPREPARED)
        self.wait_logs(job, "ready")
        for pid in self.agent_pids(job):
            os.kill(pid, signal.SIGURG)
        found = harness.wait_until(lambda: len(self.requests(job)) == 2 and self.requests(job), 20, "both are told of")
        self.assertEqual({e["data"]["by"] for e in found}, {"time limit"})
        self.assertEqual({e["rank"] for e in found}, {0, 1})
        self.assertIn("does not catch SIGUSR2", found[0]["data"]["message"])
        self.finish(job)

    def test_checkpoint_requested_answers_once_for_each_request(self):
        job = self.run_script(ASKING, "now")
        self.wait_logs(job, "ready")
        self.assertEqual(self.daemon.cli("checkpoint", job).stdout, f"{job}  its ranks have been asked for a checkpoint\n")
        self.wait_logs(job, "asked 1 worker lives")
        for pid in self.agent_pids(job):
            os.kill(pid, signal.SIGURG)
        logs = self.wait_logs(job, "asked 2 worker lives")
        self.assertNotIn("asked 3", "".join(logs))
        self.assertEqual([(e["data"]["by"], e["data"]["signal"]) for e in self.requests(job)][0][1], "USR2")
        self.assertEqual(sorted(e["data"]["by"] for e in self.requests(job)),
                         sorted([self.daemon.api("GET", "/v1/whoami")[1]["user"], "time limit"]))
        self.finish(job)

    def test_a_rank_that_is_still_starting_is_asked_once_it_listens(self):
        go = self.root / "go"
        job = self.run_script(ASKING, "late", go)
        self.wait_logs(job, "importing")
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/checkpoint")[0], 409)
        for pid in self.agent_pids(job):
            os.kill(pid, signal.SIGURG)
        harness.wait_until(lambda: self.requests(job), 20, "the time limit is told of")
        go.touch()
        self.wait_logs(job, "asked 1 worker lives")
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/checkpoint")[0], 200)
        self.wait_logs(job, "asked 2 worker lives")
        self.finish(job)

    def test_a_signal_that_the_job_names_is_sent_whatever_catches_it(self):
        job = self.run_script(UNPREPARED, nodes=1, checkpoint={"signal": "USR2"})
        self.wait_logs(job, "ready", 1)
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/checkpoint")[0], 200)
        done = self.daemon.wait_state(job, harness.FINAL, 30)
        self.assertEqual((done["state"], done["cause"]["signal"]), ("failed", signal.SIGUSR2), done)
        self.assertEqual(len(self.requests(job)), 1)

    def test_the_children_of_a_launcher_are_asked_not_the_launcher(self):
        launcher = ("import subprocess, sys\n"
                    "children = [subprocess.Popen([sys.executable, *sys.argv[1:]]) for _ in range(2)]\n"
                    "sys.exit(max(child.wait() for child in children))\n")
        path = self.root / "launcher.py"
        path.write_text(launcher, encoding="utf-8")
        job = self.daemon.submit(harness.command_job(
            "launched", sys.executable, path, self.script(ASKING), self.end, "now", launch="node",
            resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        self.daemon.wait_state(job, "running")
        harness.wait_until(lambda: self.daemon.rank_log(job, 0).count("ready") == 2, 20, "both children are ready")
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/checkpoint")[0], 200)
        harness.wait_until(lambda: self.daemon.rank_log(job, 0).count("asked 1 worker lives") == 2, 20, "both were asked")
        self.finish(job)


if __name__ == "__main__":
    harness.main()
