"""Jobs on a real Slurm of four hosts: how they run, how they end, what is said of them meanwhile."""

import re
import subprocess
import time

from harness import BIN, wait_until
from lockstep_slurm import SQUEUES, SlurmTestCase, command_spec, main
from slurm_clients import SEARCH_PATH, program_path


class Run(SlurmTestCase):
    def test_eight_ranks_train_on_four_hosts_and_every_ranks_loss_is_seen(self):
        job = self.daemon.submit({
            "name": "demo", "framework": "native",
            "resources": {"nodes": 4, "ranks_per_node": 2, "time_limit": "00:10:00"},
            "train": {"train_samples": 5120, "test_samples": 128, "batch_size": 32, "epochs": 1,
                      "loader_workers": 0}})
        done = self.daemon.wait_state(job["id"], "succeeded", 180)
        self.assertEqual(done["attempts"][0]["nodes"], ["n1", "n2", "n3", "n4"])
        ranks = self.daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"]
        self.assertEqual([rank["node"] for rank in ranks],
                         ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"])
        self.assertEqual([rank["address"] for rank in ranks],
                         [self.cluster.addresses[rank["node"]] for rank in ranks])
        losses = self.daemon.series(job["id"])
        self.assertEqual(sorted(losses), list(range(8)))
        for points in losses.values():
            self.assertGreaterEqual(len(points), 15)
            self.assertLess(points[-1][3], points[0][3])
        self.wait_slurm(job["id"], "COMPLETED")

    def test_the_script_is_what_was_rendered_and_holds_nothing_of_the_user(self):
        secret = "$(touch /tmp/never)`id`'\""
        spec = command_spec("echo \"$WORD\"; hostname", nodes=2,
                            environment={"WORD": secret}, slurm={"partition": "main"})
        status, rendered = self.daemon.api("POST", "/v1/jobs/render", spec)
        self.assertEqual(status, 200, rendered)
        status, job = self.daemon.api("POST", "/v1/jobs", spec,
                                      {"If-Match": f'"{rendered["render_hash"]}"'})
        self.assertEqual(status, 201, job)
        self.daemon.wait_state(job["id"], "succeeded")
        self.assertEqual(self.daemon.rank_log(job["id"], 1), f"{secret}\nn2\n")
        script = self.daemon.text(f"/v1/jobs/{job['id']}/script")
        self.assertNotIn("never", script)
        ulid = job["id"].removeprefix("ls-")
        there = rendered["script"].replace("0" * 26, ulid)
        self.assertEqual(there.replace(ulid, ulid.lower()), script.replace(ulid, ulid.lower()))
        self.assertEqual(self.daemon.api("POST", "/v1/jobs", spec, {"If-Match": '"other"'})[0], 412)

    def test_a_rank_that_fails_is_the_cause_and_slurm_says_failed(self):
        job = self.daemon.submit(command_spec('[ "$RANK" != 3 ] || exit 7; sleep 600', 2, 2))
        done = self.daemon.wait_state(job["id"], "failed")
        self.assertEqual(done["cause"]["class"], "rank_exit")
        self.assertEqual((done["cause"]["rank"], done["cause"]["node"], done["cause"]["exit_code"]),
                         (3, "n2", 7))
        # The allocation goes with its agents, nobody has to cancel it. Slurm had it COMPLETED: no mail of a failure,
        # and what was to wait for its success went on.
        self.wait_slurm(job["id"], "FAILED")
        self.assertEqual(self.cluster.job(done["attempts"][0]["scheduler_id"])["ExitCode"], "1:0")

    def test_nodes_and_partitions_are_told_with_the_jobs_on_them(self):
        job = self.daemon.submit(command_spec("sleep 60", nodes=2))["id"]
        self.daemon.wait_state(job, "running")

        def seen():
            found = self.daemon.get("/v1/nodes")["items"]
            return found if sum(node["cpus_used"] > 0 for node in found) == 2 else None
        nodes = {node["name"]: node for node in wait_until(seen, 60, "two nodes in use")}
        self.assertEqual(set(nodes), set(self.cluster.nodes))
        busy = [node for node in nodes.values() if node["jobs"]]
        self.assertEqual([node["jobs"] for node in busy], [[job], [job]])
        self.assertTrue(all(node["cpus_used"] > 0 and node["usable"] for node in busy))
        cluster = self.daemon.get("/v1/cluster")
        self.assertEqual((cluster["scheduler"], cluster["reachable"]), ("slurm", True))
        main = next(one for one in cluster["partitions"] if one["default"])
        self.assertEqual(main["nodes"]["total"], len(nodes))
        self.assertEqual(main["nodes"]["idle"], len(nodes) - 2)
        shown = self.daemon.cli("nodes", "--state", "idle").stdout
        self.assertEqual(len(shown.splitlines()), 1 + len(nodes) - 2, shown)

    def test_logs_are_read_by_rank_while_it_runs(self):
        job = self.daemon.submit(command_spec("echo begin $RANK; sleep 600", 2, 1))
        self.daemon.wait_state(job["id"], "running")
        wait_until(lambda: self.daemon.rank_log(job["id"], 1) == "begin 1\n", 20, "the log")
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job['id']}/cancel")[0], 200)
        done = self.daemon.wait_state(job["id"], "cancelled")
        self.assertEqual(done["cause"]["class"], "cancelled_by_user")
        self.assertEqual(self.daemon.rank_log(job["id"], 1), "begin 1\n")
        self.wait_slurm(job["id"], "CANCELLED", seconds=60)
        self.assertIn("cancelled by", done["cause"]["message"])

    def test_a_job_whose_rank_was_killed_is_over_before_the_schedulers_word_is_waited_for_in_vain(self):
        # A minute; its agents held the allocation, and Slurm says how a job has ended once it has.
        job = self.daemon.submit(command_spec("kill -9 $$", 1))["id"]
        done = self.daemon.wait_state(job, "failed", 45)
        self.assertEqual((done["cause"]["class"], done["cause"]["signal"]), ("rank_signal", 9), done["cause"])
        self.wait_slurm(job, "FAILED")

    def test_what_waits_in_slurm_for_a_jobs_success_or_failure_gets_it(self):
        gate = self.daemon.root / "gate"
        job = self.daemon.submit(command_spec(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3", 2))["id"]
        number = self.slurm_id(job)
        after = {kind: self.cluster.sbatch("#!/bin/sh\ntrue\n", f"--dependency={kind}:{number}",
                                           "--kill-on-invalid-dep=no")
                 for kind in ("afterok", "afternotok")}
        self.daemon.wait_state(job, "running")
        gate.touch()
        self.daemon.wait_state(job, "failed")
        self.cluster.wait_job(after["afternotok"], "COMPLETED", seconds=60)
        wait_until(lambda: self.cluster.job(after["afterok"])["Reason"] == "DependencyNeverSatisfied", 60,
                   "what waits for success never gets it")
        self.cluster.run("scancel", str(after["afterok"]))

    def test_a_cancelled_job_that_waits_never_starts(self):
        first = self.daemon.submit(command_spec("sleep 600", 4, resources={"cpus_per_rank": 8}))
        self.daemon.wait_state(first["id"], "running")
        second = self.daemon.submit(command_spec("sleep 600", 4, resources={"cpus_per_rank": 8}))
        waiting = self.daemon.wait_pending(second["id"], "nodes are free")
        self.assertEqual(waiting["state"], "queued")
        self.daemon.api("POST", f"/v1/jobs/{second['id']}/cancel")
        self.daemon.wait_state(second["id"], "cancelled")
        self.assertEqual(list(self.daemon.attempt_folder(second["id"]).glob("*.claim")), [])
        self.wait_slurm(second["id"], "CANCELLED")


class Ends(SlurmTestCase):
    settings = {"nodes": 2}

    def running(self, script="sleep 600", **more):
        job = self.daemon.submit(command_spec(script, 2, 1, **more))
        self.daemon.wait_state(job["id"], "running")
        return job["id"], self.slurm_id(job["id"])

    def test_the_time_limit_is_the_cause_and_not_its_signal_and_ranks_that_are_warned_can_finish(self):
        job, number = self.running()
        self.cluster.run("scontrol", "update", f"JobId={number}", "TimeLimit=1")
        # Slurm looks once a minute at most: both nodes' jobs end at 60 to 120 s. And it warns up to a minute
        # early: with a limit of a minute, soon after the start. Both wait for it at once.
        warned = self.daemon.submit(command_spec(
            "trap 'echo saved; exit 0' USR2; while :; do sleep 0.1; done", 2, 2,
            resources={"time_limit": "00:02:00"},
            checkpoint={"signal": "USR2", "seconds_before_timeout": 60}))["id"]
        # As an administrator does for one who asks: what counts is Slurm's limit, not the one that was asked for.
        more, extended = self.running(resources={"time_limit": "00:01:00"})
        self.cluster.run("scontrol", "update", f"JobId={extended}", "TimeLimit=10")
        begun = time.monotonic()
        done = self.daemon.wait_state(job, "failed", 150)
        self.assertEqual(done["cause"]["class"], "time_limit", done["cause"])
        # What Slurm holds after its TIMEOUT until KillWait (30 s) has passed is held for nothing.
        ended = wait_until(lambda: (seen := self.cluster.job(number))["JobState"] == "TIMEOUT" and seen, 20,
                           "Slurm has ended it")
        self.assertEqual(ended["Reason"], "TimeLimit")
        wait_until(lambda: time.monotonic() - begun > 62, 90, "its own minute has passed")
        self.assertEqual(self.daemon.job(more)["state"], "running")
        self.daemon.api("POST", f"/v1/jobs/{more}/cancel")
        done = self.daemon.wait_state(warned, "succeeded", 120)
        self.assertIsNone(done.get("cause"))
        self.assertEqual(self.daemon.rank_log(warned, 3), "saved\n")

    def test_a_scancel_by_hand_is_told_as_such(self):
        job, number = self.running()
        self.cluster.run("scancel", number)
        done = self.daemon.wait_state(job, ("cancelled", "failed"), 60)
        self.assertEqual(done["state"], "cancelled", done["cause"])
        self.assertIn("outside Lockstep", done["cause"]["message"])

    def test_a_hold_is_a_state_and_a_release_ends_it(self):
        blocker, _ = self.running(resources={"cpus_per_rank": 8})
        job = self.daemon.submit(command_spec("true", 2, resources={"cpus_per_rank": 8}))
        number = self.slurm_id(job["id"])
        self.cluster.run("scontrol", "hold", number)
        held = self.daemon.wait_state(job["id"], "held")
        self.assertIn("hold", held["pending_reason"])
        self.cluster.run("scontrol", "release", number)
        self.daemon.wait_state(job["id"], "queued")
        self.daemon.api("POST", f"/v1/jobs/{blocker}/cancel")
        self.daemon.wait_state(job["id"], "succeeded")

    def test_a_job_that_is_renamed_in_slurm_keeps_its_place_in_the_queue(self):
        blocker, _ = self.running(resources={"cpus_per_rank": 8})
        jobs = [self.daemon.submit(command_spec("true", 2, resources={"cpus_per_rank": 8}))["id"] for _ in "ab"]
        numbers = [self.slurm_id(job) for job in jobs]
        before = self.daemon.metric(SQUEUES)
        wait_until(lambda: self.daemon.metric(SQUEUES) >= before + 3, 60, "squeue has shown both")
        for number in numbers:
            self.cluster.run("scontrol", "update", f"JobId={number}", "JobName=mine")
        polls = self.daemon.metric("lockstep_slurm_last_success_timestamp_seconds")
        wait_until(lambda: self.daemon.metric("lockstep_slurm_last_success_timestamp_seconds") > polls + 15, 60,
                   "squeue was asked for longer than a lost job is missed")
        self.assertCountEqual(self.cluster.run("squeue", "-h", "-t", "PD", "-o", "%i").stdout.split(), numbers)
        self.daemon.api("POST", f"/v1/jobs/{jobs[1]}/cancel")
        self.cluster.wait_job(numbers[1], "CANCELLED")
        self.daemon.api("POST", f"/v1/jobs/{blocker}/cancel")
        done = self.daemon.wait_state(jobs[0], "succeeded")
        self.assertEqual(done["attempts"][0]["scheduler_id"], numbers[0])

    def test_an_admins_requeue_of_a_running_job_starts_no_rank_twice(self):
        job, number = self.running("echo started >> \"$LOCKSTEP_CHECKPOINT_DIR/../starts\"; sleep 600")
        starts = self.daemon.data / "runs" / job / "starts"
        wait_until(lambda: starts.exists() and starts.read_text() == "started\n" * 2, 30, "both have said so")
        self.cluster.run("scontrol", "update", f"JobId={number}", "Requeue=1")
        self.cluster.run("scontrol", "requeue", number)
        done = self.daemon.wait_state(job, "failed", 60)
        self.assertIn("queue", done["cause"]["message"], done["cause"])
        self.wait_slurm(job, "CANCELLED", "FAILED", "COMPLETED", seconds=90)
        starts = self.daemon.data / "runs" / job / "starts"
        self.assertEqual(starts.read_text(), "started\n" * 2)

    def test_a_script_handed_in_by_a_person_runs_like_any_other(self):
        job = self.daemon.submit(command_spec("hostname", 2, submission="manual"))
        held = self.daemon.wait_state(job["id"], "held")
        script = re.search(r"sbatch (\S+)", held["pending_reason"]).group(1)
        self.assertEqual(self.slurm_states(job["id"]), {})
        self.cluster.run("sbatch", script)
        self.daemon.wait_state(job["id"], "succeeded")
        self.assertEqual(self.daemon.rank_log(job["id"], 1), "n2\n")

    def test_a_script_that_nobody_has_handed_in_does_not_hold_up_a_cancel(self):
        job = self.daemon.submit(command_spec("hostname", 2, submission="manual"))
        self.daemon.wait_state(job["id"], "held")
        self.daemon.api("POST", f"/v1/jobs/{job['id']}/cancel")
        self.daemon.wait_state(job["id"], "cancelled")
        self.assertEqual(self.slurm_states(job["id"]), {})


class Start(SlurmTestCase):
    settings = {"nodes": 1}

    def start_with(self, *arguments, **environment):
        return subprocess.run(
            [BIN / "lockstepd", "--listen", "127.0.0.1:0", "--data-dir", self.daemon.root / "other",
             "--scheduler", "slurm", *arguments], capture_output=True, text=True, timeout=30,
            env={**self.daemon.environment(), **environment}, check=False)

    def test_without_slurms_programs_the_start_says_what_is_missing(self):
        ended = self.start_with("--slurm-bin-dir", "/nonexistent")
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("sbatch of Slurm was not found in /nonexistent", ended.stderr)

    def test_a_slurm_in_a_folder_of_its_own_is_found_by_the_batch_script_too(self):
        """As /opt/slurm/bin of many sites, on lockstepd's PATH and on none of a batch script."""
        folder = self.daemon.root / "opt"
        folder.mkdir()
        for program in ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo"):
            (folder / program).symlink_to(program_path(program))
        (folder / "srun").write_text(f'#!/bin/sh\necho "$1" >>{folder}/called\nexec {program_path("srun")} "$@"\n')
        (folder / "srun").chmod(0o755)
        self.daemon.stop()
        self.daemon.more_environment = {"PATH": f"{folder}:{SEARCH_PATH}"}
        self.daemon.start()
        job = self.daemon.submit(command_spec("true"))
        self.daemon.wait_state(job["id"], "succeeded")
        self.assertEqual((folder / "called").read_text().split(), ["--help", "--nodes=1"])

    def test_an_old_slurm_is_refused_with_its_version(self):
        folder = self.daemon.root / "old"
        folder.mkdir()
        for program in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"):
            (folder / program).write_text("#!/bin/sh\necho slurm 20.11.9\n")
            (folder / program).chmod(0o755)
        ended = self.start_with("--slurm-bin-dir", str(folder))
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("20.11.9 is too old", ended.stderr)

    def test_the_metrics_tell_of_slurm(self):
        job = self.daemon.submit(command_spec("true"))
        self.daemon.wait_state(job["id"], "succeeded")
        wait_until(lambda: self.daemon.metric("lockstep_slurm_submitted_total") == 1, 10, "counted")
        self.assertEqual(self.daemon.metric("lockstep_slurm_reachable"), 1)
        wait_until(lambda: 'lockstep_slurm_calls_total{program="squeue",result="ok"}' in
                   self.daemon.text("/metrics"), 10, "squeue is counted")


if __name__ == "__main__":
    main()
