"""Debian's Prometheus, with deploy/prometheus' configuration, reads a live lockstepd that trains: targets,
samples, what the dashboards ask, an alert, and that a job's series go when it ends. The GPUs are those
of tests/support/fake_nvml."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import yaml

import harness
from harness import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
LIBRARY = harness.BIN.parent / "tests" / "fake_nvml" / "new"


class Prometheus:
    """Scrapes every half second what the shipped configuration scrapes; rules likewise."""

    def __init__(self, folder, daemon):
        self.folder = folder
        folder.mkdir()
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"}
        for job in config["scrape_configs"]:
            job.pop("scrape_interval", None)
            job.pop("scrape_timeout", None)
            job["static_configs"] = [{"targets": [daemon.url.removeprefix("http://")]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / "lockstep.token").write_text(daemon.token)
        for name in ("lockstep.rules.yml", "lockstep.alerts.yml"):
            rules = yaml.safe_load((DEPLOY / name).read_text())
            for group in rules["groups"]:
                group["interval"] = "1s"
            (folder / name).write_text(yaml.safe_dump(rules))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.url.removeprefix('http://')}",
             "--enable-feature=extra-scrape-metrics"],
            stdout=self.log, stderr=self.log, cwd=folder)
        wait_until(self.ready, 30, "Prometheus is ready")

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "log").read_text())
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


class ScrapedDaemon(harness.Daemon):
    script = None

    def environment(self):
        return {**super().environment(), "LD_LIBRARY_PATH": str(LIBRARY), "FAKE_NVML": str(self.script)}


@unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed (Debian package prometheus)")
class Scrape(harness.TestCase):
    def setUp(self):
        plain = harness.Daemon
        harness.Daemon = ScrapedDaemon
        self.addCleanup(setattr, harness, "Daemon", plain)
        # Not in the test's folder: the daemon's environment must not name it, or it is taken for
        # one of its processes.
        self.script = pathlib.Path(f"/tmp/fake-nvml-scrape-{time.monotonic_ns()}")
        self.script.write_text("gpu * utilization 50\ngpu 0 field 230 int 1\n")
        self.addCleanup(self.script.unlink, missing_ok=True)
        ScrapedDaemon.script = self.script
        super().setUp()
        self.prometheus = Prometheus(self.root / "prometheus", self.daemon)
        self.addCleanup(self.prometheus.stop)

    def trains(self):
        """A job of two nodes whose ranks have been started again once, each with a GPU."""
        job = self.daemon.submit(harness.python_job(
            "scraped", "reports.py", self.root, resources={"nodes": 2, "ranks_per_node": 1},
            recovery={}))["id"]
        files = [self.root / f"pid-2-{rank}" for rank in range(2)]
        wait_until(lambda: all(file.exists() for file in files), 60, "the second generation runs")
        pids = [int(file.read_text()) for file in files]
        lines = [f"gpu {rank} process {pid} 1000" for rank, pid in enumerate(pids)]
        with open(self.script, "a", encoding="utf-8") as script:
            script.write("\n".join([*lines, "xid 0 79"]) + "\n")
        return job

    def test_a_job_is_seen_asked_about_alerted_of_and_gone_when_it_ends(self):
        job = self.trains()
        query = self.prometheus.query
        wait_until(lambda: len(query(f'lockstep_rank_step{{job_id="{job}"}} > 10')) == 2, 30, "ranks are seen")
        wait_until(lambda: len(query(f'lockstep_rank_info{{job_id="{job}",gpu!=""}}')) == 2, 30, "and their GPUs")
        targets = self.prometheus.ask("targets")["activeTargets"]
        self.assertEqual({t["health"] for t in targets}, {"up"}, targets)
        self.check_dashboards(job)

        (self.root / "nan").touch()

        def fires():
            return [a for a in self.prometheus.ask("alerts")["alerts"]
                    if a["labels"]["alertname"] == "LockstepNonFinite" and a["state"] == "firing"]

        alert = wait_until(fires, 30, "NaN is an alert")[0]
        self.assertEqual(alert["annotations"]["summary"], f"{job}: NaN or infinity in loss")
        fatal = [a for a in self.prometheus.ask("alerts")["alerts"]
                 if a["labels"]["alertname"] == "LockstepGpuXidFatal"]
        self.assertTrue(fatal)
        self.assertIn("Xid 79 on GPU 0 of ", fatal[0]["annotations"]["summary"])
        for rule in (r for g in self.prometheus.ask("rules")["groups"] for r in g["rules"]):
            self.assertEqual(rule["health"], "ok", rule.get("lastError"))

        (self.root / "go").touch()
        self.daemon.wait_state(job, "succeeded", 60)
        ended = time.monotonic()
        wait_until(lambda: not query(f'{{job_id="{job}",__name__=~"lockstep_rank_.*"}}'), 30, "its series are stale")
        print(f"stale {time.monotonic() - ended:.1f} s after the end, at 0.5 s a scrape")

    def check_dashboards(self, job):
        """Every metric that a panel names exists, and every panel shows something."""
        def known(names):
            return names <= set(self.prometheus.ask("label/__name__/values"))

        for path in BOARDS:
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel.get("targets", []):
                    expression = target["expr"].replace("$job_id", job)
                    for variable in ("rank", "node", "gpu"):
                        expression = expression.replace(f"${variable}", ".*")
                    where = f"{path.stem}: {panel['title']}: {expression}"
                    names = set(re.findall(r"\b(?:job_id[a-z_]*:)?(?:lockstep|process)_[a-z_:]+", expression))
                    self.assertTrue(names, where)
                    wait_until(lambda n=names: known(n), 20, f"{where}: {sorted(names)} are known")
                    wait_until(lambda e=expression: self.prometheus.query(e), 20, where)


if __name__ == "__main__":
    harness.main()
