"""What else a real Slurm does to jobs, and what is said of it: memory, dependencies that cannot come
true, accounting that knows what squeue has forgotten, suspension, and requests Slurm will not take.
"""
# size: one class for each cause; they share the text that says how a job ended

import os
import re
import time
import unittest

from harness import wait_until
from lockstep_slurm import SlurmTestCase, command_spec, main

FINAL = ("succeeded", "failed", "cancelled")
EXCLUSIVE = {"cpus_per_rank": 8}
GROW = "exec python3 -c 'import time; kept = b\"x\" * (600 << 20); time.sleep(600)'"
OVER_MEMORY = {"JobAcctGatherType": "jobacct_gather/linux", "JobAcctGatherFrequency": "1",
               "JobAcctGatherParams": "OverMemoryKill"}


class StateCase(SlurmTestCase):
    def accepted(self, script="true", nodes=1, ranks=1, **more):
        return self.daemon.submit(command_spec(script, nodes, ranks, **more))["id"]

    def ends(self, job, state, cause, *words, seconds=60):
        """The cause of a job that ends in the state, its message with all the words."""
        done = self.daemon.wait_state(job, FINAL, seconds)
        self.assertEqual((done["state"], done["cause"]["class"]), (state, cause), done["cause"])
        for word in words:
            self.assertIn(word, done["cause"]["message"])
        return done["cause"]

    def counted(self, name):
        wait_until(lambda: self.daemon.metric(name) == 1, 10, f"{name} is 1")

    def block(self, *options):
        """All nodes are taken until end_block, or the end of the test."""
        self.blocker = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", f"-N{len(self.cluster.nodes)}",
                                           "--exclusive", *options)
        self.cluster.wait_job(self.blocker, "RUNNING")

    def end_block(self):
        self.cluster.run("scancel", str(self.blocker))

    def refused(self, pointer, *words, **more):
        """The spec is refused before anything is submitted, at the field and in these words."""
        status, problem = self.daemon.api("POST", "/v1/jobs", command_spec("true", **more))
        self.assertEqual(status, 400, problem)
        errors = {error["pointer"]: error["message"] for error in problem["errors"]}
        self.assertIn(pointer, errors)
        for word in words:
            self.assertIn(word, errors[pointer])
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])


class Memory(StateCase):
    """Slurm counts (jobacct_gather/linux with OverMemoryKill). It ends all of the job at once by
    SIGKILL, agents too, and its own word for that is FAILED with 137 or 9, not OUT_OF_MEMORY: that one
    takes cgroups."""
    settings = {"nodes": 2, "options": OVER_MEMORY}

    def over_memory(self):
        return self.accepted(f'[ "$RANK" != 1 ] || {GROW}; sleep 600', 2,
                             resources={"memory_mb_per_node": 300})

    def test_a_job_over_its_memory_says_oom_and_the_node_it_was_on(self):
        job = self.over_memory()
        cause = self.ends(job, "failed", "oom", "exceeded memory limit")
        self.assertEqual((cause["node"], cause["rank"]), ("n2", 1))
        number = self.daemon.job(job)["attempts"][0]["scheduler_id"]
        self.assertEqual(self.cluster.wait_job(number, "FAILED")["Reason"], "NonZeroExitCode")


class Dependency(StateCase):
    settings = {"nodes": 2}

    def depends(self, number, other):
        self.cluster.run("scontrol", "update", f"JobId={number}", f"Dependency=afterok:{other}")

    def held(self, job):
        held = self.daemon.wait_state(job, "held")
        self.assertIn("it waits for a job that has ended in another way than the dependency asks",
                      held["pending_reason"])
        self.assertIn("submit it without the dependency", held["pending_reason"])

    def test_a_dependency_that_cannot_come_true_holds_the_job_until_it_is_taken_off(self):
        self.block()
        job = self.accepted(nodes=2)
        number = self.slurm_id(job)
        other = self.cluster.sbatch("#!/bin/sh\nexit 1\n", "--hold")
        self.depends(number, other)
        self.daemon.wait_pending(job, "it waits for another job to end")
        self.cluster.run("scancel", str(other))
        self.held(job)
        self.cluster.run("scontrol", "update", f"JobId={number}", "Dependency=")
        self.daemon.wait_state(job, "queued")
        self.end_block()
        self.daemon.wait_state(job, "succeeded")

    def test_a_dependency_on_a_job_that_had_failed_already_is_no_persons_cancel_either(self):
        other = self.cluster.sbatch("#!/bin/sh\nexit 1\n")
        self.cluster.wait_job(other, "FAILED")
        self.block()
        job = self.accepted(nodes=2)
        self.depends(self.slurm_id(job), other)
        self.held(job)


