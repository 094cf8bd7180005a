"""What NCCL's Inspector plugin measures of real jobs' ranks: with a DOUBLE of the plugin, which posts what NCCL's own has
posted (tests/fixtures/inspector), and with the plugin itself where LOCKSTEP_NCCL_INSPECTOR names it: driven as NCCL drives
it, without a GPU (tests/support/inspector_rank.py). The plugin wants a libcuda.so.1 and a libcudart.so, real or not:

    LOCKSTEP_NCCL_INSPECTOR=/opt/nccl/libnccl-profiler-inspector.so ctest --test-dir build -R gpu.nccl_inspector"""

import os
import pathlib

import gpu_tests
import harness
import test_nccl

PROGRAM = pathlib.Path(harness.__file__).parent / "inspector_rank.py"
POSTED = PROGRAM.parent.parent / "fixtures" / "inspector" / "aggregated.json"
FAMILY = "lockstep_rank_nccl_bus_bandwidth_bytes_per_second"


class Case(harness.TestCase):
    def submit(self, *arguments, plugin=None, **environment):
        if plugin:
            environment["LOCKSTEP_NCCL_INSPECTOR"] = str(plugin)
        job = harness.python_job("inspected", PROGRAM, *arguments, environment=environment,
                                 resources={"nodes": 2, "ranks_per_node": 2})
        return self.daemon.submit(job)["id"]

    def bandwidths(self, job_id, collective="all_reduce", nodes="many"):
        """By rank, bytes a second, of /metrics."""
        out = {}
        for line in self.daemon.text("/metrics").splitlines():
            if line.startswith(FAMILY + "{") and f'job_id="{job_id}"' in line and \
                    f'collective="{collective}",nodes="{nodes}"' in line:
                out[int(line.split('rank="')[1].split('"')[0])] = float(line.rsplit(" ", 1)[1])
        return out


