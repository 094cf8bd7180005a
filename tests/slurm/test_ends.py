"""How Slurm jobs end that nobody of Lockstep ended, and what lives on: told as what it was, and ended."""

import os
import pathlib
import shutil
import signal

from harness import FINAL, wait_until
from lockstep_slurm import SQUEUES, SlurmTestCase, command_spec, main
from lying_sbatch import programs_with_sbatch
from slurm_clients import program_path

GATE = "until [ -e {} ]; do sleep 0.1; done"
# An honest sbatch; after its first refusal the next one waits for the file `gate` beside it.
SBATCH_WITH_GATE = """#!/bin/bash
folder=$(dirname "$0")
if [ "$1" != --version ] && [ -e "$folder/refused" ]; then
    until [ -e "$folder/gate" ]; do sleep 0.05; done
fi
{real} "$@"
status=$?
[ $status -eq 0 ] || touch "$folder/refused"
exit $status
"""


class EndsCase(SlurmTestCase):
    def running(self, script="sleep 600", nodes=2, **more):
        job = self.daemon.submit(command_spec(script, nodes, 1, **more))["id"]
        self.daemon.wait_state(job, "running")
        return job, self.slurm_id(job)

    def ends(self, job, state, cause, *words, seconds=60):
        done = self.daemon.wait_state(job, FINAL, seconds)
        self.assertEqual((done["state"], done["cause"]["class"]), (state, cause), done["cause"])
        for word in words:
            self.assertIn(word, done["cause"]["message"])
        return done

    def cut(self, node):
        """Until the end of the test, whose next one finds all nodes idle."""
        self.cluster.cut(node)
        self.addCleanup(self.cluster.wait_node, node, "idle", seconds=90)
        self.addCleanup(self.end_jobs)  # what waited for the node has it now
        self.addCleanup(self.daemon.stop)  # and hands in nothing more that could have it next
        self.addCleanup(self.cluster.start_slurmd, node)
        self.addCleanup(self.cluster.kill_slurmd, node)
        self.addCleanup(self.cluster.join, node)

    def wait_warning(self, job, words, seconds=60):
        self.daemon.wait_for(job, lambda one: any(words in text for text in one.get("warnings", [])), seconds,
                             f"warning with {words!r}")

    def on_node(self, node, name):
        """Processes of that name on a host."""
        def called(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name
            except OSError:
                return False
        return [pid for pid in self.cluster.network.pids(node) if called(pid)]


class Leftovers(EndsCase):
    """slurmctld saves its state every 5 s: killed just after a job's end it comes back with the job RUNNING."""
    settings = {"nodes": 1}
    arguments = ("--slurm-leave-seconds", "3")

    def saved_running(self, other):
        """The state that slurmctld would find after a power failure now; in it all that runs now is running."""
        self.cluster.until_saved_as_it_is(other)
        kept = self.daemon.root / "state"
        self.cluster.copy_state(kept)
        return kept

    def bring_back(self, kept, number):
        before = self.cluster.job(number)["JobState"]
        self.cluster.kill_slurmctld()
        shutil.rmtree(self.cluster.folder / "state")
        shutil.copytree(kept, self.cluster.folder / "state")
        self.cluster.start_slurmctld()
        # RUNNING, or what lockstepd has made of it since.
        self.assertNotEqual(self.cluster.job(number)["JobState"], before, "the fault did not take")

    def leftovers(self):
        return self.daemon.metric("lockstep_slurm_leftovers")

    def test_a_job_that_slurmctld_brings_back_after_its_end_is_cancelled_also_by_the_next_lockstepd(self):
        gate = self.daemon.root / "gate"
        job, number = self.running(GATE.format(gate), 1)
        # Somebody else's that has a name like ours: another lockstepd of this user.
        other = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "--job-name=x-01j00000000000000000000000-a1")
        self.cluster.wait_job(other, "RUNNING")
        kept = self.saved_running(other)
        gate.touch()
        self.daemon.wait_state(job, "succeeded")
        self.cluster.wait_job(number, "COMPLETED")
        wait_until(lambda: self.daemon.metric("lockstep_slurm_attempts") == 0, 30, "lockstepd has seen its end")
        self.bring_back(kept, number)
        self.cluster.wait_job(number, "CANCELLED", seconds=60)
        wait_until(lambda: self.daemon.metric("lockstep_slurm_leftovers_cancelled_total") == 1, 60,
                   "it is counted")
        wait_until(lambda: self.leftovers() == 0, 60, "none is left")
        self.daemon.stop()
        self.bring_back(kept, number)
        self.daemon.start()
        self.cluster.wait_job(number, "CANCELLED", seconds=60)
        self.assertEqual(self.daemon.job(job)["state"], "succeeded")
        self.assertEqual(self.cluster.job(other)["JobState"], "RUNNING", "it is not ours")