class Suspended(StateCase):
    settings = {"nodes": 2}

    def suspended(self, script):
        job = self.accepted(script, 2)
        self.daemon.wait_state(job, "running")
        number = self.slurm_id(job)
        self.cluster.run("scontrol", "suspend", number)
        self.cluster.wait_job(number, "SUSPENDED")
        return job, number

    def test_a_suspended_job_is_not_ended_and_goes_on(self):
        ticks = "until [ -e \"$LOCKSTEP_CHECKPOINT_DIR/../go\" ]; do echo tick; sleep 0.1; done"
        job, number = self.suspended(ticks)
        polls = self.polls()
        seen = []
        # slurmctld says SUSPENDED before the nodes have stopped anything.
        def stands_still():
            text = self.daemon.rank_log(job, 1)
            if not seen or seen[-1][1] != text:
                seen.append((time.monotonic(), text))
            return time.monotonic() - seen[-1][0] > 4
        wait_until(stands_still, 30, "the ranks stand still")
        before = seen[-1][1]
        # Slurm has been asked since, twice.
        wait_until(lambda: self.polls() >= polls + 2, 150, "two looks at the queue")
        self.assertEqual(self.daemon.job(job)["state"], "running")
        self.assertEqual(self.daemon.rank_log(job, 1), before)  # it stands still
        self.cluster.run("scontrol", "resume", number)
        wait_until(lambda: len(self.daemon.rank_log(job, 1)) > len(before), 20, "it moves again")
        (self.daemon.data / "runs" / job / "go").touch()
        done = self.daemon.wait_state(job, FINAL)
        self.assertEqual((done["state"], done.get("cause"), len(done["attempts"])),
                         ("succeeded", None, 1))
        self.assertGreater(done["spans"]["suspended_seconds"], 1)
        self.assertIn("suspended", self.daemon.cli("show", job).stdout)

    def polls(self):
        found = re.search(r'lockstep_slurm_calls_total\{program="squeue",result="ok"\} (\d+)',
                          self.daemon.text("/metrics"))
        return int(found.group(1)) if found else 0

    def test_a_suspended_job_says_that_it_is(self):
        job, _ = self.suspended("sleep 600")
        self.daemon.wait_pending(job, "is suspended", 90)

    @unittest.skipUnless(os.environ.get("LOCKSTEP_TEST_LONG"), "takes two minutes: LOCKSTEP_TEST_LONG=1")
    def test_a_suspension_of_minutes_does_not_end_the_job(self):
        # The agents are stopped too: their connections end after 20 s, and 60 s later they are "lost".
        job, _ = self.suspended("sleep 600")
        since = time.monotonic()
        wait_until(lambda: self.daemon.job(job)["state"] != "running" or
                   time.monotonic() - since > 110, 120, "two minutes have passed, or it ended")
        self.assertEqual(self.daemon.job(job)["state"], "running")


