"""Copies of a data directory while a job of it runs in Slurm: nobody but the lockstepd that has the job touches it,
and one that takes over goes on with it, without a second sbatch."""

import subprocess
import time

from harness import BIN, wait_until
from lockstep_slurm import SlurmDaemon, SlurmTestCase, command_spec, main

GATE = "until [ -e {} ]; do sleep 0.1; done; echo the end"


class Copies(SlurmTestCase):
    settings = {"nodes": 2}
    # What has ended here and lives in Slurm would be cancelled after a second.
    arguments = ("--slurm-leave-seconds", "1")

    def second(self, data, *arguments):
        other = SlurmDaemon(self.daemon.root.parent / (self.daemon.root.name + "-2"), self.cluster, *self.arguments,
                            "--slurm-quarantine-seconds", "2", *arguments)
        other.root.mkdir()
        other.data = data
        self.addCleanup(other.clean_up)
        return other

    def running(self):
        gate = self.daemon.root / "gate"
        job = self.daemon.submit(command_spec(GATE.format(gate), 2, 1))["id"]
        self.daemon.wait_state(job, "running")
        return job, gate, self.slurm_id(job)

    def lockstepd(self, *arguments):
        done = subprocess.run([BIN / "lockstepd", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              check=False, env=self.daemon.environment())
        self.assertEqual(done.returncode, 0, done.stderr)

    def looks(self, daemon, count):
        """Until it has asked squeue so many times more."""
        def asked():
            return next((float(line.split()[-1]) for line in daemon.text("/metrics").splitlines()
                         if line.startswith('lockstep_slurm_calls_total{program="squeue",result="ok"}')), 0)
        until = asked() + count
        wait_until(lambda: asked() >= until, 120, "squeue is asked")

    def looks_beyond_patience(self, other, begun):
        """Once --slurm-leave-seconds have passed since the job's end there, whatever it would do is done."""
        wait_until(lambda: time.monotonic() > begun + 2, 10, "its patience has passed")
        self.looks(other, 3)

    def unharmed(self, job, gate, number, other):
        """The other one has had the time to see that its job has ended, and Slurm's has not."""
        self.looks_beyond_patience(other, time.monotonic())
        self.assertEqual(self.slurm_states(job), {number: "RUNNING"})
        self.assertEqual(other.metric("lockstep_slurm_leftovers_cancelled_total"), 0)
        gate.touch()
        self.assertEqual(self.daemon.wait_state(job, "succeeded")["attempts"][-1]["scheduler_id"], number)
        self.assertEqual(len(self.slurm_states(job)), 1)
        self.assertEqual(other.job(job)["state"], "failed")

    def test_a_copy_beside_the_first_one_neither_cancels_nor_submits(self):
        job, gate, number = self.running()
        data = self.daemon.root / "copied"
        subprocess.run(["cp", "-a", self.daemon.data, data], check=True)
        other = self.second(data, "--as-copy").start()
        self.unharmed(job, gate, number, other)

    def test_a_restored_store_beside_the_first_one_neither_cancels_nor_submits_also_once_the_job_is_removed(self):
        job, gate, number = self.running()
        folder, data = self.daemon.root / "backup", self.daemon.root / "restored"
        self.lockstepd("--data-dir", self.daemon.data, "backup", folder)
        self.lockstepd("restore", folder, "--data-dir", data)
        other = self.second(data).start()
        other.cli("rm", job)
        self.looks_beyond_patience(other, time.monotonic())
        self.assertEqual(self.slurm_states(job), {number: "RUNNING"})
        gate.touch()
        self.daemon.wait_state(job, "succeeded")

    def test_a_lockstepd_that_takes_over_goes_on_with_the_job(self):
        job, gate, number = self.running()
        self.daemon.kill9()
        data = self.daemon.root / "copied"
        subprocess.run(["cp", "-a", self.daemon.data, data], check=True)
        other = self.second(data, "--take-over").start()
        wait_until(lambda: all(rank.get("pid") for rank in other.get(f"/v1/jobs/{job}/ranks")["items"]), 60,
                   "its agents call in")
        gate.touch()
        other.wait_state(job, "succeeded")
        self.assertEqual(set(self.slurm_states(job)), {number})
        self.assertEqual(other.kinds(job).count("attempt_submitting"), 1)

    def test_a_backup_takes_over_what_slurm_still_has_and_hands_in_nothing(self):
        job, gate, number = self.running()
        waits = self.daemon.submit(command_spec("true", 1, 1, after=[job]))["id"]
        folder, data = self.daemon.root / "backup", self.daemon.root / "restored"
        self.lockstepd("--data-dir", self.daemon.data, "backup", folder)
        self.daemon.kill9()
        self.lockstepd("restore", folder, "--data-dir", data, "--take-over")
        other = self.second(data).start()
        wait_until(lambda: all(rank.get("pid") for rank in other.get(f"/v1/jobs/{job}/ranks")["items"]), 60,
                   "its agents call in")
        gate.touch()
        other.wait_state(job, "succeeded")
        self.assertEqual(set(self.slurm_states(job)), {number})
        self.assertEqual(other.job(waits)["state"], "failed")
        self.assertEqual(self.slurm_states(waits), {})

    def test_a_job_that_slurm_has_no_more_is_not_handed_in_by_a_backup(self):
        # Every node is taken: the job waits in Slurm when the backup is made, and is cancelled after it.
        self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "--nodes=2", "--exclusive")
        job = self.daemon.submit(command_spec("true", 2, 1))["id"]
        number = self.slurm_id(job)
        folder, data = self.daemon.root / "backup", self.daemon.root / "restored"
        self.lockstepd("--data-dir", self.daemon.data, "backup", folder)
        self.daemon.kill9()
        self.cluster.run("scancel", number)
        self.lockstepd("restore", folder, "--data-dir", data, "--take-over")
        other = self.second(data).start()
        other.wait_state(job, ("failed", "cancelled"))
        self.assertEqual(set(self.slurm_states(job)), {number})
        self.assertEqual(other.kinds(job).count("attempt_submitting"), 1)


if __name__ == "__main__":
    main()
