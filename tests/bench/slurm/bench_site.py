"""What the parts of bench_slurm.py stand on: the cluster, clients, percentiles, waiting."""

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from datetime import datetime

SETTINGS = {"nodes": 4, "slurmrestd": True, "quick_loss": True, "options": {"MaxJobCount": "20000"}}
SCRIPT = "#!/bin/sh\nsleep 600\n"
SUBMIT = "/slurm/v0.0.38/job/submit"
SPEC = {"name": "bench", "framework": "command", "command": ["/bin/sleep", "600"],
        "resources": {"nodes": 1, "ranks_per_node": 1, "time_limit": "00:10:00"}}


def until(question, seconds, what, pause=0.01):
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(pause)
    return answer


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def since_epoch(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Client:
    """One connection that stays open."""

    def __init__(self, host, port, headers):
        self.connection = http.client.HTTPConnection(host, port, timeout=60)
        self.headers = {"Content-Type": "application/json", **headers}

    def request(self, method, path, document=None):
        body = None if document is None else json.dumps(document)
        self.connection.request(method, path, body, self.headers)
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:500]}")
        return json.loads(data)


class Site:
    """The cluster of a measurement, and what its parts are made of."""

    def __init__(self, table, options, cluster):
        import lockstep_slurm
        self.table, self.options, self.cluster = table, options, cluster
        self.lockstep_daemon = lockstep_slurm.SlurmDaemon
        self.blocker = None

    # --- the parts' surroundings

    def fresh(self):
        """A slurmctld that knows of no job; nothing is left of the part before."""
        self.cluster.run("scancel", "--user=root", check=False)
        self.cluster.kill_slurmctld()
        shutil.rmtree(self.cluster.folder / "state")
        (self.cluster.folder / "state").mkdir()
        for node in self.cluster.nodes:
            self.cluster.crash(node)
        self.cluster.start_slurmctld()
        for node in self.cluster.nodes:
            self.cluster.start_slurmd(node)
        self.cluster.wait_until_idle()

    def block(self):
        """All nodes are taken: what is submitted waits."""
        self.blocker = self.cluster.sbatch(SCRIPT, "-N4", "--exclusive", "-t60")
        self.cluster.wait_job(self.blocker, "RUNNING")

    @contextlib.contextmanager
    def lockstep(self, *arguments):
        root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=self.cluster.shared))
        daemon = self.lockstep_daemon(root, self.cluster, "--slurm-poll-seconds", "5",
                                      "--log-level", "warn", *arguments)
        try:
            yield daemon.start()
        finally:
            daemon.clean_up()
            shutil.rmtree(root, ignore_errors=True)

    def client(self, daemon):
        address, _, port = daemon.url.removeprefix("http://").partition(":")
        return Client(address, int(port), {"Authorization": f"Bearer {daemon.token}"})

    def rest_client(self):
        return Client("127.0.0.1", self.cluster.rest_port, self.rest_headers())

    def rest_headers(self):
        return {"X-SLURM-USER-NAME": "root", "X-SLURM-USER-TOKEN": self.cluster.token("root", 3600)}

    def rest_document(self):
        return {"script": SCRIPT, "job": {"name": "bench", "nodes": 1, "time_limit": 10,
                                          "current_working_directory": str(self.cluster.shared),
                                          "environment": {"PATH": "/usr/bin:/bin"}}}

    def sbatch(self, script):
        """Seconds from fork to the id."""
        begun = time.monotonic()
        done = subprocess.run(["sbatch", "--parsable", script], env=self.cluster.env(), check=True,
                              cwd=self.cluster.shared, capture_output=True, text=True)
        int(done.stdout.strip())
        return time.monotonic() - begun

    @staticmethod
    def events(client, job):
        items = client.request("GET", f"/v1/jobs/{job}/events?limit=1000")["items"]
        return {item["kind"]: since_epoch(item["time"]) for item in items}

    def plain_script(self, text=SCRIPT, name="plain.sh"):
        path = self.cluster.shared / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def histogram(self, daemon, program):
        """Mean seconds of a program's runs by lockstepd."""
        text = daemon.text("/metrics")
        def value(suffix):
            name = f'lockstep_slurm_call_duration_seconds_{suffix}{{program="{program}"}}'
            return float(re.search(re.escape(name) + r" (\S+)", text).group(1))
        return value("sum") / value("count")

    def same_script(self, daemon, job):
        """Lockstep's script of a job under a name that is not one of its own."""
        text = (daemon.attempt_folder(job) / "batch.sh").read_text(encoding="utf-8")
        return self.plain_script(re.sub(r"--job-name=\S+", "--job-name=same", text), "same.sh")
