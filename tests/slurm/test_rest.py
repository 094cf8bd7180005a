"""The slurmrestd driver on a real slurmrestd (22.05, v0.0.38, JWT), verb by verb (rest_verb.cpp).

With LOCKSTEP_TEST_SLURM on another one: the newest version that it has."""

import base64
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

from cluster import SlurmCluster, Unavailable
from harness import BIN
from slurm_hosts import until
from slurm_machine import USERS, release

# Of LOCKSTEP_TEST_DATA_PARSER (cluster.py); without it the newest that is there.
PARSER = int(os.environ.get("LOCKSTEP_TEST_DATA_PARSER", "v0.0.45").rpartition(".")[2])
VERB = Path(os.environ.get("LOCKSTEP_TEST_PROGRAMS", BIN.parent / "tests")) / "rest_verb"
USER, OTHER = USERS
NAME = "abc-01j3zq5t8w9xkcd2e4f6g8h0jk-a1"
# What differs between any two jobs, or between sbatch and slurmrestd whatever the directives are:
# slurmrestd has no path of the script, and is another host's session.
OF_ITS_OWN = {"JobId", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime",
              "LastSchedEval", "Priority", "Command", "AllocNode:Sid", "SubmitLine"}
# sbatch of 24.11 and later says the CPUs of a task twice, and slurmrestd cannot leave the last one to the site.
# Neither reaches the ranks: srun is told its CPUs, and has no task but the agent.
if release() >= (24, 11):
    OF_ITS_OWN |= {"TresPerTask", "OOMKillStep"}


def script(*directives, body="sleep 100", name=NAME, folder="/tmp"):
    lines = [f"--job-name={name}", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1",
             "--time=0-00:10:00", "--no-requeue", "--kill-on-invalid-dep=no", "--export=ALL",
             f"--chdir={folder}", f"--output={folder}/batch.log", "--open-mode=append"]
    given = {line.partition("=")[0] for line in directives}
    lines = [line for line in lines if line.partition("=")[0] not in given] + list(directives)
    return "#!/bin/bash -p\n" + "".join(f"#SBATCH {line}\n" for line in lines) + f"{body}\n"


