"""Every strategy of the native trainer as a job: the table of job/trainer/README.md, run by a real lockstepd.

The specifications are read out of the document, so what it shows is what runs.
"""

import json
import re
import unittest

import harness

README = harness.SOURCE / "job" / "trainer" / "README.md"
BUILT = (harness.BIN / "lockstep-train").exists()
# Sizes of a test: the same jobs, shorter.
SHORT = {"train_samples": 640, "test_samples": 100, "batch_size": 16, "max_steps": 6,
         "checkpoint_every_steps": 0}


def specifications():
    """(what it is, specification) of every row that has one."""
    rows = re.findall(r"^\| ([^|]+) \| `(\{.*\})` \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    return [(what.strip(), json.loads(text.replace("\\|", "|"))) for what, text in rows]


@unittest.skipUnless(BUILT, "SKIPPED: lockstep-train is not built here")
class NativeStrategies(harness.TestCase):
    def test_every_row_of_the_table_trains(self):
        rows = specifications()
        self.assertGreaterEqual(len(rows), 10)
        jobs = []
        for what, fields in rows:
            spec = {"name": "row", "framework": "native", **fields}
            spec["train"] = {**spec.get("train", {}), **SHORT}
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
                ({"train": {"precision": "fp16"}}, "/train/precision", "not available yet")):
            with self.subTest(word):
                status, answer = self.daemon.api("POST", "/v1/jobs", {"name": "no", "framework": "native", **fields})
                self.assertEqual(status, 400, answer)
                self.assertEqual([e["pointer"] for e in answer["errors"]], [pointer], answer)
                self.assertIn(word, answer["errors"][0]["message"])


if __name__ == "__main__":
    harness.main()
