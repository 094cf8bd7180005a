"""GPUs from the driver to /metrics: a real lockstepd with two simulated nodes, whose agents open the
fake library of tests/support/fake_nvml as they would the real one."""

import os
import pathlib
import re
import shutil
import subprocess
import time
import unittest

import harness
from harness import wait_until

LIBRARIES = harness.BIN.parent / "tests" / "fake_nvml"
SCRIPT = """
import os, pathlib, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
# The GPU's process is a child of the rank, as under a launcher.
child = subprocess.Popen(["sleep", "1000"])
name = folder / f"pid-{os.environ['RANK']}"
name.with_suffix(".new").write_text(str(child.pid))
name.with_suffix(".new").rename(name)
while not (folder / "go").exists():
    time.sleep(0.02)
child.kill()
"""


# Rank 1 of the first generation fails when it is told to; all others wait for the end.
FAILING = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
generation, rank = os.environ["LOCKSTEP_GENERATION"], os.environ["RANK"]
name = folder / f"pid-{rank}-of-{generation}"
name.with_suffix(".new").write_text(str(os.getpid()))
name.with_suffix(".new").rename(name)
while not (folder / "go").exists():
    if (generation, rank) == ("1", "1") and (folder / "fail").exists():
        sys.exit(1)
    time.sleep(0.02)