class Rest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster(nodes=3, accounting=True, slurmrestd=True, users=True).start()
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        self.cluster.wait_until_idle()
        self.token = self.cluster.token(USER)
        self.folder = Path(tempfile.mkdtemp(prefix="rest-", dir=self.cluster.shared))
        self.folder.chmod(0o777)
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        """Again and again: what slurmctld was busy with comes after the first scancel."""
        def none():
            for user in USERS:
                self.cluster.run("scancel", f"--user={user}", check=False)
            return not self.cluster.run("squeue", "-h").stdout
        until(none, 60, "end of all jobs")

    def resume(self, nodes):
        self.cluster.run("scontrol", "update", f"nodename={nodes}", "state=resume")
        self.end_jobs()
        self.cluster.wait_until_idle()

    def verb(self, *words, user=USER, token=None, url=None, as_user=None):
        token = self.token if token is None else token
        done = self.cluster.run(str(VERB), url or self.cluster.rest_url, user, *map(str, words),
                                env={"LOCKSTEP_TEST_TOKEN": token}, user=as_user)
        return json.loads(done.stdout)

    def write(self, *directives, **more):
        path = self.folder / "batch.sh"
        path.write_text(script(*directives, folder=self.folder, **more), encoding="utf-8")
        path.chmod(0o755)
        return path

    def submit(self, *directives, **more):
        reply = self.verb("submit", self.write(*directives, **more))
        self.assertEqual(reply["kind"], "accepted", reply)
        return reply["id"]

    def row(self, job):
        rows = [row for row in self.verb("jobs")["jobs"] if row["id"] == job]
        return rows[0] if rows else {}

    def wait_row(self, job, **wanted):
        return until(lambda: (row := self.row(job)) and
                     all(row[key] == value for key, value in wanted.items()) and row,
                     30, f"{wanted} of job {job}", pause=0.1)

    # --- what it finds

    def test_probe(self):
        facts = self.verb("probe")
        self.assertEqual(tuple(int(part) for part in facts["version"].split(".")[:2]), release())
        self.assertTrue(facts["has_accounting"])
        self.assertEqual(facts["credential_lifetime"], 1800)
        self.assertEqual(facts["controllers"], ["ctl"])
        main = facts["partitions"][0]
        self.assertEqual((main["name"], main["state"], main["is_default"]), ("main", "UP", PARSER >= 45))
        self.assertEqual((main["max_time"], main["default_time"]), (3600, 300))
        self.assertEqual((main["total_nodes"], main["total_cpus"]), (3, 24))
        short = self.verb("probe", token=self.cluster.token(USER, 300))
        self.assertEqual(short["credential_lifetime"], 300)

    def test_ping_over_tcp_and_the_unix_socket(self):
        self.assertEqual(self.verb("ping"), "ok")
        self.assertEqual(self.verb("ping", url=f"unix:{self.cluster.rest_socket}"), "ok")

    def test_nodes_have_sinfos_words(self):
        self.submit("--cpus-per-task=3", "--nodelist=n1", "--gpus-per-node=1")
        self.cluster.wait_node("n1", "mixed")
        self.cluster.run("scontrol", "update", "nodename=n1,n3", "state=drain", "reason=for a test")
        self.addCleanup(self.resume, "n1,n3")
        found = {node["name"]: node for node in self.verb("nodes")["nodes"]}
        self.assertEqual({name: node["state"] + node["flags"] for name, node in found.items()},
                         self.cluster.node_states())
        self.assertEqual(found["n3"]["state"], "drained")
        self.assertEqual((found["n1"]["state"], found["n1"]["reason"]), ("draining", "for a test"))
        self.assertEqual((found["n1"]["cpus_allocated"], found["n1"]["gpus"],
                          found["n1"]["gpus_used"]), (3, 2, 1))

    # --- a job from its submission to its end

    def test_a_job_runs_is_followed_and_is_in_the_history(self):
        (self.folder / "batch.log").write_text("before\n")
        (self.folder / "batch.log").chmod(0o666)
        begun = int(time.time()) - 5
        job = self.submit("--nodes=2", body='echo "$USER $HOME $(pwd)"; exit 3')
        row = self.wait_row(job, terminal=True)
        self.assertEqual((row["name"], row["user"], row["end"], row["exit_code"], row["signal"]),
                         (NAME, USER, "failed", 3, 0))
        self.assertGreaterEqual(row["ended_at"], row["submitted_at"])
        # Appended to, in the folder it was told.
        text = (self.folder / "batch.log").read_text()
        self.assertTrue(text.startswith("before\n"), text)
        self.assertIn(f"{USER} ", text)
        self.assertIn(f" {self.folder}\n", text)
        old = until(lambda: [row for row in self.verb("history", NAME, begun)["jobs"]
                             if row["id"] == job and row["terminal"]], 30, "the job in slurmdbd")[0]
        # slurmdbd's part of v0.0.38 has no exit code but 0.
        self.assertEqual((old["end"], old["exit_code"], old["nodes"]),
                         ("failed", None if release() < (23, 2) else 3, row["nodes"]))
        self.assertEqual(self.verb("history", NAME, int(time.time()) + 60)["jobs"], [])
        self.assertEqual(self.verb("history", "nobodys-job", begun), {"malformed": 0, "jobs": []})
        self.assertEqual(self.verb("detail", job, NAME),
                         {"preempted": False, "restarts": 0, "exit_code": row["exit_code"]})

    def test_cancels_by_number_and_name(self):
        job = self.submit()
        self.wait_row(job, phase="running")
        self.assertEqual(self.verb("cancel", job, "another-name"), "ok")
        self.assertEqual(self.row(job)["phase"], "running")
        self.assertEqual(self.verb("cancel", job, NAME), "ok")
        self.assertEqual(self.wait_row(job, terminal=True)["end"], "cancelled")
        self.assertEqual(self.verb("cancel", job, NAME), "ok")
        self.assertEqual(self.verb("cancel", 4_000_000, NAME), "ok")

    def test_sees_only_its_users_jobs(self):
        self.cluster.sbatch(script(), user=OTHER)
        mine = self.submit()
        self.assertEqual([row["id"] for row in self.verb("jobs")["jobs"] if not row["terminal"]],
                         [mine])

    # --- the same job as sbatch makes

    def test_each_directive_makes_the_job_that_sbatch_makes(self):
        # One job a line, all of later, so that they are compared as they were asked for.
        lines = ["", "--nodes=3 --cpus-per-task=2 --gpus-per-node=2 --mem=500M", "--exclusive",
                 "--gres=gpu:1", "--partition=low", "--partition=low,main", "--account=lstest",
                 "--qos=normal", "--time=0-01:00:00", "--time=00:00:30", "--signal=URG@300",
                 "--nodelist=n[1-2] --nodes=2", "--exclude=n[1,3]", "--begin=now+1hour",
                 "--begin=2031-01-01T04:00:00", "--comment=hello", "--core-spec=1",
                 "--cpu-freq=high", "--deadline=2031-01-01T04:00:00", "--delay-boot=5",
                 "--gres-flags=enforce-binding", "--gres-flags=disable-binding",
                 "--mail-type=END,FAIL --mail-user=ada", "--mail-type=ALL", "--mcs-label=a",
                 "--nice=10", "--profile=task", "--spread-job", "--thread-spec=1",
                 "--threads-per-core=1", "--wckey=key", "--cluster-constraint=a",
                 "--priority=5", "--sockets-per-node=1"]
        lines += ["--cores-per-socket=1"] if PARSER >= 45 else []
        lines += ["--consolidate-segments", "--spread-segments"] if release() >= (26, 5) and PARSER >= 44 else []
        if release() >= (26, 5):
            lines += ["--contiguous", "--switches=1@01:00:00", "--network=ib", "--distribution=block:cyclic",
                      "--use-min-nodes", "--extra=a", "--oom-kill-step=0", "--oversubscribe", "--segment=2",
                      "--gpu-freq=high"]
        for line in lines:
            with self.subTest(line):
                later = [] if "--begin" in line else ["--begin=2030-01-01T00:00:00"]
                path = self.write(*line.split(), *later)
                ours = self.verb("submit", path)
                theirs = self.cluster.run(str(VERB), "cli", USER, "submit", str(path), user=USER)
                theirs = json.loads(theirs.stdout)
                self.assertEqual((ours["kind"], theirs["kind"]), ("accepted", "accepted"),
                                 f"{ours} {theirs}")
                self.compare(self.cluster.job(ours["id"]), self.cluster.job(theirs["id"]))
                self.end_jobs()

    def compare(self, ours, theirs):
        self.assertEqual((ours["JobName"], ours["JobState"]), (NAME, "PENDING"))
        begin, their_begin = (time.mktime(time.strptime(job["EligibleTime"], "%Y-%m-%dT%H:%M:%S"))
                              for job in (ours, theirs))
        self.assertGreater(begin, time.time() + 3000)
        self.assertLess(abs(begin - their_begin), 60)
        differ = {key: (ours.get(key), theirs.get(key)) for key in {*ours, *theirs} - OF_ITS_OWN
                  if ours.get(key) != theirs.get(key)}
        self.assertEqual(differ, {})

    def test_what_cannot_be_said_is_refused_and_nothing_is_submitted(self):
        never = ["--power=level", "--hint=nomultithread", "--hold", "--resources=a:1", "--extra-node-info=1:2"]
        old = ["--batch=a", "--contiguous", "--switches=1", "--network=ib", "--distribution=block:cyclic", "--segment=2"]
        for line in never + (old if release() < (23, 2) else []):
            reply = self.verb("submit", self.write(line))
            self.assertEqual(reply["kind"], "rejected", reply)
            self.assertIn(line.partition("=")[0], reply["message"])
        self.assertEqual([row for row in self.verb("jobs")["jobs"] if not row["terminal"]], [])

    # --- refusals and doubts

    def test_refusals_are_those_of_sbatch(self):
        for line, words in (("--partition=nix", "Invalid partition name specified"),
                            ("--constraint=nix", "Invalid feature specification"),
                            ("--reservation=nix", "reservation"),
                            ("--nodelist=nix", "Invalid node name"),
                            ("--gpus-per-node=3", "Requested node configuration is not available"),
                            ("--licenses=nix:1", "license"),
                            ("--prefer=nix", "preferred feature")):
            path = self.write(line)
            reply = self.verb("submit", path)
            theirs = self.cluster.run(str(VERB), "cli", USER, "submit", str(path), user=USER)
            self.assertEqual((reply["kind"], json.loads(theirs.stdout)["kind"]),
                             ("rejected", "rejected"), f"{line} {reply} {theirs.stdout}")
            self.assertIn(words, reply["message"])
        self.assertEqual([row for row in self.verb("jobs")["jobs"] if not row["terminal"]], [])

    def test_a_job_that_has_to_wait_for_its_nodes_is_accepted(self):
        """slurmrestd says so as an error beside the job's number."""
        self.cluster.run("scontrol", "update", "nodename=n1,n2,n3", "state=drain", "reason=test")
        self.addCleanup(self.resume, "n1,n2,n3")
        job = self.submit()
        self.assertEqual(self.row(job)["phase"], "queued")
        self.assertEqual(len([row for row in self.verb("jobs")["jobs"] if not row["terminal"]]), 1)

    def test_a_controller_that_does_not_answer_leaves_a_doubt(self):
        path = self.write()
        self.cluster.stop_slurmctld()
        try:
            # 22.05 asks slurmctld for each ping, too: known beforehand that nothing was submitted.
            self.assertIn(self.verb("submit", path)["kind"], ("ambiguous", "not_submitted"))
            self.assertIn(self.verb("jobs")["error"], ("unavailable", "timed_out"))
        finally:
            self.cluster.cont_slurmctld()
            until(lambda: self.verb("ping") == "ok", 30, "slurmctld's answer")

    def test_a_controller_that_is_not_there_is_unavailable(self):
        path = self.write()
        self.cluster.kill_slurmctld()
        try:
            reply = self.verb("submit", path)
            self.assertEqual(reply["kind"], "not_submitted", reply)
            # slurmrestd itself asks for MessageTimeout, 10 s, before it says so.
            self.assertIn(self.verb("jobs")["error"], ("unavailable", "timed_out"))
            self.assertIn(self.verb("ping")["error"], ("unavailable", "timed_out"))
        finally:
            self.cluster.start_slurmctld()
            until(lambda: self.verb("ping") == "ok", 30, "slurmctld's answer")

    # --- tokens

    def test_an_expired_token_is_named_and_not_sent(self):
        token = self.cluster.token(USER, 1)
        expires = self.claims(token)["exp"]
        until(lambda: time.time() > expires, 10, "the token's end")
        reply = self.verb("submit", self.write(), token=token)
        self.assertEqual(reply["kind"], "not_submitted")
        self.assertIn(f"the Slurm token of {USER} has expired", reply["message"])
        for verb in ("jobs", "probe", "ping", "nodes"):
            error = self.verb(verb, token=token)
            self.assertEqual(error["error"], "denied", error)
            self.assertIn(f"the Slurm token of {USER} has expired", error["message"])

    def test_a_token_of_somebody_else_or_none(self):
        path = self.write()
        for token, words in ((self.cluster.token(OTHER), f"is made out to {OTHER}"),
                             ("", f"no Slurm token of {USER}"), ("junk", "not a JSON Web Token")):
            reply = self.verb("submit", path, token=token)
            self.assertEqual(reply["kind"], "not_submitted", reply)
            self.assertIn(words, reply["message"])
            self.assertEqual(self.verb("jobs", token=token)["error"], "denied")

    def test_a_forged_token_gets_nothing(self):
        head, claims, _ = self.token.split(".")
        forged = f"{head}.{claims}.{base64.urlsafe_b64encode(bytes(32)).decode().rstrip('=')}"
        reply = self.verb("submit", self.write(), token=forged)
        # Not "denied": a token that slurmctld does not take is no refusal of the job.
        self.assertIn(reply["kind"], ("ambiguous", "not_submitted"), reply)
        self.assertIn(self.verb("jobs", token=forged)["error"], ("unavailable", "denied"))
        self.assertEqual(self.verb("jobs")["jobs"][-1:] and
                         [row for row in self.verb("jobs")["jobs"] if not row["terminal"]], [])

    @staticmethod
    def claims(token):
        part = token.split(".")[1]
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def main():
    if not VERB.is_file():
        print(f"SKIPPED: {VERB} was not built", file=sys.stderr)
        sys.exit(77)
    try:
        with SlurmCluster(nodes=1, slurmrestd=True):
            pass
    except Unavailable as why:
        print(f"SKIPPED: no slurmrestd here: {why}", file=sys.stderr)
        sys.exit(77)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
