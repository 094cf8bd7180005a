"""Jobs as their users on a Slurm without JWT: lockstepd as a user of its own, lockstep-exec as root, and people who
sign what they submit. lockstep-exec is started as systemd does it, one process for each connection."""

import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import harness
from cluster import SlurmCluster, Unavailable
from cutting import Cutting
from harness import BIN
from lockstep_slurm import SQUEUES, SlurmDaemon, command_spec
from slurm_clients import program_path

ADA, BOB, DAEMON = USERS = ("lsexec-ada", "lsexec-bob", "lsexec-daemon")


def as_user(user, *words):
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", *map(str, words)]


class ExecDaemon(SlurmDaemon):
    """As a user that is not root, and with nothing but a socket to whoever is."""

    def __init__(self, root, cluster, socket):
        super().__init__(root, cluster, "--slurm-identity", "lockstep-exec", "--exec-socket", str(socket))

    def command(self):
        return as_user(DAEMON, *super().command())

    def environment(self):
        return {**super().environment(), "HOME": str(self.root)}


class Exec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = []
        cls.addClassCleanup(cls.remove_users)
        for user in USERS:
            try:
                pwd.getpwnam(user)
            except KeyError:
                harness.wait_until(lambda user=user: subprocess.run(
                    ["useradd", "--no-create-home", "--home-dir", "/tmp", "--user-group", "--shell", "/bin/bash", user],
                    capture_output=True, check=False).returncode == 0, 20, f"user {user}")
                cls.made.append(user)
        cls.cluster = SlurmCluster(nodes=2).start()
        cls.addClassCleanup(cls.cluster.stop)

    @classmethod
    def remove_users(cls):
        for user in cls.made:
            subprocess.run(["userdel", user], capture_output=True, check=False)

    def setUp(self):
        self.cluster.wait_until_idle()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="exec-", dir=self.cluster.shared))
        self.root.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        for name, mode in (("runs", 0o755), ("state", 0o700), ("daemon", 0o755), ("home", 0o1777)):
            (self.root / name).mkdir()
            (self.root / name).chmod(mode)
        os.chown(self.root / "daemon", pwd.getpwnam(DAEMON).pw_uid, pwd.getpwnam(DAEMON).pw_gid)
        self.munge = f"{self.cluster.folder}/run/munge.socket"
        configuration = self.root / "exec.conf"
        configuration.write_text(
            f"callers = {DAEMON}\naudience = test\nslurm-bin = {pathlib.Path(program_path('sbatch')).parent}\n"
            f"slurm-conf = {self.cluster.conf}\nruns = {self.root}/runs\nagent = {BIN}/lockstep-agent\n"
            f"state = {self.root}/state\nmunge-socket = {self.munge}\n")
        socket = self.root / "exec.socket"
        self.log = open(self.root / "exec.log", "wb")  # noqa: SIM115: as long as the test
        self.addCleanup(self.log.close)
        listening = subprocess.Popen(
            ["systemd-socket-activate", "--accept", "--inetd", "-l", str(socket), str(BIN / "lockstep-exec"),
             str(configuration)], stdout=self.log, stderr=self.log)
        self.addCleanup(listening.wait)
        self.addCleanup(listening.terminate)
        harness.wait_until(socket.exists, 20, "systemd-socket-activate listens")
        socket.chmod(0o600)  # as SocketMode and SocketUser of the unit
        os.chown(socket, pwd.getpwnam(DAEMON).pw_uid, -1)
        self.daemon = ExecDaemon(self.root / "daemon", self.cluster, socket)
        self.addCleanup(self.end_jobs)
        self.addCleanup(self.daemon.clean_up)
        self.addCleanup(self.show_logs)
        self.daemon.start()
        self.config = self.root / "home" / ".config" / "lockstep" / "config.toml"
        self.config.parent.mkdir(parents=True)

    def end_jobs(self):
        def none():
            for user in USERS:
                self.cluster.run("scancel", f"--user={user}", check=False)
            return not self.cluster.run("squeue", "-h").stdout
        harness.wait_until(none, 60, "no jobs")

    def show_logs(self):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            self.daemon.report()
            print((self.root / "exec.log").read_text(errors="replace")[-4000:])

    def token(self, user):
        status, made = self.daemon.api("POST", "/v1/tokens", {"name": "test", "user": user, "role": "user"})
        self.assertEqual(status, 201, made)
        return made["token"]

    def cli(self, user, token, *words, check=True, **environment):
        # As lockstep login leaves it: whose socket may have the users' tokens. A restart has another port here.
        self.config.write_text(f'url = "{self.daemon.url}"\nlistener = {pwd.getpwnam(DAEMON).pw_uid}\n')
        done = subprocess.run(
            as_user(user, BIN / "lockstep", *words), capture_output=True, text=True, check=False, timeout=200,
            cwd=self.root / "home",
            env={"PATH": os.environ["PATH"], "HOME": str(self.root / "home"), "LOCKSTEP_URL": self.daemon.url,
                 "LOCKSTEP_TOKEN": token, "LOCKSTEP_MUNGE_SOCKET": self.munge, "LC_ALL": "C.UTF-8", **environment})
        if check:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def submit(self, user, token, spec):
        file = self.root / "home" / f"{user}.json"
        file.write_text(json.dumps(spec))
        return self.cli(user, token, "submit", file).stdout.split()[-1]

    def job(self, job, token):
        return self.daemon.api("GET", f"/v1/jobs/{job}", None, {"Authorization": f"Bearer {token}"})

    def wait_state(self, job, token, *states):
        return harness.wait_until(lambda: (found := self.job(job, token)[1])["state"] in states and found, 60,
                                  f"{job} is {states}")

    def test_each_job_is_its_users_and_closed_to_everybody_else(self):
        tokens = {user: self.token(user) for user in (ADA, BOB)}
        script = 'echo "I am $(id -un)"; echo "loss=0.5 step=1"'
        jobs = {user: self.submit(user, tokens[user], command_spec(script, nodes=2)) for user in tokens}
        for user, job in jobs.items():
            done = self.wait_state(job, tokens[user], "succeeded", "failed")
            self.assertEqual(done["state"], "succeeded", done)
            log = self.cli(user, tokens[user], "logs", job).stdout
            self.assertIn(f"I am {user}", log)
            recent = self.cli(user, tokens[user], "logs", job, "--since", "10m").stdout
            self.assertIn(f"I am {user}", recent)
            attempt = self.root / "runs" / user / job / "a1"
            uid = pwd.getpwnam(user).pw_uid
            self.assertEqual({path.stat().st_uid for path in attempt.rglob("*")}, {uid})
            for other in (DAEMON, BOB if user == ADA else ADA):
                seen = subprocess.run(as_user(other, "cat", attempt / "agent.json"), capture_output=True, check=False)
                self.assertNotEqual(seen.returncode, 0, other)
        self.assertEqual(self.job(jobs[ADA], tokens[BOB])[0], 404)
        told = json.loads(self.cli(ADA, tokens[ADA], "whoami", "--json").stdout)
        self.assertEqual(told["identity"], "lockstep-exec")
        self.assertNotIn("shared_account", told)

    def test_what_nobody_has_signed_does_not_run(self):
        token = self.token(ADA)
        status, answer = self.daemon.api("POST", "/v1/jobs", command_spec("true"),
                                         {"Authorization": f"Bearer {token}"})
        self.assertEqual(status, 403, answer)
        self.assertIn("sign", json.dumps(answer))
        # Bob's signature under ada's token.
        file = self.root / "home" / "hers.json"
        file.write_text(json.dumps(command_spec("true")))
        stolen = self.cli(BOB, token, "submit", file, check=False)
        self.assertNotEqual(stolen.returncode, 0)
        self.assertIn(f"signed by {BOB}", stolen.stdout + stolen.stderr)
        nothing = self.cli(ADA, token, "submit", file, check=False, LOCKSTEP_MUNGE_SOCKET=str(self.root / "none"))
        self.assertNotEqual(nothing.returncode, 0)
        self.assertIn("munge", nothing.stderr)
        self.assertEqual(self.cluster.run("squeue", "-h").stdout, "")

    def test_a_signed_job_whose_answer_was_lost_is_submitted_once_and_keeps_its_signature(self):
        # The repetition had the same signature, and lockstepd removed it as one that nobody needs.
        token = self.token(ADA)
        gate = self.root / "home" / "go"
        first = self.submit(ADA, token, command_spec(f"until [ -e {gate} ]; do sleep 0.05; done"))
        file = self.root / "home" / "second.json"
        file.write_text(json.dumps({**command_spec("echo done"), "after": [first]}))
        with Cutting(self.daemon, skip=1) as proxy:
            done = self.cli(ADA, token, "submit", file, LOCKSTEP_URL=proxy.url)
        self.assertEqual([status for _, _, status in proxy.answers], [403, 201, 201])
        second = done.stdout.split()[-1]
        self.assertEqual(len(self.daemon.get("/v1/jobs")["items"]), 2)
        gate.touch()
        for job in (first, second):
            ended = self.wait_state(job, token, "succeeded", "failed")
            self.assertEqual(ended["state"], "succeeded", ended)

    def test_what_runs_outlives_the_daemon_and_is_cancelled_as_its_user(self):
        token = self.token(ADA)
        job = self.submit(ADA, token, command_spec("echo up; sleep 1000", nodes=2))
        self.wait_state(job, token, "running")
        self.daemon.restart()
        self.wait_state(job, token, "running")
        harness.wait_until(lambda: "up" in self.cli(ADA, token, "logs", job).stdout, 30, "its log is read")
        self.cli(ADA, token, "cancel", job)
        self.wait_state(job, token, "cancelled")
        harness.wait_until(lambda: not self.cluster.run("squeue", "-h").stdout, 60, "Slurm has none")

    def test_run_and_its_sweeps_are_signed_too(self):
        token = self.token(ADA)
        done = self.cli(ADA, token, "run", "--wait", "-N", "2", "--name", "direct", "--", "/bin/sh", "-c", "id -un")
        found = self.daemon.get("/v1/jobs")["items"][0]
        self.assertEqual((found["name"], found["state"], found["user"]), ("direct", "succeeded", ADA), done.stdout)
        self.cli(ADA, token, "run", "--wait", "--sweep", "lr=0.1,0.01", "--name", "sweep", "--", "/bin/sh", "-c",
                 "echo lr {lr} of $(id -un)")
        points = [one for one in self.daemon.get("/v1/jobs")["items"] if one["name"].startswith("sweep")]
        logs = sorted(self.cli(ADA, token, "logs", one["id"]).stdout.strip().split("\n")[-1] for one in points)
        self.assertEqual(len(logs), 2)
        for log, value in zip(logs, ("0.01", "0.1")):
            self.assertIn(f"lr {value} of {ADA}", log)

    def test_a_renewed_certificate_reaches_agents_in_folders_that_are_closed_to_lockstepd(self):
        token = self.token(ADA)
        job = self.submit(ADA, token, command_spec("sleep 1000"))
        self.wait_state(job, token, "running")
        ticket = self.root / "runs" / ADA / job / "a1" / "agent.json"

        def told():
            return json.loads(ticket.read_text())["fingerprint"]
        first = told()
        for file in ("certificate.pem", "key.pem"):  # lockstepd makes another one
            (self.daemon.data / "tls" / file).unlink()
        self.daemon.process.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: told() != first, 30, "the agent's file has the new fingerprint")
        self.assertEqual(told(), (self.daemon.data / "fingerprint").read_text().strip())
        self.assertEqual(ticket.stat().st_uid, pwd.getpwnam(ADA).pw_uid)
        self.cli(ADA, token, "cancel", job)
        self.wait_state(job, token, "cancelled")

    def partition(self, name, words):
        """lockstepd hears of it at its next start. Gone with the cluster."""
        self.cluster.run("scontrol", "create", f"PartitionName={name}", "Nodes=ALL", "DefaultTime=5", "MaxTime=60", words)
        self.daemon.restart()
        return command_spec("true", slurm={"partition": name})

    def test_partitions_that_slurm_hides_from_lockstepds_user_can_be_used(self):
        token = self.token(ADA)
        for name, words in (("hidden", "Hidden=YES"), ("group", f"AllowGroups={ADA}")):
            with self.subTest(words):
                job = self.submit(ADA, token, self.partition(name, words))
                done = self.wait_state(job, token, "succeeded", "failed")
                self.assertEqual(done["state"], "succeeded", done)

    def test_a_job_whose_partition_is_hidden_while_it_waits_is_not_submitted_again(self):
        """squeue without -a left it out, even to its owner: a copy more every 10 s."""
        token = self.token(ADA)
        job = self.submit(ADA, token, self.partition("apart", "State=DOWN"))  # takes jobs, starts none

        def in_slurm():
            return self.cluster.run("squeue", "-a", "-h", "-o", "%i").stdout.split()
        harness.wait_until(in_slurm, 60, "Slurm has it")
        harness.wait_until(lambda: "partition does not start jobs" in self.job(job, token)[1].get("pending_reason", ""), 60,
                           "squeue has shown it")
        self.cluster.run("scontrol", "update", "PartitionName=apart", "Hidden=YES")
        before = self.daemon.metric(SQUEUES)
        harness.wait_until(lambda: self.daemon.metric(SQUEUES) >= before + 12, 120, "squeue is asked a dozen times")
        self.assertEqual(len(in_slurm()), 1, self.job(job, token))
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitting"), 1)
        self.cluster.run("scontrol", "update", "PartitionName=apart", "State=UP")
        done = self.wait_state(job, token, "succeeded", "failed")
        self.assertEqual(done["state"], "succeeded", done)

    def test_a_rank_that_fails_is_restarted_within_what_was_signed(self):
        token = self.token(ADA)
        job = self.submit(ADA, token, command_spec(
            '[ "$LOCKSTEP_GENERATION" -gt 1 ] || exit 3; echo again', recovery={"max_restarts": 2}))
        done = self.wait_state(job, token, "succeeded", "failed")
        self.assertEqual(done["state"], "succeeded", done)
        self.assertIn("again", self.cli(ADA, token, "logs", job).stdout)


def main():
    try:
        with SlurmCluster(nodes=1):
            pass
    except Unavailable as why:
        print(f"SKIPPED: no Slurm here: {why}", file=sys.stderr)
        sys.exit(77)
    absent = [name for name in ("munge", "setpriv", "systemd-socket-activate") if not shutil.which(name)]
    if absent or not (BIN / "lockstep-exec").exists():
        print(f"SKIPPED: needs {', '.join(absent) or 'lockstep-exec (libmunge-dev)'}", file=sys.stderr)
        sys.exit(77)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
