"""preflight.gpu_test: real agents that run a FAKE lockstep-gpu-test, which says of each node what a test
wants and touches no GPU; the real one on a real GPU is ctest's gpu_test.every_gpu, and gpu.preflight_nccl's."""

import json
import os
import time

import harness
import test_preflight

# What a node's two GPUs are: good, wrong, memory, slow, copy, cool, broken, hang; one word a GPU.
PROGRAM = """#!{python}
import json, os, pathlib, subprocess, sys, time
folder = pathlib.Path({folder!r})
me = os.environ["FAKE_NODE"].rpartition("-")[2]
bad = dict(line.split(None, 1) for line in (folder / "bad").read_text().splitlines())
words = bad.get(me, "good good").split()
with open(folder / "told", "a") as told:
    print(me, *[name for name in os.environ if name.startswith(("LOCKSTEP_", "SLURM_"))], file=told)
if words[0] in ("crash", "old", "dead"):
    if words[0] == "crash":
        sys.exit("cannot load libcuda")
    print(json.dumps({{"error": "no GPU can be used: " + words[0], "code": 35 if words[0] == "old" else 802}}))
    sys.exit(77)
if words[0] == "noise":
    print("Segmentation fault or so")
    sys.exit(0)
print(json.dumps({{"gpus": len(words)}}), flush=True)
for gpu, word in enumerate(words):
    who = {{"gpu": gpu, "uuid": "GPU-" + me + "-" + str(gpu), "name": "Fake GPU" if word != "other" else "Fake Pro"}}
    if word == "hang":
        continue
    if word == "broken":
        print(json.dumps({{**who, "error": "cudaSetDevice: unknown error"}}), flush=True)
        continue
    slow = {{"slow": "gemm_flops", "other": "gemm_flops", "copy": "copy_bytes_per_second", "cool": "clock_hz"}}.get(word)
    rates = {{"gemm_flops": 3e14, "memory_bytes_per_second": 2.5e12, "copy_bytes_per_second": 5e10, "clock_hz": 1.9e9}}
    rates = {{name: rate / 3 if name == slow else rate for name, rate in rates.items()}}
    print(json.dumps({{**who, **rates, "gemm_wrong": 4 * (word == "wrong"), "memory_wrong": 7 * (word == "memory"),
                      "driver": 13000, "memory_bytes": 7e10, "seconds": 1.0}}), flush=True)
if "hang" in words:
    child = subprocess.Popen(["sleep", "1000"])
    with open(folder / "pids", "a") as told:
        print(os.getpid(), child.pid, file=told)
    time.sleep(1000)
sys.exit(any(word in ("wrong", "memory", "broken") for word in words))
"""


