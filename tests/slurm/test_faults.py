"""Nothing accepted is lost and nothing starts twice: sbatch that lies, lockstepd and slurmctld that are
killed. Every job's rank writes a line when it starts; there must be exactly one of each job."""

import collections

from harness import FINAL, wait_until
from lockstep_slurm import SlurmTestCase, command_spec, main
from lying_sbatch import LyingSbatch


class Faults(SlurmTestCase):
    settings = {"nodes": 2, "cpus": 64, "quick_loss": True}  # sbatch gives a silent slurmctld up
    arguments = ("--slurm-quarantine-seconds", "15", "--slurm-submit-rate", "200")

    def setUp(self):
        super().setUp()
        self.starts = self.daemon.root / "starts"

    def spec(self, name):
        spec = command_spec(f"echo {name} >> {self.starts}")
        return {**spec, "name": name}

    def started(self):
        text = self.starts.read_text() if self.starts.exists() else ""
        return collections.Counter(text.split())

    def accept(self, name, key=None):
        """Submits until lockstepd has answered, however often it is killed meanwhile."""
        def ask():
            try:
                status, job = self.daemon.api("POST", "/v1/jobs", self.spec(name),
                                              {"Idempotency-Key": key or name})
            except Exception:  # it is down
                return None
            return job if status in (200, 201) else None
        return wait_until(ask, 60, f"{name} is accepted")["id"]

    def all_done(self, jobs, seconds=120):
        for job in jobs.values():
            self.daemon.wait_state(job, "succeeded", seconds)
        self.assertEqual(self.started(), {name: 1 for name in jobs})

    def lie(self):
        self.sbatch = LyingSbatch(self.daemon.root / "bin")
        self.daemon.bin_dir = self.sbatch.folder
        self.daemon.restart()

    def test_a_daemon_killed_while_sbatch_hangs_finds_the_job_by_its_name(self):
        self.lie()
        self.sbatch.mode = "hang"
        job = self.accept("hang")
        wait_until(lambda: self.slurm_states(job), 20, "Slurm has it")
        self.daemon.restart()
        self.all_done({"hang": job})
        self.assertEqual(len(self.slurm_states(job)), 1)

    def test_lockstepd_killed_again_and_again_loses_nothing_and_starts_nothing_twice(self):
        jobs = {}
        for number in range(40):
            jobs[f"j{number}"] = self.accept(f"j{number}")
            if number % 3 == 0:
                self.daemon.restart()
        self.all_done(jobs, 180)
        for name, job in jobs.items():
            self.assertEqual(len(self.slurm_states(job)), 1, name)

    def test_jobs_that_slurmctld_acknowledged_and_forgot_run_once(self):
        # Long enough that none has started: what runs is another matter, its agents are claimed.
        blocker = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N2", "--exclusive")
        self.cluster.wait_job(blocker, "RUNNING")
        self.cluster.until_saved_as_it_is(blocker)
        jobs = {f"j{number}": self.accept(f"j{number}") for number in range(10)}
        for job in jobs.values():
            self.slurm_id(job)
        self.cluster.kill_slurmctld()
        self.cluster.start_slurmctld()
        self.cluster.run("scancel", str(blocker))
        self.all_done(jobs, 120)

    def test_a_controller_that_stops_answering_while_jobs_come_in_gets_each_once(self):
        self.cluster.stop_slurmctld()
        jobs = {f"j{number}": self.accept(f"j{number}") for number in range(3)}
        self.daemon.wait_for(jobs["j0"], lambda job: "not known yet" in job.get("pending_reason", "")
                             or "does not answer" in job.get("pending_reason", ""), 30,
                             "the doubt is told")
        self.cluster.cont_slurmctld()
        self.all_done(jobs, 120)
        for name, job in jobs.items():
            self.assertEqual(len(self.slurm_states(job)), 1, name)

    def test_a_controller_that_is_down_ends_nothing(self):
        gate = self.daemon.root / "gate"
        script = f"echo run >> {self.starts}; until [ -e {gate} ]; do sleep 0.1; done"
        job = self.daemon.submit({**command_spec(script), "name": "run"})["id"]
        self.daemon.wait_state(job, "running")
        self.cluster.until_saved_as_it_is(self.slurm_id(job))
        self.cluster.kill_slurmctld()
        waiting = self.accept("later")
        self.daemon.wait_pending(waiting, "does not answer")
        gate.touch()
        self.daemon.wait_state(job, "succeeded", 40)
        self.assertEqual(self.daemon.api("GET", "/readyz")[0], 503)
        self.cluster.start_slurmctld()
        self.daemon.wait_state(waiting, "succeeded", 60)
        self.assertEqual(self.started(), {"run": 1, "later": 1})


class NumbersGivenAgain(SlurmTestCase):
    settings = {"nodes": 1}
    arguments = ("--slurm-quarantine-seconds", "15")

    def test_a_cancel_never_ends_somebody_elses_job_that_got_the_same_number(self):
        blocker = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N1", "--exclusive")
        self.cluster.wait_job(blocker, "RUNNING")
        self.cluster.until_saved_as_it_is(blocker)
        job = self.daemon.submit(command_spec("true"))["id"]
        number = int(self.slurm_id(job))
        self.cluster.kill_slurmctld()
        self.cluster.start_slurmctld()
        victim = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "--job-name=victim")
        if victim != number:
            self.skipTest(f"slurmctld had saved our job: the victim is {victim}, ours {number}")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled", 60)
        self.assertEqual(self.cluster.job(victim)["JobState"], "PENDING")
        self.cluster.run("scancel", str(blocker), str(victim))


    def test_a_running_job_that_slurmctld_has_lost_with_its_number_says_so(self):
        job = self.daemon.submit(command_spec("sleep 600"))["id"]
        number = int(self.slurm_id(job))
        self.daemon.wait_state(job, "running")
        self.cluster.kill_slurmctld()
        self.cluster.start_slurmctld()
        victim = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "--job-name=victim")
        self.addCleanup(self.cluster.run, "scancel", str(victim))
        if victim != number:
            self.skipTest(f"slurmctld had saved our job: the victim is {victim}, ours {number}")
        done = self.daemon.wait_state(job, FINAL, 150)
        self.assertIn(f"Slurm has lost job {number}, whose number is another job's now", done["cause"]["message"])
        self.assertNotIn("cancelled outside", done["cause"]["message"])
        self.assertNotIn("warnings", done)


class ForgottenSoon(SlurmTestCase):
    settings = {"nodes": 1, "min_job_age": 2}
    arguments = ("--slurm-poll-seconds", "30")

    def test_a_job_that_left_squeue_before_it_was_looked_at_ends_by_its_ranks_word(self):
        job = self.daemon.submit(command_spec("exit 3"))["id"]
        done = self.daemon.wait_state(job, "failed", 60)
        self.assertEqual((done["cause"]["class"], done["cause"]["exit_code"]), ("rank_exit", 3))


if __name__ == "__main__":
    main()