class Accounting(StateCase):
    """squeue forgets a job after two seconds; sacct does not."""
    settings = {"nodes": 2, "accounting": True, "min_job_age": 2}

    def purged(self, number):
        wait_until(lambda: not self.cluster.job(number), 90, f"slurmctld has forgotten job {number}")

    def without_lockstepd(self, what, number):
        """Lockstepd is away while it happens and until slurmctld has forgotten the job."""
        self.daemon.stop()
        what()
        self.purged(number)
        self.daemon.start()

    def sacct(self, number):
        return self.cluster.run("sacct", "-nPXj", str(number), "-o", "state").stdout.strip()

    def test_lockstepd_knows_that_there_is_accounting(self):
        self.assertIn("accounting=true", self.daemon.log_tail())

    def test_a_job_that_succeeded_is_completed_in_both_books(self):
        job = self.accepted("hostname", 2)
        done = self.daemon.wait_state(job, FINAL)
        self.assertEqual((done["state"], done.get("cause")), ("succeeded", None))
        number = done["attempts"][0]["scheduler_id"]
        wait_until(lambda: self.sacct(number) == "COMPLETED", 20, "sacct has its end")

    def test_the_cancel_of_a_waiting_job_that_squeue_forgot_is_taken_from_sacct(self):
        self.block()
        job = self.accepted(nodes=2)
        number = self.slurm_id(job)
        self.without_lockstepd(lambda: self.cluster.run("scancel", number), number)
        self.ends(job, "cancelled", "cancelled_by_user", f"Slurm job {number} was cancelled outside",
                  "by uid 0")
        self.assertEqual(self.calls("sacct"), 1)
        self.assertEqual(self.daemon.metric("lockstep_slurm_forgotten_total"), 0)
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitted"), 1)

    def test_the_cancel_of_a_running_job_that_squeue_forgot_is_taken_from_sacct(self):
        job = self.accepted("sleep 600", 2)
        self.daemon.wait_state(job, "running")
        number = self.slurm_id(job)
        self.without_lockstepd(lambda: self.cluster.run("scancel", number), number)
        self.ends(job, "cancelled", "cancelled_by_user", f"Slurm job {number} was cancelled outside",
                  seconds=120)

    def test_ranks_that_ended_well_unseen_count_whatever_became_of_the_slurm_job(self):
        job = self.accepted("until [ -e \"$LOCKSTEP_CHECKPOINT_DIR/../go\" ]; do sleep 0.1; done", 2)
        self.daemon.wait_state(job, "running")
        number = self.slurm_id(job)

        def end():
            (self.daemon.data / "runs" / job / "go").touch()
            folder = self.daemon.attempt_folder(job)
            wait_until(lambda: len(list(folder.glob("node-*.result.json"))) == 2, 20, "both results")
            self.cluster.run("scancel", number)  # the agents would wait for lockstepd

        self.without_lockstepd(end, number)
        done = self.daemon.wait_state(job, FINAL, 120)
        self.assertEqual((done["state"], done.get("cause"), len(done["attempts"])),
                         ("succeeded", None, 1))
        self.assertTrue(self.sacct(number).startswith("CANCELLED"))

    def test_while_slurmdbd_is_down_nothing_is_taken_for_ended(self):
        self.block()
        job = self.accepted(nodes=2)
        number = self.slurm_id(job)
        self.in_accounting(number)
        self.daemon.stop()
        self.cluster.run("scancel", number)
        self.purged(number)
        wait_until(lambda: self.sacct(number).startswith("CANCELLED"), 20, "sacct has its end")
        self.cluster.kill_daemon("slurmdbd")
        self.addCleanup(lambda: self.cluster.running("slurmdbd") or self.cluster.start_slurmdbd())
        self.daemon.start()
        wait_until(lambda: self.calls("sacct", "failed") >= 2, 60, "sacct was asked in vain, twice")
        self.assertEqual(self.daemon.job(job)["state"], "queued")
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitted"), 1)
        self.cluster.start_slurmdbd()
        self.ends(job, "cancelled", "cancelled_by_user", "by uid 0")

    def test_a_job_runs_to_its_end_without_slurmdbd(self):
        job = self.accepted("until [ -e \"$LOCKSTEP_CHECKPOINT_DIR/../go\" ]; do sleep 0.1; done", 2)
        self.daemon.wait_state(job, "running")
        self.cluster.kill_daemon("slurmdbd")
        self.addCleanup(self.cluster.start_slurmdbd)
        second = self.accepted()
        self.daemon.wait_state(second, "succeeded")
        (self.daemon.data / "runs" / job / "go").touch()
        done = self.daemon.wait_state(job, FINAL)
        self.assertEqual((done["state"], done.get("cause")), ("succeeded", None))

    def in_accounting(self, number):
        wait_until(lambda: self.sacct(number) == "PENDING", 20, "sacct has the job")

    def calls(self, program, result="ok"):
        found = re.search(rf'lockstep_slurm_calls_total\{{program="{program}",result="{result}"\}} (\d+)',
                          self.daemon.text("/metrics"))
        return int(found.group(1)) if found else 0