"""


class GpuDaemon(harness.Daemon):
    library = LIBRARIES / "new"
    script = None

    def environment(self):
        environment = super().environment()
        environment["LD_LIBRARY_PATH"] = str(self.library)
        if self.script:
            environment["FAKE_NVML"] = str(self.script)
        return environment


class GpuCase(harness.TestCase):
    library = "new"
    has_script = True

    def setUp(self):
        if not (LIBRARIES / self.library / "libnvidia-ml.so.1").exists():
            self.fail("the fake library is not built: target fake_nvml_new")
        plain = harness.Daemon
        harness.Daemon = GpuDaemon
        self.addCleanup(setattr, harness, "Daemon", plain)
        self.script = pathlib.Path(f"/tmp/fake-nvml-{os.getpid()}-{time.monotonic_ns()}")
        self.addCleanup(self.script.unlink, missing_ok=True)
        self.lines = ["gpu * utilization 50"]
        self.write()
        GpuDaemon.library = LIBRARIES / self.library
        GpuDaemon.script = self.script if self.has_script else None
        super().setUp()

    def write(self, *more):
        self.lines += more
        new = self.script.with_suffix(".new")
        new.write_text("\n".join(self.lines) + "\n")
        new.rename(self.script)

    def submit(self, nodes=2, ranks=2):
        spec = harness.command_job("gpus", harness.PYTHON, "-c", SCRIPT, self.root,
                                   resources={"nodes": nodes, "ranks_per_node": ranks})
        job = self.daemon.submit(spec)
        self.daemon.wait_state(job["id"], "running")
        wait_until(lambda: len(list(self.root.glob("pid-?"))) == nodes * ranks, 20, "ranks run")
        return job["id"]

    def finish(self, job):
        (self.root / "go").touch()
        self.daemon.wait_state(job, "succeeded")

    def gpu_of(self, rank):
        return int((self.root / f"pid-{rank}").read_text())

    def values(self, family):
        """{labels: value} of /metrics."""
        found = re.findall(rf"^{family}\{{(.*)\}} (\S+)$", self.daemon.text("/metrics"), re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def wait_values(self, family, condition, what):
        return wait_until(lambda: condition(self.values(family)), 20, f"{family}: {what}")


class Gpus(GpuCase):
    def test_metrics_of_every_gpu_of_both_nodes(self):
        job = self.submit()
        self.write("gpu 3 utilization 97", "gpu 3 field 186 int 650000")
        self.wait_values("lockstep_gpu_utilization_ratio",
                         lambda v: len(v) == 16 and sorted(v.values())[-2:] == [0.97, 0.97], "16 GPUs")
        self.wait_values("lockstep_gpu_power_watts", lambda v: 650 in v.values(), "power")
        self.wait_values("lockstep_gpu_tensor_active_ratio", lambda v: len(v) == 16, "GPM")
        nodes = {labels.split(",")[0] for labels in self.values("lockstep_gpu_info")}
        self.assertEqual(len(nodes), 2)
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=self.daemon.text("/metrics"),
                                     text=True, capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        else:
            print("SKIPPED: promtool is not installed")
        self.finish(job)

    def test_ranks_have_their_gpus(self):
        job = self.submit()
        for rank in range(4):
            self.write(f"gpu {rank + 2} process {self.gpu_of(rank)} {rank + 1}000")

        def known():
            items = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]
            return items if all("gpus" in item for item in items) else None

        items = wait_until(known, 20, "every rank's GPU is known")
        self.assertEqual([item["gpu"] for item in items], [2, 3, 4, 5])
        self.assertEqual([item["gpus"][0]["memory_bytes"] for item in items], [1000, 2000, 3000, 4000])
        self.assertEqual(items[0]["gpus"][0]["utilization_ratio"], 0.5)
        self.assertIn("power_watts", items[0]["gpus"][0])
        self.assertIn("temperature_celsius", items[0]["gpus"][0])
        joined = self.values("lockstep_rank_info")
        self.assertEqual(sorted(re.search(r'gpu="(\d)"', labels)[1] for labels in joined), list("2345"))
        gpus = set(self.values("lockstep_gpu_utilization_ratio"))
        for labels in joined:  # the join of the catalogue has a partner for each
            node, gpu = re.search(r'node="([^"]+)"', labels)[1], re.search(r'gpu="(\d)"', labels)[1]
            self.assertIn(f'node="{node}",gpu="{gpu}"', gpus)
        shown = self.daemon.cli("ranks", job).stdout
        self.assertIn("GPU MEM", shown)
        self.assertIn("50%", shown)
        self.finish(job)

    def test_an_error_is_an_event_and_a_lost_gpus_series_go(self):
        job = self.submit()
        # An error from before an agent watches is none of its job's: both must be watching.
        self.wait_values("lockstep_gpu_utilization_ratio", lambda v: len(v) == 16, "both nodes are watched")
        self.write(f"gpu 6 process {self.gpu_of(1)} 1000")
        self.wait_values("lockstep_rank_info", lambda v: any('gpu="6"' in one for one in v), "rank 1's GPU")
        began = time.time()
        self.write("gpu 6 lost", "xid 6 79")
        self.wait_values("lockstep_gpu_utilization_ratio",
                         lambda v: len(v) == 14 and not any('gpu="6"' in one for one in v), "GPU 6 goes")

        def errors():
            events = [e for e in self.daemon.events(job) if e["kind"] == "gpu_xid"]
            return events if len(events) == 2 else None  # the script is of both nodes

        events = wait_until(errors, 20, "an event of each node")
        self.assertEqual({e["data"]["gpu"] for e in events}, {6})
        self.assertEqual({e["data"]["xid"] for e in events}, {79})
        self.assertEqual(len({e["node"] for e in events}), 2)
        self.assertEqual([e["rank"] for e in events if "rank" in e], [1], "node 1's GPU 6 was nobody's")
        times = self.wait_values("lockstep_gpu_xid_last_timestamp_seconds",
                                 lambda v: v if len(v) == 2 else None, "of each node")
        self.assertTrue(all('gpu="6",xid="79"' in labels for labels in times), times)
        self.assertTrue(all(began - 1 <= value <= time.time() + 1 for value in times.values()), times)
        self.finish(job)


class FailedGpu(GpuCase):
    def test_a_spare_takes_over_from_a_node_whose_gpu_failed_under_a_rank(self):
        self.daemon.stop()
        self.daemon.arguments = (*self.daemon.arguments, "--local-gpus", "8")
        self.daemon.start()
        job = self.daemon.submit(harness.command_job(
            "fails", harness.PYTHON, "-c", FAILING, self.root, preflight={"mode": "off"}, recovery={},
            resources={"nodes": 2, "spares": 1, "ranks_per_node": 1, "gpus_per_node": 1}))["id"]
        wait_until(lambda: (self.root / "pid-1-of-1").exists(), 20, "rank 1 runs")
        self.wait_values("lockstep_gpu_utilization_ratio", lambda v: len(v) == 24, "both nodes and the spare are watched")
        self.write(f"gpu 6 process {(self.root / 'pid-1-of-1').read_text()} 1000")
        self.wait_values("lockstep_rank_info", lambda v: any('gpu="6"' in one for one in v), "rank 1's GPU")
        self.write("xid 6 48")
        wait_until(lambda: [e for e in self.daemon.events(job) if e["kind"] == "gpu_xid" and e.get("rank") == 1],
                   20, "rank 1's GPU reports an error")
        self.assertEqual(self.daemon.job(job)["state"], "running")
        (self.root / "fail").touch()
        wait_until(lambda: (self.root / "pid-1-of-2").exists(), 20, "the next generation runs")
        self.finish(job)
        attempt = self.daemon.job(job)["attempts"][0]
        cause = attempt["generations"][0]["cause"]
        self.assertEqual(cause["class"], "gpu_fault", cause)
        self.assertIn("GPU 6 of ", cause["message"])
        self.assertIn("reported XID 48", cause["message"])
        self.assertEqual(attempt["lost_nodes"], [cause["node"]])


class OldDriver(GpuCase):
    library = "old"

    def test_it_has_less_and_nothing_fails(self):
        job = self.submit(nodes=1, ranks=1)
        self.wait_values("lockstep_gpu_utilization_ratio", lambda v: len(v) == 8, "8 GPUs")
        self.assertEqual(self.values("lockstep_gpu_tensor_active_ratio"), {})
        self.assertEqual(self.values("lockstep_gpu_recovery_action"), {})
        self.finish(job)


class NoDriver(GpuCase):
    has_script = False  # the library is there and says that no driver is loaded

    def test_one_line_and_no_series(self):
        job = self.submit(nodes=1, ranks=1)

        def said():
            logs = [path.read_text() for path in self.daemon.data.glob("runs/**/agent-*.log")]
            logs.append(self.daemon.log_tail(100_000))
            return [line for log in logs for line in log.splitlines() if "no GPU metrics" in line]

        wait_until(said, 20, "it is said")  # the driver is looked for beside the ranks' start
        self.finish(job)
        self.assertNotIn("lockstep_gpu", self.daemon.text("/metrics"))
        lines = said()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("Driver Not Loaded", lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
