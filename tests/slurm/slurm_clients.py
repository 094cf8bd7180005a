"""What a test asks a SlurmCluster (cluster.py) through Slurm's own commands."""

import os
import pwd
import shutil
import subprocess

from slurm_hosts import until

# Another Slurm than Debian's, for one run of the tests: the prefix that it was configured with.
PREFIX = os.environ.get("LOCKSTEP_TEST_SLURM", "")
SEARCH_PATH = ((f"{PREFIX}/sbin:{PREFIX}/bin:" if PREFIX else "")
               + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def program_path(name):
    return shutil.which(name, path=SEARCH_PATH)


class Clients:
    """The part of SlurmCluster that runs commands and waits for what they say."""

    def env(self, more=None):
        """A clean environment: of Slurm's variables only SLURM_CONF."""
        return {"PATH": SEARCH_PATH, "LANG": "C", "LC_ALL": "C", "HOME": "/root", "USER": "root",
                "SLURM_CONF": str(self.conf)} | (more or {})

    def run(self, *command, on=None, user=None, check=True, timeout=60, stdin="", env=None,
            cwd=None):
        """Runs a command on this machine, or on a node, as root or a user, and returns the
        CompletedProcess (text). RuntimeError shows what it said."""
        identity = {}
        if user:
            entry = pwd.getpwnam(user)
            identity = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
            command = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}",
                       "--init-groups", *command)
        done = subprocess.run([*(self.on(on) if on else []), *command], input=stdin,
                              capture_output=True, text=True, timeout=timeout, check=False,
                              env=self.env(identity | (env or {})), cwd=cwd or self.shared)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: "
                               f"{done.stderr.strip()} {done.stdout.strip()}")
        return done

    def sbatch(self, script, *options, **more):
        """Submits a script's text; returns the job id."""
        text = self.run("sbatch", "--parsable", *options, stdin=script, **more).stdout
        return int(text.strip().partition(";")[0])

    def job(self, job_id):
        """A job as `scontrol show job` has it: {"JobState": "RUNNING", …}; {} once purged."""
        shown = self.run("scontrol", "--oneliner", "show", "job", str(job_id), check=False)
        if shown.returncode != 0 and "Invalid job id" not in shown.stderr:
            return {"JobState": f"unknown: {shown.stderr.strip()}"}  # not purged: nobody knows
        words = shown.stdout.split() if shown.returncode == 0 else []
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_job(self, job_id, *states, seconds=30):
        try:
            return until(lambda: (found := self.job(job_id)).get("JobState") in states and found,
                         seconds, f"state {'/'.join(states)} of job {job_id}", pause=0.1)
        except TimeoutError as error:
            steps = self.run("squeue", "--steps", check=False)
            raise TimeoutError(f"{error}\n{self.job(job_id)}\n{self.node_states()}\n"
                               f"{steps.stdout}{steps.stderr}{self.log_tails()}") from error

    def log_tails(self, lines=15):
        text = ""
        for log in sorted((self.folder / "log").glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            text += "".join(f"{log.stem}: {line}\n" for line in tail)
        return text

    def node_states(self):
        """{"n1": "idle", …}; a star at the end: not responding."""
        shown = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T", check=False).stdout
        return dict(line.split() for line in shown.splitlines())

    def wait_node(self, node, *states, seconds=30):
        return until(lambda: self.node_states().get(node) in states, seconds,
                     f"state {'/'.join(states)} of node {node}", pause=0.1)

    def wait_until_idle(self, seconds=60):
        def idle():
            for name in self.daemons:
                if not self.running(name):
                    raise RuntimeError(f"{name} ended; see {self.folder}/log/{name}.out and .log")
            return self.node_states() == {node: "idle" for node in self.nodes}
        until(idle, seconds, "idle nodes", pause=0.1)