class WithTheDouble(Case):
    def plugin(self, content="DOUBLE of the plugin: NCCL_INSPECTOR_OTEL_EXPORT"):
        path = self.daemon.root / "double.so"
        path.write_text(content)
        return path

    def test_each_rank_has_its_own_bandwidth_in_metrics_and_history(self):
        job_id = self.submit(4000, POSTED, plugin=self.plugin())  # 200 s of them; it is cancelled
        harness.wait_until(lambda: len(self.bandwidths(job_id)) == 4, 60, "all ranks have posted")
        one = 64 * 2**20 / 0.004 * 1.5
        for rank, value in self.bandwidths(job_id).items():
            self.assertAlmostEqual(value, one * (rank + 1), delta=10, msg=f"rank {rank}")
        self.assertEqual(sorted(self.bandwidths(job_id, "broadcast", "one")), [0, 1, 2, 3])
        self.assertEqual(self.bandwidths(job_id, "broadcast", "many"), {})
        series = self.daemon.series(job_id, "nccl_bus_bandwidth_all_reduce_many", x="time")
        self.assertAlmostEqual(series[3][0][1], one * 4, delta=10)
        for rank in range(4):
            # They wait after what they have printed.
            log = self.daemon.rank_log(job_id, rank)
            self.assertIn("the DOUBLE of the plugin was answered 200\nwith another token 401\nwith something else 400", log)
        text = self.daemon.cli("evidence", job_id, "--now", "--rank", "3", "--what", "nccl").stdout
        self.assertRegex(text, "all_reduce +many nodes +100.663 GB/s bus bandwidth, 4 ranks")
        output = self.daemon.root / "profile"
        done = self.daemon.cli("profile", job_id, "--ranks", "3", "--seconds", "1", "--output", output, check=False)
        table = output / "rank-00003.collectives.txt"
        self.assertTrue(table.exists(), f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        table = table.read_text()
        self.assertRegex(table, r"\nall_reduce +67108864 +4 +2 +100\.663 +100\.663 +16000\.0 +16000\.0 +\d+  RING_")
        self.daemon.cli("cancel", job_id)
        self.daemon.wait_state(job_id, harness.FINAL, 60)
        folder = next((self.daemon.data / "runs" / job_id).iterdir())
        harness.wait_until(lambda: all("agent ends" in (folder / f"agent-0000{node}.log").read_text() for node in (0, 1)),
                           60, "the agents end, which have listened")

    def test_without_a_plugin_ranks_are_told_nothing(self):
        for plugin, more in ((None, {}), ("off", {}), (self.plugin(), {"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}),
                             (self.plugin(), {"NCCL_INSPECTOR_ENABLE": "0"})):
            job_id = self.submit(0, POSTED, plugin=plugin, **more)
            done = self.daemon.wait_state(job_id, harness.FINAL, 60)
            self.assertEqual(done["state"], "succeeded", done)
            self.assertIn(f"no plugin {sorted(more)}", self.daemon.rank_log(job_id, 0))
            self.assertNotIn("Inspector", " ".join(done.get("warnings", ())))

    def test_a_plugin_that_cannot_be_used_is_said_so(self):
        job_id = self.submit(0, POSTED, plugin=self.plugin("an Inspector of NCCL 2.28"))
        done = self.daemon.wait_state(job_id, harness.FINAL, 60)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertIn("is not an Inspector that sends OTLP", " ".join(done["warnings"]))
        self.assertIn("no plugin []", self.daemon.rank_log(job_id, 3))


@gpu_tests.needs_gpu
class WithThePlugin(Case):
    def setUp(self):
        self.path = os.environ.get("LOCKSTEP_NCCL_INSPECTOR")
        if not self.path:
            self.skipTest("LOCKSTEP_NCCL_INSPECTOR does not name NCCL's Inspector plugin, which NCCL's packages do not have")
        super().setUp()

    def test_what_it_measures_of_each_rank_is_in_metrics(self):
        more = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        job_id = self.submit(400, plugin=self.path, **more)
        harness.wait_until(lambda: len(self.bandwidths(job_id)) == 4, 60, "all ranks have posted")
        for rank, value in self.bandwidths(job_id).items():
            self.assertAlmostEqual(value, ((rank + 1) << 20) / 500e-6 * 1.5, delta=1e3, msg=f"rank {rank}")
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual(done["state"], "succeeded", self.daemon.rank_log(job_id, 0))
        self.assertIn("plugin: NCCL Inspector OTEL: exporting", self.daemon.rank_log(job_id, 0))


@gpu_tests.needs_gpu
class OnAGpu(Case):
    """The plugin in NCCL itself: four ranks that share one GPU."""

    def setUp(self):
        self.path = os.environ.get("LOCKSTEP_NCCL_INSPECTOR")
        why = gpu_tests.no_gpu() or ("" if self.path else "a GPU, but LOCKSTEP_NCCL_INSPECTOR does not name NCCL's Inspector plugin")
        self.library = test_nccl.real_nccl()
        if not why and self.library is None:
            why = "a GPU, but no libnccl.so.2"
        why = why or gpu_tests.no_sharing(self.library)
        if why:
            self.skipTest(why)
        super().setUp()

    def test_every_rank_of_a_real_nccl_has_its_bandwidth(self):
        job_id = self.daemon.submit(harness.command_job(
            "inspected", test_nccl.PROGRAM, "--nccl", self.library, "--floats", "1048576", "--steps", "1000000",
            resources={"nodes": 1, "ranks_per_node": 4, "gpus_per_node": 1, "ranks_per_gpu": 4},
            environment={"NCCL_MAX_CTAS": "4", "LOCKSTEP_NCCL_INSPECTOR": str(self.path)}))["id"]

        def posted():
            job = self.daemon.get(f"/v1/jobs/{job_id}")
            if job["state"] in harness.FINAL:
                self.fail(f"{job}\n{self.daemon.rank_log(job_id, 0)}")
            return len(self.bandwidths(job_id, nodes="one")) == 4
        harness.wait_until(posted, 60, "all ranks have posted")
        found = self.bandwidths(job_id, nodes="one")
        gpu_tests.figure("NCCL's Inspector: bus bandwidth of 4 MiB all-reduces of four ranks on one GPU", max(found.values()) / 1e9,
                         "GB/s")
        self.assertTrue(all(1e6 < value < 1e13 for value in found.values()), found)
        output = self.root / "profile"
        done = self.daemon.cli("profile", job_id, "--ranks", "3", "--seconds", "3", "--output", output, check=False)
        table = output / "rank-00003.collectives.txt"
        self.assertTrue(table.exists(), f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        print(table.read_text())
        # Bytes, ranks, nodes, and the bus bandwidth in GB/s.
        self.assertRegex(table.read_text(), r"\nall_reduce +4194304 +4 +1 +[0-9.]*[1-9][0-9.]* ")
        self.daemon.cli("cancel", job_id)
        self.assertNotIn("Inspector", " ".join(self.daemon.wait_state(job_id, harness.FINAL, 60).get("warnings", ())))


if __name__ == "__main__":
    harness.main()