class Refused(StateCase):
    """What lockstepd knows from Slurm it says at once, with the field. Nothing is submitted."""
    settings = {"nodes": 2}

    def test_what_can_never_run_is_refused_at_its_field(self):
        for pointer, words, more in (
                ("/slurm/partition", "there is no partition nowhere", {"slurm": {"partition": "nowhere"}}),
                ("/slurm/partition", "there is no partition nowhere", {"slurm": {"partition": "main,nowhere"}}),
                ("/slurm/directives/wrap", "", {"slurm": {"directives": {"wrap": "id"}}}),
                ("/resources/time_limit", "longer than partition main allows: at most 01:00:00",
                 {"resources": {"time_limit": "01:00:01"}}),
                ("/resources/nodes", "more than partition main has or allows: at most 2", {"resources": {"nodes": 3}}),
                # All that is wrong is told at once.
                ("/resources/nodes", "more than", {"resources": {"nodes": 3, "time_limit": "02:00:00"}}),
                ("/resources/time_limit", "longer", {"resources": {"nodes": 3, "time_limit": "02:00:00"}}),
                ("/resources/gpus_per_node", "at most 2", {"resources": {"gpus_per_node": 8}}),
                ("/resources/cpus_per_rank", "at most 8", {"resources": {"cpus_per_rank": 9}}),
                ("/resources/memory_mb_per_node", "at most", {"resources": {"memory_mb_per_node": 60_000_000}})):
            with self.subTest(pointer=pointer, more=more):
                self.refused(pointer, words, **more)
        # The limit itself is taken.
        job = self.accepted(nodes=2, resources={"time_limit": "01:00:00"})
        self.daemon.wait_state(job, "succeeded")


class Partition(StateCase):
    settings = {"nodes": 1}

    def set(self, state):
        self.cluster.run("scontrol", "update", "PartitionName=low", f"State={state}")
        self.addCleanup(self.cluster.run, "scontrol", "update", "PartitionName=low", "State=UP")

    def test_a_partition_that_is_down_is_warned_of_and_said_and_waited_for(self):
        self.set("DOWN")
        self.daemon.stop()
        self.daemon.start()
        job = self.daemon.submit(command_spec("true", slurm={"partition": "low"}))
        self.assertIn("partition low is DOWN", job["warnings"])
        waiting = self.daemon.wait_pending(job["id"], "its partition does not start jobs")
        self.assertEqual(waiting["state"], "queued")
        self.assertIn("(partition low): choose another partition, or wait", waiting["pending_reason"])
        self.cluster.run("scontrol", "update", "PartitionName=low", "State=UP")
        self.daemon.wait_state(job["id"], "succeeded")

    def test_a_partition_that_drains_refuses_the_job_in_slurms_words(self):
        self.set("DRAIN")
        self.daemon.stop()
        self.daemon.start()
        job = self.daemon.submit(command_spec("true", slurm={"partition": "low"}))
        self.assertIn("partition low is DRAIN", job["warnings"])
        self.ends(job["id"], "failed", "scheduler", "partition not available (inactive or drain)")
        self.counted("lockstep_slurm_refused_total")


class Script(StateCase):
    settings = {"nodes": 1, "options": {"SchedulerParameters": "batch_sched_delay=0,sched_interval=1,"
                                                               "bf_interval=1,max_script_size=500"}}

    def test_a_script_larger_than_slurm_takes_is_refused_before_it_is_submitted(self):
        self.refused("/slurm", "the batch script would be larger than Slurm takes: ", " of 500 bytes")

    def test_it_is_refused_in_slurms_words_if_the_limit_became_smaller_meanwhile(self):
        def limit(number):
            text = re.sub(r"max_script_size=\d+", f"max_script_size={number}", self.cluster.conf.read_text())
            self.cluster.conf.write_text(text)
            self.cluster.run("scontrol", "reconfigure")
        self.addCleanup(limit, 500)
        limit(4 << 20)
        self.daemon.restart()
        limit(500)
        self.ends(self.accepted(), "failed", "scheduler", "other parameter too long")


