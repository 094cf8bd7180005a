"""Ranks, agents and nodes are lost on a real Slurm, and the job goes on: in the same allocation where
that is possible, in another one where not. Prints how long each took, from the fault to the moment when
every rank had been started again."""

import datetime
import os
import signal
import time

import harness
from harness import FIXTURES, PYTHON, PYTHON_PACKAGE
from lockstep_slurm import SlurmTestCase, main


class RecoveryCase(SlurmTestCase):
    settings = {"nodes": 3, "quick_loss": True}  # a node that was cut off is to come back

    def setUp(self):
        super().setUp()
        self.folder = self.daemon.root / "run"
        self.folder.mkdir()

    def submit(self, how, *, nodes, ranks_per_node=2, steps=100, rank=1, step=23, times=1, spares=0, **more):
        resources = {"nodes": nodes, "ranks_per_node": ranks_per_node, "time_limit": "00:10:00",
                     **more.pop("resources", {})}
        if spares:
            resources["spares"] = spares
        return self.daemon.submit({
            "name": "recovers", "framework": "command",
            "command": [PYTHON, *map(str, (FIXTURES / "fail_once.py", self.folder, steps, rank, step, how, times))],
            "environment": {"PYTHONPATH": str(PYTHON_PACKAGE)}, "resources": resources, "recovery": {},
            **more})["id"]

    def wait_step(self, job, step):
        self.daemon.wait_for(job, lambda one: one.get("step", 0) >= step, 90, f"step {step}")

    def wait_spare(self, job, nodes):
        self.daemon.wait_for(job, lambda one: one["attempts"] and len(one["attempts"][0]["nodes"]) == nodes,
                             60, "the spare has called in")

    def ended(self, job, seconds=150):
        done = self.daemon.wait_state(job, harness.FINAL, seconds)
        self.assertEqual(done["state"], "succeeded", done)
        seen = {}
        for line in (self.folder / "starts").read_text().splitlines():
            rank, attempt, generation, _, first = map(int, line.split())
            seen.setdefault((attempt, generation), []).append((rank, first))
        world = len(self.daemon.get(f"/v1/jobs/{job}/ranks")["items"])
        for key, ranks in seen.items():
            self.assertEqual(sorted(rank for rank, _ in ranks), list(range(world)), f"{key}: {ranks}")
            self.assertEqual(len({first for _, first in ranks}), 1, f"{key}: {ranks}")
        return done

    def causes(self, job):
        return [[g.get("cause", {}).get("class") for g in a["generations"]] for a in job["attempts"]]

    def running_again(self, job, generations, attempt=1):
        """When every rank of the attempt's newest generation had been started, by the daemon's clock."""
        def there(one):
            if len(one["attempts"]) < attempt:
                return None
            mine = one["attempts"][attempt - 1]["generations"]
            return len(mine) >= generations and mine[generations - 1].get("running_at")
        self.daemon.wait_for(job, there, 150, "running again")
        started = [e for e in self.daemon.events(job) if e["kind"] == "ranks_started" and
                   (e["attempt"], e["generation"]) == (attempt, generations)]
        return self.unix(started[-1]["time"])

    @staticmethod
    def unix(text):
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

    def say(self, fault, verdict, seconds):
        print(f"\n  {fault}: {verdict}; every rank started again after {seconds:.2f} s", flush=True)

    def agent(self, node):
        """The agent's process on a host: it has its host's network."""
        found = [pid for pid in self.cluster.network.pids(node)
                 if self.is_agent(pid)]
        self.assertEqual(len(found), 1, found)
        return found[0]

    @staticmethod
    def is_agent(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            return False
        return words[0].endswith(b"lockstep-agent") and b"run" in words[:2]


class InTheSameAllocation(RecoveryCase):
    def test_one_of_sixteen_ranks_is_killed(self):
        job = self.submit("kill", nodes=2, ranks_per_node=8, rank=9)
        again = self.running_again(job, 2)
        fault = float((self.folder / "accidents").read_text())
        done = self.ended(job)
        self.assertEqual(self.causes(done), [["rank_signal", None]])
        cause = done["attempts"][0]["generations"][0]["cause"]
        self.assertEqual((cause["rank"], cause["node"], cause["signal"]), (9, "n2", 9))
        self.say("SIGKILL of 1 of 16 ranks", cause["message"], again - fault)
        self.wait_slurm(job, "COMPLETED")

    def test_a_spare_takes_over_when_a_cable_is_pulled(self):
        job = self.submit("exit", nodes=2, spares=1, times=0, steps=400)
        self.wait_spare(job, 3)
        self.wait_step(job, 12)
        lost = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"][-1]["node"]
        fault = time.time()
        self.cluster.cut(lost)
        try:
            again = self.running_again(job, 2)
            done = self.ended(job)
        finally:
            self.cluster.join(lost)
            self.cluster.kill_slurmd(lost)  # one that is DOWN is asked only every 40 s
            self.cluster.start_slurmd(lost)
        self.assertEqual(self.causes(done), [["node_lost", None]])
        self.assertEqual(done["attempts"][0]["lost_nodes"], [lost])
        self.say("cable of a node pulled, a spare waits",
                 done["attempts"][0]["generations"][0]["cause"]["message"], again - fault)

    def test_a_stopped_rank_is_a_hang(self):
        job = self.submit("stop", nodes=2, watch={"hang_seconds": 10})
        again = self.running_again(job, 2)
        fault = float((self.folder / "accidents").read_text())
        done = self.ended(job)
        self.assertEqual(self.causes(done), [["hang", None]])
        cause = done["attempts"][0]["generations"][0]["cause"]
        self.assertEqual((cause["rank"], cause["node"]), (1, "n1"))
        self.assertIn("its process is stopped", cause["message"])
        self.say("SIGSTOP of a rank, hang_seconds 10", cause["message"], again - fault)
        item, = self.daemon.get(f"/v1/jobs/{job}/evidence")["items"]
        self.assertEqual([item["ranks"][0][key] for key in ("rank", "node", "state")], [1, "n1", "T"])
        self.assertIn("state T", self.daemon.cli("evidence", job, "--rank", "1", "--what", "state").stdout)
        print(f"  evidence: {item['message']}", flush=True)

    def test_a_rank_that_srun_started_and_that_fails_is_a_new_generation_of_tasks(self):
        job = self.submit("exit", nodes=2, launch="task")
        done = self.ended(job)
        self.assertEqual(self.causes(done), [["rank_exit", None]])


class InAnotherAllocation(RecoveryCase):
    def test_a_crashed_node_is_left_out_of_the_next_attempt(self):
        job = self.submit("exit", nodes=2, times=0, steps=400)
        self.wait_step(job, 12)
        lost = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"][-1]["node"]
        fault = time.time()
        os.kill(self.agent(lost), signal.SIGKILL)
        again = self.running_again(job, 1, attempt=2)
        done = self.ended(job)
        self.assertEqual(self.causes(done), [["node_lost"], [None]])
        self.assertNotIn(lost, done["attempts"][1]["nodes"])
        self.say("SIGKILL of an agent, no spare", done["attempts"][0]["cause"]["message"], again - fault)


class Preempted(RecoveryCase):
    settings = {"nodes": 1, "preemption": True, "cred_expire": 30}  # its copy may start after 30 s, not 120

    def test_a_preempted_job_goes_on_from_its_checkpoint(self):
        job = self.submit("exit", nodes=1, times=0, steps=1500, slurm={"partition": "low"},
                          resources={"cpus_per_rank": 4})
        self.wait_step(job, 12)
        other = self.daemon.submit({
            "name": "first", "framework": "command", "command": ["/bin/sleep", "2"],
            "slurm": {"partition": "main"},
            "resources": {"nodes": 1, "cpus_per_rank": 8, "time_limit": "00:05:00"}})["id"]
        self.assertEqual(self.daemon.wait_state(other, harness.FINAL, 120)["state"], "succeeded")
        done = self.ended(job)
        self.assertEqual(done["attempts"][0]["cause"]["class"], "preempted", done["attempts"][0])
        self.assertEqual(len(done["attempts"]), 2)
        self.assertGreater(done["attempts"][1]["generations"][0]["resumed_from_step"], 0)


if __name__ == "__main__":
    main()
