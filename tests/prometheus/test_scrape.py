"""Debian's Prometheus, with deploy/prometheus' configuration, reads a live lockstepd that trains: targets,
samples, what the dashboards ask, an alert, and that a job's series go when it ends. The GPUs are those
of tests/support/fake_nvml."""

import json
import pathlib
import re
import shutil
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import yaml

import harness
from harness import wait_until

try:  # Debian's python3-prometheus-client: a reader of OpenMetrics that refuses what is not of the standard
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
except ImportError:
    parse_openmetrics = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
LIBRARY = harness.BIN.parent / "tests" / "fake_nvml" / "new"


class Prometheus:
    """Scrapes every half second what the shipped configuration scrapes; rules likewise. `name`: which one."""

    def __init__(self, folder, daemon, name="prometheus.yml"):
        self.folder = folder
        folder.mkdir()
        self.url = f"http://127.0.0.1:{harness.quiet_port()}"
        config = yaml.safe_load((DEPLOY / name).read_text())
        # Two seconds: a scrape that a busy machine holds up for one has not failed.
        config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
        for job in config["scrape_configs"]:
            job.pop("scrape_interval", None)
            job.pop("scrape_timeout", None)
            for source in job.get("static_configs", []):
                where = self.url if job["job_name"] == "prometheus" else daemon.url
                source["targets"] = [where.removeprefix("http://")]
            for source in job.get("http_sd_configs", []):
                source["url"] = daemon.url + urllib.parse.urlsplit(source["url"]).path
                source["refresh_interval"] = "1s"
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / "lockstep.token").write_text(daemon.token)
        for rule_file in ("lockstep.rules.yml", "lockstep.alerts.yml"):
            rules = yaml.safe_load((DEPLOY / rule_file).read_text())
            for group in rules["groups"]:
                group["interval"] = "1s"
            (folder / rule_file).write_text(yaml.safe_dump(rules))
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
        self.assertIn("lockstep", {t["scrapePool"] for t in targets})
        wait_until(lambda: {t["health"] for t in self.prometheus.ask("targets")["activeTargets"]} == {"up"}, 30,
                   "every target was asked and answered")
        self.check_dashboards(job)
        self.wait_marks(job, "Restarts", "its restart is marked")

        (self.root / "nan").touch()

        def fires():
            return [a for a in self.prometheus.ask("alerts")["alerts"]
                    if a["labels"]["alertname"] == "LockstepNonFinite" and a["state"] == "firing"]

        alert = wait_until(fires, 30, "NaN is an alert")[0]
        self.assertEqual(alert["annotations"]["summary"], f"{job}: NaN or infinity in loss")
        fatal = wait_until(lambda: [a for a in self.prometheus.ask("alerts")["alerts"]
                                    if a["labels"]["alertname"] == "LockstepGpuXidFatal"], 30, "and so is an Xid")
        self.assertIn("Xid 79 on GPU 0 of ", fatal[0]["annotations"]["summary"])

        def rules():
            return [r for g in self.prometheus.ask("rules")["groups"] for r in g["rules"]]

        wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), 30, "every rule was evaluated")
        for rule in rules():
            self.assertEqual(rule["health"], "ok", rule.get("lastError"))
        self.wait_marks(job, "Anomalies", "and so are the NaN")

        running = time.time()
        (self.root / "go").touch()
        self.daemon.wait_state(job, "succeeded", 60)
        ended = time.monotonic()
        wait_until(lambda: not query(f'{{job_id="{job}",__name__=~"lockstep_rank_.*"}}'), 30, "its series are stale")
        print(f"stale {time.monotonic() - ended:.1f} s after the end, at 1 s a scrape")
        # As Grafana will ask, which looks a minute back.
        self.wait_marks(job, "End", "the end is marked", running + 60)

    def wait_marks(self, job, name, what, at=None):
        """Until the annotation `name` of the job's dashboard has something to show."""
        notes = json.loads((BOARDS[0].parent / "lockstep-job.json").read_text())["annotations"]["list"]
        [expression] = [note["expr"].replace("$job_id", job) for note in notes if note["name"] == name]
        at = {} if at is None else {"time": at}
        wait_until(lambda: self.prometheus.ask("query", query=expression, **at)["result"], 30, f"{what}: {expression}")

    def check_dashboards(self, job):
        """Every metric that a panel names exists, and every panel shows something."""
        def known(names):
            return names <= set(self.prometheus.ask("label/__name__/values"))

        for path in BOARDS:
            board = json.loads(path.read_text())
            for note in board["annotations"]["list"]:
                self.prometheus.query(note["expr"].replace("$job_id", job))  # an error, unless it can be evaluated
            for panel in board["panels"]:
                for target in panel.get("targets", []):
                    expression = target["expr"].replace("$job_id", job)
                    for variable in ("rank", "node", "gpu"):
                        expression = expression.replace(f"${variable}", ".*")
                    where = f"{path.stem}: {panel['title']}: {expression}"
                    if "lockstep_slurm_" in expression:
                        continue  # only with Slurm: tests/slurm/test_ends.py reads them there
                    if "lockstep_rank_nccl_" in expression:
                        continue  # only with NCCL: tests/integration/test_nccl.py, test_nccl_inspector.py
                    names = set(re.findall(r"\b(?:job_id[a-z_]*:)?(?:lockstep|process)_[a-z_:]+", expression))
                    self.assertTrue(names, where)
                    wait_until(lambda n=names: known(n), 20, f"{where}: {sorted(names)} are known")
                    wait_until(lambda e=expression: self.prometheus.query(e), 20, where)


@unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed (Debian package prometheus)")
class Discovery(harness.TestCase):
    DAEMON_ARGUMENTS = ("--shared-account",)

    """deploy/prometheus/prometheus-large.yml: Prometheus asks lockstepd which jobs there are."""

    def job_that_reports(self):
        job = self.daemon.submit(harness.python_job("found", "reports.py", self.root,
                                                    resources={"nodes": 1, "ranks_per_node": 3}, recovery={}))["id"]
        wait_until(lambda: all((self.root / f"pid-2-{rank}").exists() for rank in range(3)), 60,
                   "the second generation runs")
        wait_until(lambda: self.daemon.text(f"/metrics/jobs/{job}").count("lockstep_rank_step{") == 3, 30,
                   "all ranks report")
        return job

    def end(self, job):
        (self.root / "go").touch()
        self.daemon.wait_state(job, "succeeded", 60)

    def test_a_job_is_a_target_while_it_runs_and_its_series_are_there_once(self):
        prometheus = Prometheus(self.root / "prometheus", self.daemon, "prometheus-large.yml")
        self.addCleanup(prometheus.stop)
        query = prometheus.query

        def targets():
            return [t for t in prometheus.ask("targets")["activeTargets"] if t["scrapePool"] == "lockstep-jobs"]

        self.assertEqual(self.daemon.get("/v1/prometheus/targets"), [])
        self.assertEqual(targets(), [])
        job = self.job_that_reports()
        target = wait_until(lambda: [t for t in targets() if t["health"] == "up"], 30, "the job is a target")[0]
        self.assertEqual(target["labels"], {"job": "lockstep-jobs", "instance": f"{job}/0"})
        found = target["discoveredLabels"]
        self.assertEqual(found["__meta_lockstep_job"], job)
        self.assertEqual(found["__meta_lockstep_name"], "found")
        self.assertEqual(found["__meta_lockstep_user"], self.daemon.job(job)["user"])

        wait_until(lambda: len(query(f'lockstep_rank_step{{job_id="{job}"}}')) == 3, 30, "three ranks, once each")
        steps = query("lockstep_rank_step")
        self.assertEqual({s["metric"]["instance"] for s in steps}, {f"{job}/0"})
        # Nothing of a job comes from the daemon's own target. That one is asked on its own time.
        running = 'lockstep_jobs{job="lockstep",state="running"} == 1'
        wait_until(lambda: query(running), 30, "the daemon's own target was asked while the job ran")
        self.assertEqual(query('{job="lockstep",job_id!=""}'), [])

        self.end(job)
        wait_until(lambda: not query(f'{{job_id="{job}"}}'), 30, "its series are stale")
        wait_until(lambda: not targets(), 30, "and it is no target any more")
        # It was never a failed scrape that ended them.
        self.assertEqual(query('min_over_time(up{job="lockstep-jobs"}[5m])')[0]["value"][1], "1")

        failed = 'prometheus_sd_refresh_failures_total{mechanism="http"}'
        wait_until(lambda: query(failed), 30, "what LockstepTargetsFailing asks for is there")
        self.assertEqual(query(f"{failed} > 0"), [])
        self.daemon.stop()
        wait_until(lambda: query(f"{failed} > 0"), 30, "and counts when lockstepd is down")

    def test_parts_are_the_whole_and_both_formats_are_read_by_others(self):
        job = self.job_that_reports()
        path = f"/metrics/jobs/{job}"

        def series(query, accept="text/plain"):
            status, headers, body = self.daemon.request("GET", path + query, headers={"Accept": accept})
            self.assertEqual(status, 200, body)
            return headers["Content-Type"], body.decode()

        def names(text):
            return sorted(line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#"))

        kind, whole = series("")
        self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")

        def same():  # unless a series began in between
            parts = [name for part in range(3) for name in names(series(f"?shard={part}/3")[1])]
            return sorted(parts) == names(series("")[1])

        wait_until(same, 30, "the parts are the whole")
        for rank in range(3):
            self.assertIn(f'lockstep_rank_step{{job_id="{job}",rank="{rank}"}}', names(series(f"?shard={rank}/3")[1]))

        checked = subprocess.run(["promtool", "check", "metrics"], input=whole, text=True, capture_output=True,
                                 check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

        newer = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        kind, text = series("", newer)
        self.assertEqual(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertTrue(text.endswith("\n# EOF\n"))
        self.assertEqual(series("", newer.replace("0.8", "0.3"))[0], "text/plain; version=0.0.4; charset=utf-8")
        if parse_openmetrics is not None:
            families = {family.name: family for family in parse_openmetrics(text)}
            self.assertEqual(families["lockstep_rank"].type, "info")
            self.assertEqual(families["lockstep_rank_samples"].type, "counter")
            self.assertEqual(len(families["lockstep_rank_step"].samples), 3)

        for bad in ("3/3", "1", "a/b", "0/0"):
            self.assert_problem(self.daemon.api("GET", f"{path}?shard={bad}"), 400, "?shard")
        self.assert_problem(self.daemon.api("GET", "/metrics/jobs/ls-00000000000000000000000000"), 404)
        self.end(job)
        self.assertEqual(series("")[1], "")
        self.assertEqual(series("", newer)[1], "# EOF\n")

    def test_another_users_job_is_no_target_and_has_no_metrics(self):
        job = self.job_that_reports()

        def token_of(user, **rights):
            return self.daemon.api("POST", "/v1/tokens", {"name": user, "user": user, **rights})[1]["token"]

        bob = token_of("bob")
        prom = token_of("prom", role="viewer", scopes=["metrics"])
        for token, seen in ((bob, 0), (prom, 1)):
            headers = {"Authorization": f"Bearer {token}"}
            status, listed = self.daemon.api("GET", "/v1/prometheus/targets", headers=headers)
            self.assertEqual((status, len(listed)), (200, seen))
            status, _, _ = self.daemon.request("GET", f"/metrics/jobs/{job}", headers=headers)
            self.assertEqual(status, 200 if seen else 404)
            self.assertEqual(job in self.daemon.request("GET", "/metrics", headers=headers)[2].decode(), bool(seen))
        # Without a token, on this machine: the daemon's own.
        for path in ("/v1/prometheus/targets", f"/metrics/jobs/{job}"):
            self.assertEqual(self.daemon.request("GET", path, headers={"Authorization": None})[0], 401, path)
        status, _, own = self.daemon.request("GET", "/metrics", headers={"Authorization": None})
        self.assertEqual(status, 200)
        self.assertIn(b"lockstep_build_info", own)
        self.assertNotIn(job.encode(), own)
        self.end(job)


if __name__ == "__main__":
    harness.main()