class GpuTest(test_preflight.PreflightCase):
    def gpus(self, bad="", program=None):
        """`bad`: a line for each node whose GPUs are not all good, "n1 good wrong"."""
        (self.root / "bad").write_text(bad)
        (self.root / "told").write_text("")
        if program is None:
            program = self.root / "fake-gpu-test"
            program.write_text(PROGRAM.format(python=harness.PYTHON, folder=str(self.root)))
            program.chmod(0o755)
        tree = self.tree("node", {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1  Sat\n",
                                  "dev/nvidia0": "", "dev/nvidia1": "", "dev/kmsg": ""})
        self.spoil("", before="FAKE_NODE=$7; export FAKE_NODE;",
                   arguments=f"--gpu-test-program {program} --preflight-root {tree}")
        self.daemon.stop()
        self.daemon.arguments = (*self.daemon.arguments, "--local-gpus", "8")
        self.daemon.start()

    def job(self, nodes=2, spares=0, **preflight):
        return self.daemon.submit(harness.command_job(
            "meet", "/bin/echo", "hi", preflight=preflight or {"gpu_test": True},
            resources={"nodes": nodes, "ranks_per_node": 1, "gpus_per_node": 2, "spares": spares}))["id"]

    def of_test(self, findings):
        return [(one["node"].rpartition("-")[2], one["severity"], one["found"]) for one in findings
                if one["check"] == "gpu_test"]

    def findings(self, job):
        return self.of_test(one for attempt in job["attempts"] for one in attempt.get("preflight", []))

    def checked(self, code, nodes=2):
        done = self.cli("nodes", "check", "--nodes", str(nodes), "--gpus", "2", "--gpu-test", "--json", code=code)
        return self.of_test(json.loads(done.stdout)["findings"])

    def test_good_gpus_have_no_finding_and_the_program_sees_nothing_of_the_attempt(self):
        self.gpus()
        self.assertEqual(self.checked(code=0), [])
        done = self.daemon.wait_state(self.job(), harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", []))
        self.assertEqual(sorted((self.root / "told").read_text().splitlines()), ["n0", "n0", "n1", "n1"])

    def test_a_spare_takes_the_place_of_a_node_with_a_gpu_that_computes_wrong(self):
        self.gpus("n1 good wrong\n")
        done = self.daemon.wait_state(self.job(spares=1), harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.findings(done), [
            ("n1", "fail", "GPU 1 (GPU-n1-1) has computed 4 wrong values of a product of matrices")])
        self.assertTrue(done["attempts"][0]["lost_nodes"][0].endswith("-n1"), done["attempts"])

    def test_without_a_spare_memory_that_is_wrong_is_the_jobs_cause(self):
        self.gpus("n0 memory good\n")
        done = self.daemon.wait_state(self.job(), harness.FINAL)
        self.assertEqual((done["state"], done["cause"]["class"]), ("failed", "gpu_fault"), done)
        self.assertTrue(done["cause"]["node"].endswith("-n0"), done["cause"])
        self.assertIn("GPU 0 (GPU-n0-0) has read 7 wrong values from its memory", done["cause"]["message"])

    def test_slow_ones_are_named_with_the_median_of_their_model(self):
        self.gpus("n0 good slow\nn1 copy cool\nn2 other good\n")
        found = self.checked(code=1, nodes=3)
        self.assertEqual(sorted(found), [
            ("n0", "fail", "GPU 1 (GPU-n0-1) multiplies matrices at 100 TFLOP/s"),
            ("n1", "fail", "GPU 0 (GPU-n1-0) is copied to from host memory at 16.7 GB/s"),
            ("n1", "warn", "GPU 1 (GPU-n1-1) has a clock under load of 633 MHz")])
        shown = self.cli("nodes", "check", "--nodes", "3", "--gpus", "2", "--gpu-test", code=1)
        self.assertIn("at least 50 % of the median of 5 Fake GPU here, 300 TFLOP/s", " ".join(shown.stdout.split()))

    def test_one_that_hangs_is_given_up_and_named_with_what_the_others_said(self):
        self.gpus("n1 wrong hang\n")
        began = time.monotonic()
        found = self.checked(code=1)
        self.assertLess(time.monotonic() - began, 40)
        self.assertEqual(found, [
            ("n1", "fail", "the test of its GPUs: not over within 20 s; without a result: GPU 1"),
            ("n1", "fail", "GPU 0 (GPU-n1-0) has computed 4 wrong values of a product of matrices")])
        pids = [int(pid) for pid in (self.root / "pids").read_text().split()]
        harness.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 20, "they are gone")

    def test_what_cannot_be_tested_is_said_and_only_a_broken_gpu_fails(self):
        for bad, code, expected in (
                ("n1 old\n", 0, ("warn", "its GPUs were not tested: no GPU can be used: old")),
                ("n1 dead\n", 1, ("fail", "the test of its GPUs: no GPU can be used: dead")),
                ("n1 crash\n", 1, ("fail", "the test of its GPUs: exit code 1: cannot load libcuda")),
                ("n1 good\n", 1, ("fail", "CUDA sees 1 GPU")),
                ("n1 broken good\n", 1, ("fail", "GPU 0 (GPU-n1-0) could not be tested: cudaSetDevice: unknown error"))):
            with self.subTest(bad):
                self.gpus(bad)
                self.assertEqual(self.checked(code=code), [("n1", *expected)])
        self.gpus("n1 noise\n")
        found = self.checked(code=1)
        self.assertEqual([one[:2] for one in found], [("n1", "fail")])
        self.assertIn("its answer is not understood", found[0][2])

    def test_without_the_program_it_is_said_and_the_job_runs(self):
        self.gpus(program=self.root / "nothing")
        done = self.daemon.wait_state(self.job(), harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", [
            (node, "warn", "lockstep-gpu-test is not installed: its GPUs were not tested") for node in ("n0", "n1")]))

    def test_nobody_is_tested_unless_the_job_asks(self):
        self.gpus("n0 wrong wrong\n")
        done = self.daemon.wait_state(self.job(mode="on"), harness.FINAL)
        self.assertEqual((done["state"], (self.root / "told").read_text()), ("succeeded", ""))


if __name__ == "__main__":
    harness.main()
