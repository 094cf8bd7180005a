"""Jobs that go on with fewer nodes and grow back, on a real Slurm of several hosts: a cable is pulled and put
back, an agent is killed, Slurm's step daemon is, and Slurm gives a node up. Prints how long each took."""

import os
import signal
import time

import harness
from harness import FIXTURES, PYTHON, PYTHON_PACKAGE
from lockstep_slurm import SlurmTestCase, main


class ElasticCase(SlurmTestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.daemon.root / "run"
        self.folder.mkdir()

    def submit(self, recovery=None):
        job = self.daemon.submit({
            "name": "elastic", "framework": "command",
            "command": [PYTHON, str(FIXTURES / "elastic_steps.py"), str(self.folder)],
            "environment": {"PYTHONPATH": str(PYTHON_PACKAGE)},
            "resources": {"nodes": 3, "min_nodes": 2, "ranks_per_node": 2, "time_limit": "00:10:00"},
            "recovery": {"grow_after_seconds": 30, **(recovery or {})}})["id"]
        self.runs_on(job, 1, 3)
        return job

    def runs_on(self, job, number, nodes):
        """Once that generation runs, with so many nodes, and makes steps; when its ranks had been started."""
        def there(one):
            if not one["attempts"]:
                return False
            mine = one["attempts"][0]["generations"]
            if len(one["attempts"]) > 1 or len(mine) < number or not mine[number - 1].get("running_at"):
                return False
            self.assertEqual(mine[number - 1]["nodes"], nodes, one)
            return True
        self.daemon.wait_for(job, there, 120, f"generation {number} on {nodes} nodes")
        now = time.time()
        first = max(self.started(number), default=0)
        self.daemon.wait_for(job, lambda one: one.get("step", 0) >= first + 12, 60, "steps")
        return now

    def started(self, generation):
        lines = (self.folder / "starts").read_text(encoding="utf-8").split("\n") if (self.folder / "starts").exists() else []
        return [int(line.split()[4]) for line in lines if line and int(line.split()[2]) == generation]

    def finish(self, job, causes):
        harness.write_whole(self.folder / "last", str(self.daemon.job(job)["step"] + 60))
        done = self.daemon.wait_state(job, harness.FINAL, 150)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual([g.get("cause", {}).get("class") for g in done["attempts"][0]["generations"]], causes)
        self.assertEqual(len(done["attempts"]), 1, "one allocation")
        for generation in done["attempts"][0]["generations"]:
            self.assertEqual(len(self.started(generation["number"])), generation["world_size"])
            self.assertEqual(len(set(self.started(generation["number"]))), 1, "all from one checkpoint")
        return done

    def processes(self, node, name):
        """Those of a host by the name of their program, oldest first."""
        found = []
        for pid, begun in self.cluster.network.pids(node).items():
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                    if file.read().strip() == name:
                        found.append((begun, pid))
            except OSError:
                pass
        return [pid for _, pid in sorted(found)]

    def say(self, fault, job, seconds):
        generations = self.daemon.job(job)["attempts"][0]["generations"]
        words = [one.get("message", "") for one in generations if one.get("message")]
        print(f"\n  {fault}: {'; '.join(words) or 'all nodes'}; ranks started again after {seconds:.2f} s", flush=True)


class BackBeforeSlurmNotices(ElasticCase):
    settings = {"nodes": 3}

    def test_a_pulled_cable_is_a_smaller_world_and_a_larger_one_once_it_is_back(self):
        job = self.submit()
        number = self.slurm_id(job)
        fault = time.time()
        self.cluster.cut("n2")
        try:
            self.say("cable of n2 pulled", job, self.runs_on(job, 2, 2) - fault)
            self.assertEqual(self.daemon.job(job)["attempts"][0]["lost_nodes"], ["n2"])
        finally:
            self.cluster.join("n2")
        fault = time.time()
        self.say("cable of n2 put back", job, self.runs_on(job, 3, 3) - fault)
        self.finish(job, ["node_lost", "node_returned", None])
        self.cluster.wait_job(number, "COMPLETED", seconds=60)

    def test_a_killed_agent_is_started_again_in_its_step(self):
        job = self.submit()
        fault = time.time()
        os.kill(self.processes("n3", "lockstep-agent")[-1], signal.SIGKILL)
        self.say("SIGKILL of the agent of n3", job, self.runs_on(job, 2, 3) - fault)
        self.finish(job, ["node_lost", None])
        self.wait_slurm(job, "COMPLETED")

    def test_without_slurms_step_daemon_a_node_is_done_without(self):
        job = self.submit()
        fault = time.time()
        for pid in self.processes("n2", "slurmstepd"):
            os.kill(pid, signal.SIGKILL)
        self.say("SIGKILL of slurmstepd of n2", job, self.runs_on(job, 2, 2) - fault)
        self.assertEqual(self.daemon.job(job)["attempts"][0]["lost_nodes"], ["n2"])
        self.finish(job, ["node_lost", None])
        harness.wait_until(lambda: not self.processes("n2", "lockstep-agent"), 30, "its agent is gone")


class GivenUpBySlurm(ElasticCase):
    settings = {"nodes": 3, "quick_loss": True}

    def test_a_node_that_slurm_gives_up_stays_out_and_the_job_goes_on_without_it(self):
        job = self.submit()
        number = self.slurm_id(job)
        fault = time.time()
        self.cluster.cut("n3")
        try:
            self.say("cable of n3 pulled for good", job, self.runs_on(job, 2, 2) - fault)
            self.cluster.wait_node("n3", "down", "down*", seconds=90)
            self.assertEqual(self.cluster.job(number)["JobState"], "RUNNING")
        finally:
            self.cluster.join("n3")
            self.cluster.kill_slurmd("n3")  # one that is DOWN is asked only every 40 s
            self.cluster.start_slurmd("n3")
        # Slurm ends what it finds there of a job that has lost the node, and the agent leaves.
        harness.wait_until(lambda: not self.processes("n3", "lockstep-agent"), 60, "its agent is gone")
        self.finish(job, ["node_lost", None])
        # srun says of the task on the lost node that it was killed: what the agents have left tells the script better.
        self.cluster.wait_job(number, "COMPLETED", seconds=60)


if __name__ == "__main__":
    main()