class Outside(EndsCase):
    """Without slurmdbd. What a person did is told as that, as far as it can be known."""
    settings = {"nodes": 2, "min_job_age": 10}

    def purged(self, number):
        wait_until(lambda: not self.cluster.job(number), 90, f"slurmctld has forgotten job {number}")

    def without_lockstepd(self, what, number):
        self.daemon.stop()
        what()
        self.purged(number)
        self.daemon.start()

    def test_a_signal_to_all_of_a_job_is_a_cancel_and_no_lost_node(self):
        job, number = self.running()
        self.cluster.run("scancel", "--full", "--signal=TERM", number)
        self.ends(job, "cancelled", "cancelled_by_user", "outside Lockstep")

    def test_a_node_that_an_administrator_sets_down_is_named_with_the_reason(self):
        job, number = self.running()
        self.cluster.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=bad dimm")
        self.addCleanup(self.cluster.wait_node, "n2", "idle", seconds=60)
        self.addCleanup(self.cluster.run, "scontrol", "update", "NodeName=n2", "State=RESUME")
        done = self.ends(job, "failed", "node_lost", f"Slurm job {number} lost a node: n2 (bad dimm)")
        self.assertEqual(done["cause"]["node"], "n2")
        self.assertEqual(done["attempts"][0]["lost_nodes"], ["n2"])
        history = self.daemon.api("GET", "/v1/nodes/n2")[1]["history"]
        self.assertEqual(history["by_kind"], {"node_lost": 1})

    def test_a_cancel_that_slurm_forgot_while_lockstepd_was_away_is_suspected(self):
        job, number = self.running()
        self.without_lockstepd(lambda: self.cluster.run("scancel", number), number)
        self.ends(job, "failed", "rank_signal",
                  "was ended by SIGTERM that Lockstep did not send: cancelled outside?",
                  f"Slurm job {number} is no longer in Slurm", seconds=120)

    def waiting_and_cancelled(self):
        blocker = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N2", "--exclusive")
        self.cluster.wait_job(blocker, "RUNNING")
        job = self.daemon.submit(command_spec("true", 2))["id"]
        number = self.slurm_id(job)
        self.without_lockstepd(lambda: self.cluster.run("scancel", number), number)
        return job, number, blocker

    def test_a_waiting_job_that_slurm_forgot_is_handed_in_again_and_says_why(self):
        job, number, blocker = self.waiting_and_cancelled()
        self.wait_warning(job, f"Slurm job {number} is no longer in Slurm")
        self.assertIn("cancelled outside?", self.daemon.job(job)["warnings"][-1])
        self.assertIn("cancelled outside?", self.daemon.cli("show", job).stdout)
        self.cluster.run("scancel", str(blocker))
        self.daemon.wait_state(job, "succeeded")

    def test_or_it_ends_where_the_site_wants_that(self):
        self.daemon.arguments = (*self.daemon.arguments, "--on-external-cancel", "fail")
        self.daemon.restart()
        job, number, _ = self.waiting_and_cancelled()
        self.ends(job, "failed", "scheduler", f"Slurm job {number} is no longer in Slurm",
                  "cancelled outside?")
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitting"), 1)

    def test_a_requeue_by_a_person_is_a_lost_allocation(self):
        gate = self.daemon.root / "gate"
        job, number = self.running(GATE.format(gate), 2, recovery={"on": ["preemption"]})
        self.cluster.run("scontrol", "update", f"JobId={number}", "Requeue=1")
        self.cluster.run("scontrol", "requeue", number)
        self.daemon.wait_for(job, lambda one: len(one["attempts"]) == 2, 60, "another attempt")
        gate.touch()
        done = self.daemon.wait_state(job, "succeeded", 120)
        self.assertEqual(done["attempts"][0]["cause"]["class"], "preempted")
        self.assertIn(f"Slurm job {number} was put back into the queue",
                      done["attempts"][0]["cause"]["message"])
        wait_until(lambda: number not in self.cluster.run("squeue", "-h", "-o", "%A").stdout.split(), 60,
                   "the copy in the queue is gone")


