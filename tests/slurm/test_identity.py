"""Each job in its own user's name: lockstepd as an unprivileged Unix user, two others submit to it, and
a real slurmrestd takes each one's own token."""

import json
import os
import pathlib
import pwd
import resource
import subprocess
import tempfile
import time
import unittest

import harness
import lockstep_slurm
from harness import BIN, wait_until
from lockstep_slurm import SlurmDaemon, SlurmTestCase, command_spec
from test_factory import LOOK
from test_refusals import JOB_SUBMIT

DAEMON = "daemon"  # the Unix user that lockstepd runs as
ALICE, BOB = "lstest-a", "lstest-b"


class IdentityDaemon(SlurmDaemon):
    def command(self):
        return ["setpriv", f"--reuid={DAEMON}", f"--regid={DAEMON}", "--clear-groups",
                BIN / "lockstepd", "--listen", "127.0.0.1:0",
                "--agent-listen", f"{self.cluster.host_address}:0", "--data-dir", self.data,
                "--scheduler", "slurmrestd", "--slurmrestd-url", self.cluster.rest_url,
                "--runs-dir", self.root / "runs", "--slurm-poll-seconds", "1", *self.arguments]

    def attempt_folder(self, job_id, attempt=1):
        return self.root / "runs" / job_id / f"a{attempt}"

    def as_user(self, user):
        """This daemon as `user` sees it, with an access token of the user's."""
        status, made = self.api("POST", "/v1/tokens", {"name": "test", "user": user})
        assert status == 201, made
        view = IdentityDaemon(self.root, self.cluster)
        view.url, view.token = self.url, made["token"]
        return view