class Folder(StateCase):
    settings = {"nodes": 1}

    def test_a_working_directory_that_is_not_there_is_the_users_error(self):
        cause = self.ends(self.accepted(working_directory="/nonexistent/x"), "failed", "user_error",
                          "working directory does not exist: /nonexistent/x")
        self.assertEqual(cause["node"], "n1")

    def test_a_working_directory_that_is_a_file_is_the_users_error(self):
        self.ends(self.accepted(working_directory="/etc/passwd"), "failed", "user_error",
                  "working directory cannot be entered: /etc/passwd")

    def test_what_cannot_be_written_there_is_in_the_log_of_the_cause(self):
        # root may write anywhere that files can be made at all.
        cause = self.ends(self.accepted("touch checkpoint", working_directory="/proc"), "failed",
                          "rank_exit")
        self.assertEqual((cause["exit_code"], cause["rank"]), (1, 0))
        self.assertIn("cannot touch 'checkpoint'", cause["log_tail"])


class Quota(StateCase):
    """Slurm enforces accounts and limits; the tests' user, root, is under them like anybody."""
    settings = {"nodes": 2, "accounting": True,
                "options": {"AccountingStorageEnforce": "associations,limits"}}
    NONE = "MaxSubmitJobs=-1 MaxJobs=-1 MaxWall=-1 MaxTRESPerJob=cpu=-1"

    def limit(self, limits):
        # slurmctld hears of it from slurmdbd, and the answer comes after that.
        self.cluster.run("sacctmgr", "-i", "modify", "user", "where", "name=root", "set", *limits.split())

    def setUp(self):
        super().setUp()
        self.addCleanup(self.limit, self.NONE)

    def test_an_account_that_is_not_there_ends_the_job_in_slurms_words(self):
        self.ends(self.accepted(slurm={"account": "nobody"}), "failed", "scheduler",
                  "/slurm/account: ", "Invalid account or account/partition combination specified")
        self.counted("lockstep_slurm_refused_total")
        self.assertEqual(self.daemon.metric("lockstep_slurm_unclear_total"), 0)

    def test_at_the_limit_of_running_jobs_it_waits_and_says_so(self):
        self.limit("MaxJobs=1")
        first = self.accepted("sleep 600")
        self.daemon.wait_state(first, "running")
        second = self.accepted()
        waiting = self.daemon.wait_pending(second, "its account is at the limit of running jobs")
        self.assertEqual(waiting["state"], "queued")
        self.assertIn("wait until other jobs end", waiting["pending_reason"])
        self.daemon.api("POST", f"/v1/jobs/{first}/cancel")
        self.daemon.wait_state(second, "succeeded")

    def test_at_the_limit_of_submitted_jobs_it_waits_in_lockstep(self):
        self.limit("MaxSubmitJobs=1")
        first = self.accepted("sleep 600")
        self.daemon.wait_state(first, "running")
        second = self.accepted()
        waiting = self.daemon.wait_pending(second, "limit of submitted jobs")
        self.assertIn("AssocMaxSubmitJobLimit", waiting["pending_reason"])
        self.daemon.api("POST", f"/v1/jobs/{first}/cancel")
        self.daemon.wait_state(second, "succeeded")

    def test_what_one_job_may_never_have_is_held_in_plain_words_until_the_limit_is_raised(self):
        for limits, words in (("MaxTRESPerJob=cpu=1", "more CPUs than its account allows one job"),
                              ("MaxWall=5", "more wall time than its account allows one job: shorten")):
            with self.subTest(limits=limits):
                self.limit(limits)
                job = self.accepted("true", 2, 2)
                held = self.daemon.wait_state(job, "held")
                self.assertIn(words, held["pending_reason"])
                self.limit(self.NONE)
                self.daemon.wait_state(job, "succeeded")


if __name__ == "__main__":
    main()