class Nodes(EndsCase):
    settings = {"nodes": 2, "quick_loss": True}  # what Slurm does once it has given a node up

    def test_without_slurms_step_daemon_a_nodes_ranks_are_ended_and_the_node_is_named(self):
        pids = self.daemon.root / "pids"
        job, number = self.running(f"echo $$ >> {pids}; sleep 600")
        # Not the batch script's, which runs on the first node.
        for pid in self.on_node("n2", "slurmstepd"):
            os.kill(pid, signal.SIGKILL)
        done = self.ends(job, "failed", "node_lost", "slurmstepd", "is gone")
        self.assertEqual(done["cause"]["node"], "n2")
        lives = [int(pid) for pid in pids.read_text().split() if pathlib.Path(f"/proc/{pid}").exists()]
        self.assertEqual(lives, [], "ranks live on")
        wait_until(lambda: not self.on_node("n2", "lockstep-agent"), 30, "the agent is gone")
        wait_until(lambda: self.cluster.job(number).get("JobState") != "RUNNING", 90, "Slurm's job is over")

    def test_ranks_whose_nodes_slurmd_died_go_on_and_the_job_is_warned(self):
        gate = self.daemon.root / "gate"
        job, number = self.running(GATE.format(gate), 1)
        node = self.daemon.job(job)["attempts"][0]["nodes"][0]
        self.cluster.kill_slurmd(node)
        self.addCleanup(self.cluster.wait_node, node, "idle", seconds=60)
        self.addCleanup(self.cluster.start_slurmd, node)
        self.wait_warning(job, f"Slurm job {number} lost a node: {node} (Not responding); its ranks are heard and go on", 120)
        self.assertEqual(self.daemon.job(job)["state"], "running")
        gate.touch()
        self.daemon.wait_state(job, "succeeded")

    def test_with_no_other_node_free_the_next_attempt_waits_for_the_one_that_was_cut_and_runs_once_it_is_back(self):
        gate = self.daemon.root / "gate"
        steps = ('n=0; until [ -e {} ]; do n=$((n + 1)); "$LOCKSTEP_AGENT" report step=$n loss=0.5; sleep 0.5; done')
        job, first = self.running(steps.format(gate), 2, recovery={"max_attempts": 2})
        self.daemon.wait_for(job, lambda one: one.get("step", 0) >= 3, 60, "steps before")
        self.cut("n2")
        self.wait_warning(job, "Slurm does not take attempt 2 without n2", 120)
        waits = self.daemon.wait_state(job, "queued")
        self.assertEqual(len(waits["attempts"]), 2)
        self.assertEqual(waits["attempts"][0]["cause"]["class"], "node_lost")
        self.assertIn("n2", waits["attempts"][0]["cause"]["message"])
        # Nothing but the cable: Slurm itself notices that the node is back, and takes it up again.
        self.cluster.join("n2")
        again = self.daemon.wait_state(job, "running", 180)
        self.assertEqual((len(again["attempts"]), sorted(again["attempts"][1]["nodes"])), (2, ["n1", "n2"]), again)
        started = [event["time"] for event in self.daemon.events(job)
                   if event["kind"] == "ranks_started" and event["attempt"] == 2]
        self.assertEqual(len(started), 1)
        # Steps are counted from 1 again.
        self.daemon.wait_for(job, lambda one: one["attempts"][1]["generations"][0].get("step", 0) >= 3, 60,
                             "steps again")
        gate.touch()
        done = self.daemon.wait_state(job, "succeeded", 120)
        self.assertEqual([one.get("cause", {}).get("class") for one in done["attempts"]], ["node_lost", None])
        second = done["attempts"][1]["scheduler_id"]
        self.assertNotEqual(second, first)
        self.cluster.wait_job(second, "COMPLETED", seconds=60)

    def test_squeue_between_a_refusal_and_the_next_sbatch_takes_its_record_for_no_job(self):
        # slurmctld keeps a FAILED record, with the attempt's name, of what it refuses for its nodes. The job that it
        # then took was called surplus and ended, and the attempt with it.
        folder = programs_with_sbatch(self.daemon.root / "bin", SBATCH_WITH_GATE.replace("{real}", program_path("sbatch")))
        self.daemon.bin_dir = folder
        self.daemon.restart()
        gate = self.daemon.root / "gate"
        job, _ = self.running(GATE.format(gate), 2, recovery={"max_attempts": 2})
        for pid in self.on_node("n2", "slurmstepd"):
            os.kill(pid, signal.SIGKILL)
        wait_until((folder / "refused").exists, 60, "attempt 2 is refused without n2")
        name = f"{job.removeprefix('ls-').lower()}-a2"
        shown = [line for line in self.cluster.run("squeue", "-h", "-t", "all", "-o", "%j %T %r").stdout.splitlines()
                 if name in line]
        self.assertEqual([line.split()[1:] for line in shown], [["FAILED", "BadConstraints"]], "Slurm's record")
        before = self.daemon.metric(SQUEUES)
        wait_until(lambda: self.daemon.metric(SQUEUES) >= before + 3, 60, "lockstepd has seen it, too")
        (folder / "gate").touch()
        again = self.daemon.wait_state(job, "running", 120)
        self.assertEqual(len(again["attempts"]), 2, again)
        gate.touch()
        done = self.daemon.wait_state(job, "succeeded", 60)
        self.cluster.wait_job(done["attempts"][1]["scheduler_id"], "COMPLETED", seconds=60)
        self.assertEqual(self.daemon.metric("lockstep_slurm_surplus_total"), 0)

    def test_a_node_that_is_cut_without_recovery_is_the_one_that_is_named(self):
        job, _ = self.running()
        self.cut("n2")
        done = self.ends(job, "failed", "node_lost", "n2", seconds=120)
        self.assertEqual((done["cause"].get("node"), done["cause"].get("rank")), ("n2", None), done["cause"])


