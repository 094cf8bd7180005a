"""What only a real GPU shows: the driver's own numbers in /metrics, torch with NCCL, and what NCCL and
torch's flight recorder say of ranks that hang. Skipped aloud where there is no GPU (`tests/gpu`; ctest's gpu.gpu_real)."""

import pickle
import re
import subprocess
import unittest

import gpu_tests
import harness
from harness import wait_until

PROBE = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"


def gpus():
    if subprocess.run([harness.PYTHON, "-c", PROBE], capture_output=True, check=False).returncode != 0:
        return 0
    count = subprocess.run([harness.PYTHON, "-c", "import torch; print(torch.cuda.device_count())"],
                           capture_output=True, text=True, check=True)
    return int(count.stdout)


GPUS = gpus()


def has_gpm():
    """Whether each of them has GPM, which came with Hopper."""
    asked = f"import torch; print(all(torch.cuda.get_device_capability(i) >= (9, 0) for i in range({GPUS})))"
    return subprocess.run([harness.PYTHON, "-c", asked], capture_output=True, text=True, check=True).stdout.strip() == "True"


@gpu_tests.needs_gpu
@unittest.skipUnless(GPUS, f"no GPU that {harness.PYTHON}'s torch can use")
class RealGpu(harness.TestCase):
    def values(self, family):
        found = re.findall(rf"^{family}\{{(.*)\}} (\S+)$", self.daemon.text("/metrics"), re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def start(self, **environment):
        job = self.daemon.submit(harness.python_job(
            "gpu", "gpu_train.py", self.root / "go", environment=environment, framework="pytorch",
            resources={"nodes": 1, "ranks_per_node": GPUS, "gpus_per_node": GPUS}))

        def trains():
            if self.daemon.get(f"/v1/jobs/{job['id']}")["state"] in harness.FINAL:
                self.fail(self.daemon.rank_log(job["id"], 0))
            return self.daemon.get(f"/v1/jobs/{job['id']}/series?metric=loss")["series"]

        wait_until(trains, 120, "it trains")
        return job["id"]

    def finish(self, job):
        (self.root / "go").touch()
        done = self.daemon.wait_state(job, harness.FINAL, 120)
        self.assertEqual(done["state"], "succeeded", (done, self.daemon.rank_log(job, 0)))
        for rank in range(GPUS):
            self.assertIn(f"second communicator of {GPUS}: ", self.daemon.rank_log(job, rank))

    def test_a_gpu_that_trains_is_seen_to_train(self):
        job = self.start()
        wait_until(lambda: max(self.values("lockstep_gpu_utilization_ratio").values(), default=0) > 0.5, 60, "it works")
        between = {  # generous: a GPU that trains bf16 matrices of 8192
            "lockstep_gpu_memory_used_bytes": (2e9, 1e12), "lockstep_gpu_memory_total_bytes": (8e9, 1e12),
            "lockstep_gpu_power_watts": (60, 2000), "lockstep_gpu_power_limit_watts": (60, 2000),
            "lockstep_gpu_temperature_celsius": (10, 110), "lockstep_gpu_clock_hertz": (3e8, 1e10)}
        if has_gpm():
            wait_until(lambda: max(self.values("lockstep_gpu_tensor_active_ratio").values(), default=0) > 0.05, 60,
                       "its tensor cores work")
            between |= {"lockstep_gpu_sm_active_ratio": (0.2, 1), "lockstep_gpu_dram_active_ratio": (0.01, 1)}
        else:
            print("NOT LOOKED AT: lockstep_gpu_tensor_active_ratio, _sm_active_ratio and _dram_active_ratio: a GPU older than Hopper, "
                  "which has no GPM")
        for family, (low, high) in between.items():
            # A mean over the time since the look before is right from the second look on.
            def high_enough(family=family, low=low):
                values = self.values(family)
                return values if values and min(values.values()) >= low else None
            found = wait_until(high_enough, 20, f"{family} is there, and at least {low}")
            for labels, value in found.items():
                self.assertTrue(low <= value <= high, f"{family}{{{labels}}} {value}")
        energy = "lockstep_gpu_energy_joules_total"
        before = sum(self.values(energy).values())
        wait_until(lambda: sum(self.values(energy).values()) > before + 50, 60, "energy is counted")
        items = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]
        self.assertEqual([item["gpu"] for item in items], list(range(GPUS)))
        self.assertGreater(items[0]["gpus"][0]["memory_bytes"], 5e8)
        print(self.daemon.cli("top", job, "--once").stdout)
        for line in self.daemon.text("/metrics").splitlines():
            if line.startswith("lockstep_gpu_"):
                print(line)
        self.finish(job)

    def test_nccl_and_the_flight_recorder_say_what_ranks_wait_for(self):
        job = self.start()  # that asks for neither: the agent sets what they need
        self.daemon.cli("evidence", job, "--now")
        item = self.daemon.get(f"/v1/jobs/{job}/evidence")["items"][0]
        names = {one["name"] for rank in item["ranks"] for one in rank.get("files", [])}
        self.assertLessEqual({"ras.txt", "flight-recorder"}, names, item)
        ras = self.daemon.cli("evidence", job, "--rank", "0", "--what", "ras").stdout
        print(ras)
        self.assertIn("NCCL version", ras)
        status, _, dump = self.daemon.request("GET", f"/v1/jobs/{job}/evidence/flight-recorder?rank=0")
        self.assertEqual(status, 200)
        recorded = pickle.loads(dump)
        print({key: value for key, value in recorded.items() if key != "entries"}, len(recorded["entries"]))
        self.assertIn("nccl:all_reduce", {entry["profiling_name"] for entry in recorded["entries"]})
        self.finish(job)


if __name__ == "__main__":
    harness.main()
