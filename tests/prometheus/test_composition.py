"""deploy/container/compose.yaml without containers (no registry is reached here): what it mounts exists, its Prometheus takes
its configuration and scrapes a real lockstepd over TLS with the token that its own script has made."""

import json
import pathlib
import shutil
import subprocess
import unittest
import urllib.request

import yaml

import harness

PLACE = harness.SOURCE / "deploy/container"


def composition():
    return yaml.safe_load((PLACE / "compose.yaml").read_text())


class Composition(unittest.TestCase):
    def test_what_is_mounted_is_there_and_what_is_named_is_declared(self):
        whole = composition()
        for name, service in whole["services"].items():
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                if source.startswith("."):
                    self.assertTrue((PLACE / source).exists(), f"{name}: {source}")
                else:
                    self.assertIn(source, whole["volumes"], name)
            for other in service.get("depends_on", []):
                self.assertIn(other, whole["services"])
        self.assertTrue((PLACE / whole["services"]["lockstepd"]["build"]["dockerfile"]).exists())
        provider = yaml.safe_load((harness.SOURCE / "deploy/grafana/provisioning/dashboards/lockstep.yml").read_text())
        self.assertTrue(any(volume.split(":")[1] == provider["providers"][0]["options"]["path"]
                            for volume in whole["services"]["grafana"]["volumes"]))
        inside, outside = (yaml.safe_load(path.read_text())["datasources"][0] for path in (
            PLACE / "grafana-datasource.yml", harness.SOURCE / "deploy/grafana/provisioning/datasources/lockstep.yml"))
        self.assertEqual({**inside, "url": ""}, {**outside, "url": ""})


@unittest.skipUnless(shutil.which("prometheus") and shutil.which("promtool"), "prometheus is not installed")
class Scraped(harness.TestCase):
    def setUp(self):
        self.DAEMON_ARGUMENTS = ("--tls", "always", "--shared-account", *composition()["services"]["lockstepd"]["command"])
        original, harness.Daemon = harness.Daemon, harness.TlsDaemon
        self.addCleanup(setattr, harness, "Daemon", original)
        super().setUp()

    def test_its_prometheus_scrapes_a_lockstepd_with_the_token_that_its_script_makes(self):
        here = self.root / "prometheus"
        (here / "tokens").mkdir(parents=True)
        script = composition()["services"]["token"]["command"][0].replace("$$", "$")
        for _ in range(2):  # as after a restart: the token stays
            subprocess.run(["/bin/sh", "-ec", script], check=True, timeout=60,
                           env={"PATH": f"{harness.BIN}:/usr/bin:/bin", "LOCKSTEP_DATA_DIR": str(self.daemon.data),
                                "TOKENS": str(here / "tokens"), "HOME": str(self.root)})
            token = (here / "tokens/lockstep.token").read_text()
        tokens = [one for one in self.daemon.get("/v1/tokens?all=true")["items"] if one["name"] == "prometheus"]
        self.assertEqual(len(tokens), 1)
        self.assertEqual(self.daemon.api("GET", "/v1/jobs", None, {"Authorization": f"Bearer {token.strip()}"})[0], 403)
        for name in ("lockstep.rules.yml", "lockstep.alerts.yml"):
            shutil.copy(harness.SOURCE / "deploy/prometheus" / name, here)
        text = (PLACE / "prometheus.yml").read_text()
        self.assertIn("lockstepd:8470", text)
        # That name as the containers' Prometheus sends it: refused with 421, it never had a sample.
        asked = {"Authorization": f"Bearer {token.strip()}", "Host": "lockstepd:8470"}
        self.assertEqual(self.daemon.request("GET", "/metrics", None, asked)[0], 200)
        port = self.daemon.url.rsplit(":", 1)[1]
        (here / "prometheus.yml").write_text(text.replace("lockstepd:8470", f"127.0.0.1:{port}"))
        checked = subprocess.run(["promtool", "check", "config", here / "prometheus.yml"], capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        listen = harness.quiet_port()
        with open(here / "log", "wb") as log:
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={here}/prometheus.yml", f"--storage.tsdb.path={here}/data",
                 f"--web.listen-address=127.0.0.1:{listen}", "--enable-feature=extra-scrape-metrics"], stdout=log, stderr=log)
        self.addCleanup(prometheus.wait)
        self.addCleanup(prometheus.terminate)

        def up():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{listen}/api/v1/query?query=up", timeout=5) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                return False
            return found and found[0]["value"][1] == "1"
        harness.wait_until(up, 30, "lockstepd is up in Prometheus")


if __name__ == "__main__":
    harness.main()