class Copies(EndsCase):
    """A person hands the attempt's script in, too: works, and must not harm the job that lockstepd follows."""
    settings = {"nodes": 2}

    def copy_of(self, job):
        script = self.daemon.attempt_folder(job) / "batch.sh"
        return self.cluster.run("sbatch", "--parsable", str(script)).stdout.strip()

    def succeeds_once(self, job, *numbers):
        done = self.daemon.wait_state(job, "succeeded")
        self.assertEqual(len(done["attempts"]), 1, done)
        kept = done["attempts"][0]["scheduler_id"]
        self.assertIn(kept, numbers)
        self.cluster.wait_job(kept, "COMPLETED")
        for other in {*numbers} - {kept}:
            # FAILED: its agents were sent away before it was cancelled.
            self.cluster.wait_job(other, "CANCELLED", "FAILED")
        self.assertEqual(self.daemon.kinds(job).count("ranks_started"), 1)
        return kept

    def test_the_copy_of_a_job_that_waits_is_ended_and_the_job_is_not(self):
        gate = self.daemon.root / "gate"
        blocker = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N2", "--exclusive")
        self.cluster.wait_job(blocker, "RUNNING")
        job = self.daemon.submit(command_spec(GATE.format(gate), 2))["id"]
        number = self.slurm_id(job)
        copies = [self.copy_of(job), self.copy_of(job)]
        for copy in copies:
            self.cluster.wait_job(copy, "CANCELLED")
        self.assertEqual(self.cluster.job(number)["JobState"], "PENDING")
        self.cluster.run("scancel", str(blocker))
        self.daemon.wait_state(job, "running")
        gate.touch()
        self.assertEqual(self.succeeds_once(job, number, *copies), number)

    def test_copies_that_start_at_once_leave_one_attempt_whichever_calls_in_first(self):
        for turn in range(6):
            with self.subTest(turn=turn):
                gate = self.daemon.root / f"gate-{turn}"
                job = self.daemon.submit(command_spec(GATE.format(gate), 2))["id"]
                number = self.slurm_id(job)
                both = (number, self.copy_of(job))
                self.daemon.wait_state(job, "running")
                wait_until(lambda both=both: [self.cluster.job(one)["JobState"] for one in both].count("RUNNING") == 1,
                           60, "one of them runs")
                gate.touch()
                self.succeeds_once(job, *both)

    def test_a_copy_that_starts_when_the_job_is_over_does_not_complete(self):
        # Beside compilers the copy above came so late, too: its agents were told to stop, and it was COMPLETED.
        job = self.daemon.submit(command_spec("true", 2))["id"]
        kept = self.daemon.wait_state(job, "succeeded")["attempts"][0]["scheduler_id"]
        self.cluster.wait_job(kept, "COMPLETED")
        wait_until(lambda: self.daemon.metric("lockstep_slurm_attempts") == 0, 30, "lockstepd has seen its end")
        copy = self.copy_of(job)
        self.cluster.wait_job(copy, "FAILED")
        self.assertIn(f"ran in allocation {kept}, this is {copy}",
                      (self.daemon.attempt_folder(job) / "agent-00000.log").read_text())
        self.assertEqual(self.daemon.kinds(job).count("ranks_started"), 1)


class Spare(EndsCase):
    # From the factory Slurm ends it after five minutes; this long it must be seen that it is said.
    settings = {"nodes": 3, "quick_loss": True, "options": {"SlurmdTimeout": 45}}
    arguments = ("--slurm-leave-seconds", "20")

    def test_what_slurm_still_has_to_end_is_said(self):
        job, _ = self.running("sleep 600", 2, resources={"spares": 1}, recovery={})
        self.daemon.wait_for(job, lambda one: len(one["attempts"][0]["nodes"]) == 3, 60, "the spare is there")
        lost = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"][-1]["node"]
        self.cut(lost)
        self.daemon.wait_for(job, lambda one: len(one["attempts"][0]["generations"]) == 2 and
                             one["state"] == "running", 60, "the spare runs")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")
        def said():
            return self.daemon.job(job).get("pending_reason")
        wait_until(lambda: said() == f"waits for Slurm to end node {lost}", 30, "it is said")
        self.assertIn(f"waits for Slurm to end node {lost}", self.daemon.cli("show", job).stdout)
        wait_until(lambda: not said(), 90, "Slurm has ended it")


if __name__ == "__main__":
    main()
