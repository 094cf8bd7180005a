"""lockstepd on a real Slurm: what the tests of it share.

One cluster per test class, started in setUpClass with the class's `settings`; one lockstepd per test,
its data directory in the folder that the nodes share. Agents come in over the bridge, not loopback.
"""

import pathlib
import sys
import tempfile
import unittest

import harness
from cluster import SlurmCluster, Unavailable
from harness import BIN

SQUEUES = 'lockstep_slurm_calls_total{program="squeue",result="ok"}'


class SlurmDaemon(harness.Daemon):
    def __init__(self, root, cluster, *arguments, bin_dir=None):
        super().__init__(root, *arguments)
        self.cluster = cluster
        self.bin_dir = bin_dir
        self.more_environment = {}

    def command(self):
        more = ["--slurm-bin-dir", self.bin_dir] if self.bin_dir else []
        if "--slurm-poll-seconds" not in self.arguments:
            more += ["--slurm-poll-seconds", "1"]
        return [BIN / "lockstepd", "--listen", "127.0.0.1:0",
                "--agent-listen", f"{self.cluster.host_address}:0", "--data-dir", self.data,
                "--scheduler", "slurm", *more, *self.arguments]

    def environment(self):
        return {**super().environment(), **self.cluster.env(), **self.more_environment}

    def attempt_folder(self, job_id, attempt=1):
        return self.data / "runs" / job_id / f"a{attempt}"

    def wait_pending(self, job_id, words, seconds=30):
        """The job once its pending reason holds the words."""
        return self.wait_for(job_id, lambda job: words in job.get("pending_reason", ""), seconds,
                             f"pending reason with {words!r}")

    def kinds(self, job_id):
        return [event["kind"] for event in self.get(f"/v1/jobs/{job_id}/events")["items"]]

    def metric(self, name):
        for line in self.text("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")


def command_spec(script, nodes=1, ranks=1, **more):
    """A job of `nodes` × `ranks` shells that run the script."""
    resources = {"nodes": nodes, "ranks_per_node": ranks, "time_limit": "00:10:00"}
    resources.update(more.pop("resources", {}))
    return {"name": "slurm-test", "framework": "command", "command": ["/bin/bash", "-c", script],
            "resources": resources, **more}


class SlurmTestCase(unittest.TestCase):
    settings = {"nodes": 4}
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster(**cls.settings).start()
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        self.cluster.wait_until_idle()
        root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=self.cluster.shared))
        self.daemon = SlurmDaemon(root, self.cluster, *self.arguments)
        self.addCleanup(self.end_jobs)
        self.addCleanup(self.daemon.clean_up)
        self.addCleanup(self.show_logs)
        self.daemon.start()

    def end_jobs(self):
        """Again and again: what was being handed in comes after the first scancel."""
        def none():
            self.cluster.run("scancel", "--user=root", check=False)
            return not self.cluster.run("squeue", "-h").stdout
        harness.wait_until(none, 60, "no jobs")

    def show_logs(self):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            self.daemon.report()

    def slurm_states(self, job_id):
        """State of each Slurm job of a Lockstep job, by Slurm's number; finished ones too."""
        out = self.cluster.run("squeue", "-h", "-t", "all", "-o", "%i %j %T").stdout
        rows = [line.split() for line in out.splitlines()]
        return {number: state for number, name, state in rows
                if job_id.removeprefix("ls-").lower() in name}

    def wait_slurm(self, job_id, *states, seconds=30):
        """Until each Slurm job of the job is in one of the states, and there is one."""
        def there():
            seen = set(self.slurm_states(job_id).values())
            return seen and seen <= set(states)
        harness.wait_until(there, seconds, f"Slurm says {states}")

    def slurm_id(self, job_id):
        return self.daemon.wait_for(job_id, lambda job: job["attempts"] and
                                    job["attempts"][-1].get("scheduler_id"), 30,
                                    "Slurm's number")["attempts"][-1]["scheduler_id"]


def main():
    try:
        with SlurmCluster(nodes=1):
            pass
    except Unavailable as why:
        print(f"SKIPPED: no Slurm here: {why}", file=sys.stderr)
        sys.exit(77)
    unittest.main(verbosity=2)
