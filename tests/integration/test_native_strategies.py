"""Every strategy of the native trainer as a job: the table of job/trainer/README.md, run by a real lockstepd.

The specifications are read out of the document, so what it shows is what runs.
"""

import gzip
import json
import pathlib
import random
import re
import struct
import tempfile
import unittest

import harness
import image_files

README = harness.SOURCE / "job" / "trainer" / "README.md"
BUILT = (harness.BIN / "lockstep-train").exists()
# Sizes of a test: the same jobs, shorter.
SHORT = {"batch_size": 16, "max_steps": 6, "checkpoint_every_steps": 0}
FEW_DIGITS = {"train_samples": 640, "test_samples": 100}


def specifications():
    """(what it is, specification) of every row that has one."""
    rows = re.findall(r"^\| ([^|]+) \| `(\{.*\})` \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    return [(what.strip(), json.loads(text.replace("\\|", "|"))) for what, text in rows]


def make_files(folder):
    """What the specifications name, as small as it can be."""
    chance = random.Random(1)
    cifar = folder / "cifar-10-batches-bin"
    cifar.mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (cifar / f"{name}.bin").write_bytes(b"".join(
            bytes([chance.randrange(10)]) + chance.randbytes(3 * 32 * 32) for _ in range(8)))
    make_mnist(folder)
    image_files.write(folder / "imagenet", each=6)
    make_pairs(folder)
    (folder / "housing.data").write_text("".join(
        " ".join(f"{chance.uniform(0, 50):.4f}" for _ in range(14)) + "\n" for _ in range(200)))
    (folder / "text.txt").write_text("the ranks keep step, the ranks keep time; " * 100)


def make_mnist(folder):
    """MNIST's four files, packed as they are published, of 40 images each."""
    (folder / "mnist").mkdir()
    chance = random.Random(3)
    for prefix in ("train", "t10k"):
        for name, header, size in (("images-idx3", struct.pack(">IIII", 0x803, 40, 28, 28), 40 * 28 * 28),
                                   ("labels-idx1", struct.pack(">II", 0x801, 40), 40)):
            body = bytes(chance.randrange(10) for _ in range(size))
            (folder / "mnist" / f"{prefix}-{name}-ubyte.gz").write_bytes(gzip.compress(header + body))


def make_pairs(folder):
    chance = random.Random(2)
    words = ["".join(chance.choices("abcd", k=3)) for _ in range(300)]
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))


def shortened(train):
    """A row's `train` for a test."""
    out = {**train, **SHORT}
    if "dataset" not in train:
        return {**out, **FEW_DIGITS}
    if train["dataset"].get("resize", 0) > 0:
        out["dataset"] = {**train["dataset"], "resize": 64}
    if train["dataset"]["name"] == "images":
        out["dataset"] = {**train["dataset"], "resize": 32}
    return out


@unittest.skipUnless(BUILT, "SKIPPED: lockstep-train is not built here")
@unittest.skipUnless(image_files.available(), "SKIPPED: Pillow (python3-pil) is not installed here")
class NativeStrategies(harness.TestCase):
    def files(self):
        """A folder with all that the rows name; the weights are what a run of one step leaves."""
        temporary = tempfile.TemporaryDirectory(prefix="lockstep-native-")
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        make_files(folder)
        job = self.daemon.submit({
            "name": "weights", "framework": "native", "checkpoint": {"directory": str(folder / "weights")},
            "train": {"model": "mobilenet_v2", **SHORT, **FEW_DIGITS, "max_steps": 1}})
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 120)["state"], "succeeded")
        (folder / "weights" / "model.safetensors").rename(folder / "mobilenet_v2.safetensors")
        return folder

    def test_every_row_of_the_table_trains(self):
        folder = self.files()
        rows = specifications()
        self.assertGreaterEqual(len(rows), 10)
        jobs = []
        for what, fields in rows:
            spec = {"name": "row", "framework": "native", "working_directory": str(folder), **fields}
            spec["train"] = shortened(spec.get("train", {}))
            jobs.append((what, spec, self.daemon.submit(spec)))
        for what, spec, job in jobs:
            with self.subTest(what):
                done = self.daemon.wait_state(job["id"], harness.FINAL, 180)
                self.assertEqual(done["state"], "succeeded", done)
                servers = sum(r["count"] for r in spec.get("roles", []) if r["name"] == "ps")
                resources = spec.get("resources", {})
                ranks = resources.get("nodes", 1) * resources.get("ranks_per_node", 1)
                self.assertEqual(sorted(self.daemon.series(job["id"])), list(range(servers, ranks)),
                                 "every rank that trains has a loss")
                if servers:
                    self.assertEqual(sorted(self.daemon.series(job["id"], "staleness")),
                                     list(range(servers, ranks)))

    def test_what_cannot_be_is_refused_before_anything_starts(self):
        for fields, pointer, word in (
                ({"train": {"strategy": "pipeline", "model": "mlp"}, "resources": {"ranks_per_node": 5}},
                 "/train/strategy", "5 stages, but model mlp has 4 layers"),
                ({"train": {"strategy": "parameter_server"}, "resources": {"ranks_per_node": 2}},
                 "/roles", "a role ps and a role worker"),
                ({"train": {"strategy": "replicated"}, "resources": {"ranks_per_node": 2}},
                 "/train/strategy", "one process with several devices"),
                ({"train": {"strategy": "pipeline", "batch_size": 30}}, "/train/micro_batches", "not a multiple"),
                ({"train": {"precision": "fp16"}}, "/train/precision", "needs GPUs")):
            with self.subTest(word):
                status, answer = self.daemon.api("POST", "/v1/jobs", {"name": "no", "framework": "native", **fields})
                self.assertEqual(status, 400, answer)
                self.assertEqual([e["pointer"] for e in answer["errors"]], [pointer], answer)
                self.assertIn(word, answer["errors"][0]["message"])


if __name__ == "__main__":
    harness.main()
