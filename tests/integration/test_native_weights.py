"""Weights in and out of the native trainer: a MobileNetV2 made by PyTorch itself trains as a job, and what the
job leaves is what went in. PyTorch, under torchvision's names, says what the loss must be; the `safetensors`
package of PyPI reads the file where a registry can be reached.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import harness

BUILT = (harness.BIN / "lockstep-train").exists()


def read_safetensors(path):
    """{name: bytes}, metadata."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    values, metadata = raw[8 + length:], header.pop("__metadata__")
    return {name: values[slice(*entry["data_offsets"])] for name, entry in header.items()}, metadata


@unittest.skipUnless(BUILT, "SKIPPED: lockstep-train is not built here")
class NativeWeights(harness.TestCase):
    def folder(self):
        temporary = tempfile.TemporaryDirectory(prefix="lockstep-weights-")
        self.addCleanup(temporary.cleanup)
        return pathlib.Path(temporary.name)

    def spec(self, folder, name, **train):
        return {"name": name, "framework": "native", "working_directory": str(folder),
                "checkpoint": {"directory": str(folder / name)},
                "train": {"epochs": 1, "loader_workers": 1, "checkpoint_every_steps": 0, **train}}

    @unittest.skipUnless(harness.has_module("torch"), "SKIPPED: python3-torch is not installed")
    def test_pytorchs_mobilenet_has_pytorchs_loss_and_comes_back_as_it_went_in(self):
        folder = self.folder()
        subprocess.run([harness.PYTHON, str(harness.FIXTURES / "torch_mobilenet.py"), str(folder)], check=True)
        expected = json.loads((folder / "expected.json").read_text())
        jobs = {}
        for side in ("0", "64"):
            # One step over all samples that changes next to nothing: its loss is that of the weights.
            jobs[side] = self.daemon.submit(self.spec(
                folder, f"side-{side}", model="mobilenet_v2", norm_mode="eval", dropout=0, optimizer="sgd",
                momentum=0, learning_rate=1e-12, max_steps=1, batch_size=expected["samples"],
                weights="weights.safetensors",
                dataset={"name": "cifar10", "path": "cifar", "resize": int(side)}))
        for side, job in jobs.items():
            done = self.daemon.wait_state(job["id"], harness.FINAL, 120)
            self.assertEqual(done["state"], "succeeded", (done, self.daemon.rank_log(job["id"])))
            loss = self.daemon.series(job["id"])[0][0][3]
            self.assertAlmostEqual(loss, expected["loss"][side], delta=1e-4, msg=side)
        before, _ = read_safetensors(folder / "weights.safetensors")
        after, metadata = read_safetensors(folder / "side-0" / "model.safetensors")
        self.assertEqual(metadata, {"format": "pt", "model": "mobilenet_v2", "step": "1"})
        counters = {name for name in before if name.endswith(".num_batches_tracked")}
        self.assertEqual(set(after), set(before) - counters)
        for name, values in after.items():
            for old, new in zip(struct.iter_unpack("<f", before[name]), struct.iter_unpack("<f", values)):
                self.assertAlmostEqual(old[0], new[0], delta=1e-6, msg=name)

    def test_a_run_begins_with_what_another_left_with_a_new_head(self):
        folder = self.folder()
        small = {"model": "mlp", "train_samples": 640, "test_samples": 100, "max_steps": 5}
        first = self.daemon.submit(self.spec(folder, "first", **small))
        self.assertEqual(self.daemon.wait_state(first["id"], harness.FINAL, 120)["state"], "succeeded")
        last = self.daemon.series(first["id"])[0][-1][3]
        second = self.daemon.submit(self.spec(folder, "second", **small, dropout=0,
                                              weights="first/model.safetensors"))
        self.assertEqual(self.daemon.wait_state(second["id"], harness.FINAL, 120)["state"], "succeeded")
        self.assertLess(self.daemon.series(second["id"])[0][0][3], last + 0.5, "it goes on from there")
        self.assertIn("weights imported", self.daemon.rank_log(second["id"]))

    def test_other_weights_fail_the_job_before_it_trains(self):
        folder = self.folder()
        (folder / "torn.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
        job = self.daemon.submit(self.spec(folder, "torn", train_samples=640, weights="torn.safetensors"))
        done = self.daemon.wait_state(job["id"], harness.FINAL, 60)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(done["cause"]["exit_code"], 2, done)
        self.assertIn("not a safetensors file", json.dumps(done["cause"]) + self.daemon.rank_log(job["id"]))
        self.assertEqual(self.daemon.series(job["id"]), {})

    def test_weights_that_are_no_number_fail_the_job_at_step_one_with_a_cause_that_says_so(self):
        folder = self.folder()
        small = {"model": "mlp", "train_samples": 640, "test_samples": 100, "max_steps": 5}
        first = self.daemon.submit(self.spec(folder, "good", **small))
        self.assertEqual(self.daemon.wait_state(first["id"], harness.FINAL, 120)["state"], "succeeded")
        raw = bytearray((folder / "good" / "model.safetensors").read_bytes())
        raw[-4000:] = struct.pack("<f", float("nan")) * 1000
        (folder / "broken.safetensors").write_bytes(raw)
        for policy in ("warn", "stop"):
            with self.subTest(policy):
                spec = self.spec(folder, policy, **small, weights="broken.safetensors")
                job = self.daemon.submit({**spec, "resources": {"ranks_per_node": 2},
                                          "recovery": {"on_nonfinite_loss": policy}})
                done = self.daemon.wait_state(job["id"], harness.FINAL, 60)
                self.assertEqual(done["state"], "failed", done)
                if policy == "warn":
                    self.assertEqual((done["cause"]["class"], done["cause"]["exit_code"]), ("rank_exit", 2), done)
                    self.assertIn("step 1: the loss is nan", json.dumps(done["cause"]))
                else:  # lockstepd and the rank both saw it; whoever was first is the cause
                    self.assertIn(done["cause"]["class"], ("nonfinite_loss", "rank_exit"), done)
                    self.assertRegex(json.dumps(done["cause"]), "step 1|NaN")
                self.assertFalse(list((folder / policy).glob("*.ckpt")))

    def test_pythons_safetensors_reads_what_is_written(self):
        folder = self.folder()
        packages = folder / "packages"
        got = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages),
                              "safetensors", "numpy"], capture_output=True, text=True)
        if got.returncode != 0:
            self.skipTest("SKIPPED: no package index gives safetensors: " + got.stderr.strip()[-200:])
        job = self.daemon.submit(self.spec(folder, "read", train_samples=640, test_samples=100, max_steps=3))
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 120)["state"], "succeeded")
        script = ("import json, sys; from safetensors.numpy import load_file; from safetensors import safe_open\n"
                  "state = load_file(sys.argv[1])\n"
                  "print(json.dumps({name: [list(value.shape), str(value.dtype)] for name, value in state.items()}))\n"
                  "with safe_open(sys.argv[1], 'np') as file: assert file.metadata()['model'] == 'mnist_convnet'\n")
        read = subprocess.run([sys.executable, "-c", script, str(folder / "read" / "model.safetensors")],
                              env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=True)
        state = json.loads(read.stdout)
        self.assertEqual(state["conv_2.kernel"], [[24, 12, 6, 6], "float32"])
        self.assertEqual(state["norm_3.moving_variance"], [[32], "float32"])
        self.assertEqual(len(state), 17)


if __name__ == "__main__":
    harness.main()