class Identity(SlurmTestCase):
    settings = {"nodes": 2, "slurmrestd": True, "users": True, "accounting": True, "job_submit": JOB_SUBMIT,
                "gpu_type": "h100"}

    def setUp(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=self.cluster.shared))
        account = pwd.getpwnam(DAEMON)
        for folder in (root, root / "data", root / "runs"):
            folder.mkdir(exist_ok=True)
            os.chown(folder, account.pw_uid, account.pw_gid)
        root.chmod(0o755)
        (root / "data").chmod(0o700)
        self.daemon = IdentityDaemon(root, self.cluster)
        self.addCleanup(self.end_jobs)
        self.addCleanup(self.daemon.clean_up)
        self.addCleanup(self.show_logs)
        self.daemon.start()
        self.alice = self.daemon.as_user(ALICE)
        self.bob = self.daemon.as_user(BOB)

    def end_jobs(self):
        """Again and again: what was being handed in comes after the first scancel."""
        def none():
            for user in (ALICE, BOB):
                self.cluster.run("scancel", f"--user={user}", check=False)
            return not self.cluster.run("squeue", "-h").stdout
        wait_until(none, 60, "no jobs")

    def hand_over(self, view, user, seconds=1800):
        return view.api("PUT", "/v1/whoami/slurm-token",
                        {"token": self.cluster.token(user, seconds)})

    def both(self):
        self.assertEqual(self.hand_over(self.alice, ALICE)[0], 200)
        self.assertEqual(self.hand_over(self.bob, BOB)[0], 200)

    def test_a_sites_refusal_is_told_at_once(self):
        self.both()
        job = self.alice.submit(command_spec("true", slurm={"directives": {"comment": "refused"}}))["id"]
        cause = self.alice.wait_state(job, "failed", 20)["cause"]
        self.assertEqual(cause["class"], "scheduler", cause)
        # slurmrestd 22.05 keeps the plugin's own sentence to itself.
        self.assertIn("Unspecified error", cause["message"])
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitting"), 1)

    def test_gpus_of_a_type_reach_slurm(self):
        self.both()
        spec = command_spec("true", resources={"gpus_per_node": 1, "gpu_type": "h100"})
        job = self.alice.submit(spec)["id"]
        self.alice.wait_state(job, "succeeded", 60)
        number = self.daemon.job(job)["attempts"][0]["scheduler_id"]
        shown = self.cluster.run("scontrol", "-o", "show", "job", number).stdout
        self.assertRegex(shown, "TresPerNode=gres[:/]gpu:h100:1")

    def test_each_job_runs_as_its_user_and_the_other_sees_nothing_of_it(self):
        self.both()
        script = 'echo "I am $(id -un) at $HOME"; echo loss: 0.5; read -t 600 < "$GATE" || true'
        gates = {}
        jobs = {}
        for view, user in ((self.alice, ALICE), (self.bob, BOB)):
            gate = self.daemon.root / f"gate-{user}"
            os.mkfifo(gate)
            os.chown(gate, pwd.getpwnam(user).pw_uid, -1)
            gates[user] = gate
            jobs[user] = view.submit(command_spec(
                script, nodes=1, ranks=2, environment={"GATE": str(gate)}))["id"]
        for view, user in ((self.alice, ALICE), (self.bob, BOB)):
            view.wait_state(jobs[user], "running")
            wait_until(lambda: f"I am {user} at {pwd.getpwnam(user).pw_dir}\n" in view.rank_log(jobs[user], 1), 30, "its log")
            number = self.daemon.job(jobs[user])["attempts"][0]["scheduler_id"]
            shown = self.cluster.run("scontrol", "-o", "show", "job", number).stdout
            self.assertIn(f"UserId={user}(", shown)

        job = jobs[ALICE]
        for path in ("", "/logs?rank=0", "/events", "/spec", "/script", "/ranks", "/series?metric=loss"):
            self.assertEqual(self.bob.api("GET", f"/v1/jobs/{job}{path}")[0], 404, path)
        self.assertEqual(self.bob.api("POST", f"/v1/jobs/{job}/cancel")[0], 404)
        self.assertEqual([item["id"] for item in self.bob.get("/v1/jobs")["items"]], [jobs[BOB]])
        # Nor past Lockstep: the folders are closed to everybody else.
        # What lockstepd has an agent write as its user, it can read; the other cannot have it written either.
        self.assertEqual(self.bob.api("POST", f"/v1/jobs/{job}/evidence")[0], 404)
        self.assertEqual(self.alice.api("POST", f"/v1/jobs/{job}/evidence")[0], 200)
        wait_until(lambda: self.alice.get(f"/v1/jobs/{job}/evidence")["items"], 30, "the evidence")
        self.assertIn("command: ", self.alice.text(f"/v1/jobs/{job}/evidence/state.txt?rank=1"))
        for path in ("/evidence", "/evidence/state.txt?rank=1"):
            self.assertEqual(self.bob.api("GET", f"/v1/jobs/{job}{path}")[0], 404, path)
        folder = self.daemon.attempt_folder(job)
        for path in (folder / "rank-00000.log", folder / "agent.json",
                     folder / "evidence" / "gen-1" / "rank-00001" / "state.txt"):
            self.assertTrue(path.exists(), path)
            for user, good in ((BOB, False), (ALICE, True), (DAEMON, True)):
                read = subprocess.run(["cat", path], user=user, group="nogroup", extra_groups=[],
                                      capture_output=True, check=False)
                self.assertEqual(read.returncode == 0, good, f"{user} {path}")
        for hidden in (self.daemon.data / "token", self.daemon.data / "slurm-tokens" / ALICE):
            self.assertTrue(hidden.exists())
            self.assertNotEqual(subprocess.run(["cat", hidden], user=ALICE, group="nogroup",
                                               extra_groups=[], capture_output=True,
                                               check=False).returncode, 0)

        self.assertEqual(self.alice.api("POST", f"/v1/jobs/{job}/cancel")[0], 200)
        self.alice.wait_state(job, "cancelled")
        self.assertEqual(self.bob.job(jobs[BOB])["state"], "running")
        gates[BOB].write_text("\n\n")
        self.bob.wait_state(jobs[BOB], "succeeded")
        self.assertIn(f"I am {BOB} at", self.bob.rank_log(jobs[BOB], 0))

    def test_a_profile_of_ranks_on_two_nodes_is_their_users(self):
        self.both()
        script = "import sys\ndef works_here():\n    while True: sum(range(1000))\nprint('loss: 0.5', flush=True)\nworks_here()\n"
        job = self.alice.submit({**command_spec("", nodes=2, ranks=1), "command": [harness.PYTHON, "-c", script]})["id"]
        self.alice.wait_state(job, "running")
        wait_until(lambda: all("loss: 0.5" in self.alice.rank_log(job, rank) for rank in range(2)), 30, "both ranks work")
        self.assertEqual(self.bob.api("POST", f"/v1/jobs/{job}/profiles", {"ranks": "0"})[0], 404)
        asked = self.alice.api("POST", f"/v1/jobs/{job}/profiles", {"ranks": "0-1", "seconds": 1})
        self.assertEqual(asked[0], 202, asked)
        wait_until(lambda: self.alice.get(f"/v1/jobs/{job}/profiles")["items"], asked[1]["patience_seconds"], "the profile")
        [item] = self.alice.get(f"/v1/jobs/{job}/profiles")["items"]
        self.assertEqual(len({rank["node"] for rank in item["ranks"]}), 2, item)
        path = "/profiles/stacks.txt?attempt=1&generation=1&profile=1&rank="
        for rank in range(2):
            self.assertIn("works_here (<string>:3)", self.alice.text(f"/v1/jobs/{job}{path}{rank}"))
        for hidden in ("/profiles", path + "1"):
            self.assertEqual(self.bob.api("GET", f"/v1/jobs/{job}{hidden}")[0], 404, hidden)
        file = self.daemon.attempt_folder(job) / "profile" / "gen-1" / "take-1" / "rank-00001" / "stacks.txt"
        for user, good in ((BOB, False), (ALICE, True), (DAEMON, True)):
            read = subprocess.run(["cat", file], user=user, group="nogroup", extra_groups=[], capture_output=True, check=False)
            self.assertEqual(read.returncode == 0, good, user)
        self.assertEqual(self.alice.api("POST", f"/v1/jobs/{job}/cancel")[0], 200)
        self.alice.wait_state(job, "cancelled")

    def test_a_ranks_limits_are_those_of_the_users_own_sbatch(self):
        # Neither slurmd's, which raises both soft limits to the hard ones, nor what lockstepd makes of its own.
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        if hard not in (resource.RLIM_INFINITY, -1) and hard < 4096:
            self.skipTest(f"core files are limited to {hard} bytes here")
        before = ("prlimit", "--nofile=700:", "--core=4096:")
        plain = self.daemon.command
        self.daemon.command = lambda: [*before, *plain()]
        self.daemon.restart()
        self.alice.url = self.bob.url = self.daemon.url
        self.both()
        folder = self.daemon.root / "seen"
        folder.mkdir()
        folder.chmod(0o777)
        look = folder / "look.py"
        look.write_text(LOOK)
        look.chmod(0o644)
        own = folder / "own.sh"
        own.write_text(f"#!/bin/sh\nsrun --ntasks-per-node=1 /usr/bin/python3 {look} {folder}/own\n")
        own.chmod(0o755)
        number = self.cluster.run(*before, "sbatch", "--parsable", "-N2", "--output=/dev/null", str(own),
                                  user=ALICE).stdout.strip()
        self.cluster.wait_job(number, "COMPLETED", seconds=90)
        theirs = {node: json.loads((folder / f"own.{node}").read_text()) for node in "01"}
        self.assertEqual([theirs["0"][f"limit {one}"][0] for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
                         [700, 4096])
        self.assertEqual(len([name for name in theirs["0"] if name.startswith("limit ")]), 16)
        for launch in ("rank", "node", "task"):
            with self.subTest(launch=launch):
                job = self.alice.submit({**command_spec("", 2), "launch": launch,
                                         "command": ["/usr/bin/python3", str(look), f"{folder}/{launch}"]})["id"]
                self.alice.wait_state(job, "succeeded", 90)
                for node, seen in theirs.items():
                    ours = json.loads((folder / f"{launch}.{node}").read_text())
                    other = {name: (ours[name], value) for name, value in seen.items() if ours[name] != value}
                    self.assertEqual(other, {}, "ours, and of the user's own sbatch")

    def test_a_daemon_that_was_killed_goes_on_in_everybodys_name(self):
        self.both()
        gate = self.daemon.root / "gate"
        os.mkfifo(gate)
        os.chown(gate, pwd.getpwnam(ALICE).pw_uid, -1)
        job = self.alice.submit(command_spec('read < "$GATE"', environment={"GATE": str(gate)}))["id"]
        self.alice.wait_state(job, "running")
        self.daemon.restart()
        self.alice.url = self.daemon.url
        gate.write_text("\n")
        self.alice.wait_state(job, "succeeded")
        self.assertEqual(len(self.slurm_states(job)), 1)

    def test_without_a_living_token_nothing_is_accepted_and_what_waits_says_so(self):
        status, problem = self.alice.api("POST", "/v1/jobs", command_spec("true"))
        self.assertEqual(status, 403, problem)
        self.assertIn(f"no Slurm token of {ALICE}", problem["detail"])
        self.assertEqual(self.hand_over(self.bob, ALICE)[0], 400)  # another's
        gate = self.daemon.root / "gate"
        os.mkfifo(gate)
        os.chown(gate, pwd.getpwnam(ALICE).pw_uid, -1)
        self.assertEqual(self.hand_over(self.alice, ALICE, 15)[0], 200)
        ends = time.time() + 15
        first = self.alice.submit(command_spec('read < "$GATE"', environment={"GATE": str(gate)}))["id"]
        second = self.alice.submit({**command_spec("id -un"), "after": [first]})["id"]
        self.alice.wait_state(first, "running")
        wait_until(lambda: time.time() > ends + 1, 30, "the token's end")
        self.assertEqual(self.alice.api("POST", "/v1/jobs", command_spec("true"))[0], 403)
        gate.write_text("\n")
        # What the ranks did is known from their agents, also while Slurm tells nothing.
        self.alice.wait_state(first, "succeeded", 90)
        self.alice.wait_pending(second, "has expired")
        self.assertEqual(self.hand_over(self.alice, ALICE)[0], 200)
        self.alice.wait_state(second, "succeeded")
        self.assertIn(ALICE, self.alice.rank_log(second))

    def test_a_job_cannot_make_lockstepd_read_what_is_not_its_users(self):
        self.both()
        secret = self.daemon.data / "token"
        folder = self.daemon.root / "runs"
        script = (f'cd {folder}/$LOCKSTEP_JOB_ID/a1 && ln -sf {secret} rank-00000.log && '
                  f'ln -sf {secret} batch.sh && ln -s {secret} node-00000.result.json; '
                  f'cat {secret} && exit 9; mv ../a1 ../b1 && exit 8; exit 0')
        job = self.alice.submit(command_spec(script))["id"]
        ended = wait_until(lambda: self.alice.job(job)["state"] in harness.FINAL and
                           self.alice.job(job), 60, "it ends")
        self.assertEqual(ended["state"], "succeeded", ended)
        words = secret.read_text().strip()
        for path in ("/logs?rank=0", "/script", "", "/events"):
            _, _, data = self.alice.request("GET", f"/v1/jobs/{job}{path}")
            self.assertNotIn(words.encode(), data, path)


class Start(SlurmTestCase):
    settings = {"nodes": 1, "slurmrestd": True}

    def setUp(self):
        pass

    def test_a_runs_folder_that_users_cannot_reach_is_refused(self):
        closed = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=self.cluster.shared))  # 0700
        done = subprocess.run(
            [BIN / "lockstepd", "--listen", "127.0.0.1:0", "--data-dir", closed / "data",
             "--scheduler", "slurmrestd", "--slurmrestd-url", self.cluster.rest_url],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is closed to other users", done.stderr + done.stdout)


if __name__ == "__main__":
    lockstep_slurm.main()
