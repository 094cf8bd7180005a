"""Ray inside a job: framework ray, or `python -m lockstep.ray` as a command, starts head and workers."""

import json
import os
import re
import signal
import subprocess

import frameworks
import harness

# Rank 1 does not join: what rank 0 says of it, sooner than after five minutes.
ABSENT = """
import os, sys, time
import lockstep.ray
lockstep.ray.JOIN_SECONDS = 5.0
if os.environ["LOCKSTEP_RANK"] == "1":
    time.sleep(600)
sys.exit(lockstep.ray.main(["train.py"]))
"""

# The first start of rank 1's node fails, as one does that Ray has given up after half a minute.
SLOW = """
import os, subprocess, sys
import lockstep.ray
start, calls = lockstep.ray._start, []
def slow(*words):
    calls.append(words)
    return subprocess.Popen(["false"]) if len(calls) == 1 and os.environ["LOCKSTEP_RANK"] == "1" else start(*words)
lockstep.ray._start = slow
sys.exit(lockstep.ray.main(sys.argv[1:]))
"""


class Ray(frameworks.Framework):
    ENVIRONMENT = "ray"

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_head_and_worker(self):
        job = self.trains("ray", "ray_actors.py", nodes=2, ranks=1)
        self.assertIn("2 nodes, ", self.daemon.rank_log(job, 0))
        self.assert_losses(job, [0], 10)
        self.saw("ray", "framework ray: head and workers, actors", "2 × 1 ranks; the driver's loss")

    def test_as_a_command(self):
        job = self.trains("command", ["-m", "lockstep.ray", "--resources={\"big\": 1}", frameworks.PROGRAMS / "ray_actors.py"],
                          nodes=2, ranks=1)
        self.assertIn("2 nodes, ", self.daemon.rank_log(job, 0))
        self.saw("ray", "python -m lockstep.ray, with words for ray start", "2 × 1 ranks")

    def test_nothing_but_lockstep_run(self):
        # It took framework pytorch, whose store has the port that the head needs.
        for words, framework in ((["-m", "lockstep.ray"], "command"), ([], "ray")):
            self.daemon.cli("run", "-N", 2, "--", self.python(), *words, frameworks.PROGRAMS / "ray_actors.py",
                            seconds=frameworks.SECONDS)
            job = self.daemon.get("/v1/jobs?limit=1")["items"][0]
            self.assertEqual((job["framework"], job["name"]), (framework, "ray_actors"))
            self.assertIn("2 nodes, ", self.daemon.rank_log(self.ends(job["id"])["id"], 0))
        self.saw("ray", "lockstep run -N 2 -- python", "framework ray is guessed, or command of python -m lockstep.ray")

    def test_two_clusters_on_one_machine(self):
        jobs = [self.submit("ray", "ray_actors.py", nodes=1, ranks=1) for _ in range(2)]
        for job in jobs:
            self.ends(job)
            self.assertIn("1 nodes, ", self.daemon.rank_log(job, 0))
        self.saw("ray", "two jobs on one machine", "a cluster each, no port in common")

    def test_a_stranger_has_no_token(self):
        # Whoever reached the head's port could run code as the job's user.
        job = self.submit("ray", "ray_actors.py", "--steps", 1000000, nodes=1, ranks=1)
        self.daemon.wait_for(job, lambda one: one.get("step", 0) >= 2, frameworks.SECONDS, "it trains")
        address = re.search(r"RAY_ADDRESS (\S+)", self.daemon.rank_log(job)).group(1)
        stranger = subprocess.run([self.python(), "-c", f"import ray; ray.init(address='{address}'); print(ray.nodes())"],
                                  capture_output=True, text=True, timeout=120, check=False,
                                  env={"PATH": "/usr/bin:/bin", "HOME": str(self.root)})
        self.assertNotEqual(stranger.returncode, 0, stranger.stdout)
        self.assertIn("InvalidAuthToken", stranger.stderr)
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.ends(job, "cancelled")
        self.saw("ray", "somebody else at the head's port", "refused: the cluster has a token")

    @frameworks.on_slurm
    def test_a_node_that_does_not_join(self):
        cause = self.assert_culprit("command", ["-c", ABSENT], nodes=2, ranks=1, rank=0,
                                    text="1 of 2 nodes have not joined the head at ")
        self.assertRegex(cause["message"], r"within 5 s: rank 1 \(\S+\)")
        self.saw("ray", "a node that does not join", "named: its rank and host")

    def test_a_node_that_does_not_come_up_is_started_again(self):
        job = self.trains("command", ["-c", SLOW, frameworks.PROGRAMS / "ray_actors.py"], nodes=2, ranks=1)
        self.assertIn("ray start ended with 1 on node 1: started again, 2 of 3", self.daemon.rank_log(job, 1))
        self.saw("ray", "a node that Ray gives up while it starts", "started again")

    @frameworks.on_slurm
    def test_the_exception_of_an_actor(self):
        cause = self.assert_culprit("ray", "ray_actors.py", "--bad-data", 1, nodes=2, ranks=1, rank=0,
                                    text="RayTaskError(ValueError)")
        self.assertIn("image 17 of worker 1 is broken", cause["exception"]["traceback"])
        self.saw("ray", "exception of an actor", "the driver's rank, with the actor's words")

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_a_killed_node(self):
        job = self.assert_goes_on("ray", "ray_actors.py", "--steps", 60, nodes=2, ranks=1, after=2)
        self.assert_losses(job, [0])
        # A node of Ray that is told to end drained for half a minute, and was killed after ten seconds.
        logs = list((self.daemon.data / "runs" / job).rglob("agent-*.log"))
        self.assertTrue(logs)
        for log in logs:
            self.assertNotIn("did not end in time", log.read_text())
        self.saw("ray", "kill of a node's rank", "generation 2 is a new cluster; the script begins again")

    def test_fewer_nodes_and_all_again(self):
        """resources.min_nodes: a node is cut off (its agent frozen), and comes back; each time a cluster of what is there."""
        checkpoint = self.root / "weight"
        job = self.submit("ray", "ray_actors.py", "--checkpoint", checkpoint, "--steps", 1_000_000, "--pause", 0.1,
                          resources={"nodes": 3, "min_nodes": 2}, recovery={"grow_after_seconds": 1})

        def trains_on(generation, nodes):
            self.assertEqual(self.daemon.wait_generation(job, generation, frameworks.SECONDS)["nodes"], nodes)
            saved = harness.wait_until(lambda: checkpoint.exists() and json.loads(checkpoint.read_text())["nodes"] == nodes,
                                       frameworks.SECONDS, f"a checkpoint of {nodes} nodes")
            self.assertTrue(saved)

        trains_on(1, 3)
        agent = next(event["data"]["pid"] for event in self.daemon.events(job)
                     if event["kind"] == "agent_claimed" and event["data"]["node_rank"] == 1)
        os.kill(agent, signal.SIGSTOP)
        try:
            trains_on(2, 2)
        finally:
            os.kill(agent, signal.SIGCONT)
        trains_on(3, 3)
        log = self.daemon.rank_log(job, 0)
        self.assertRegex(log, r"resumed after step \d+ of 3 nodes")
        self.assertRegex(log, r"resumed after step \d+ of 2 nodes")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.ends(job, "cancelled")
        self.saw("ray", "min_nodes: 3 nodes, 2, 3 again", "a cluster of what is there each time; the script resumes from its own file")

    def test_more_than_one_rank_a_node(self):
        status, problem = self.daemon.api("POST", "/v1/jobs", {
            "name": "crowd", "framework": "ray", "command": ["python", "x.py"], "resources": {"ranks_per_node": 4}})
        self.assertEqual((status, problem["errors"][0]["pointer"]), (400, "/resources/ranks_per_node"), problem)


if __name__ == "__main__":
    frameworks.main()
