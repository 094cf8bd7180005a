"""TORCHELASTIC_ERROR_FILE without the Python hooks: what torch's @record writes into it is the cause, though nothing was
printed."""

import unittest

import harness
from harness import PYTHON

# As torch/distributed/elastic/multiprocessing/errors/error_handler.py writes it.
WRITES = """
import json, os, sys, time
if os.environ["LOCKSTEP_GENERATION"] != "1":
    sys.exit(3)
if os.environ["RANK"] != "1":
    time.sleep(600)
assert "_lockstep_hooks" not in sys.modules
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": {"message": "ValueError: label 17 out of range: 10 classes", "extraInfo": {
        "py_callstack": "Traceback (most recent call last):\\n  File \\"train.py\\", line 7, in read_labels\\n"
                        "ValueError: label 17 out of range: 10 classes\\n",
        "timestamp": str(int(time.time()))}}}, file)
sys.exit(1)
"""

# Its own traceback goes nowhere: the file alone speaks.
RECORDS = """
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record

def read_labels():
    raise ValueError("label 17 out of range")

@record
def main():
    if os.environ["RANK"] == "1":
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        read_labels()
    time.sleep(600)

main()
"""


class ErrorFile(harness.TestCase):
    def job(self, code, **fields):
        script = self.root / "train.py"
        script.write_text(code)
        spec = {"name": "recorded", "framework": "pytorch", "command": [PYTHON, str(script)],
                "environment": {"LOCKSTEP_PYTHON_HOOKS": "off"},
                "resources": {"nodes": 1, "ranks_per_node": 2}, **fields}
        done = self.daemon.wait_state(self.daemon.submit(spec)["id"], harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        return done

    def test_what_the_file_says_is_the_cause(self):
        done = self.job(WRITES)
        cause = done["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["exit_code"]), ("rank_exit", 1, 1), cause)
        self.assertEqual(cause["exception"]["type"], "ValueError", cause)
        self.assertIn("label 17 out of range: 10 classes", cause["message"])
        self.assertEqual(self.daemon.rank_log(done["id"], 1), "", "nothing was printed: only the file has said it")
        show = self.daemon.cli("show", done["id"]).stdout
        self.assertIn("rank 1 on ", show)
        self.assertIn("in read_labels", show)
        self.assertIn("ValueError: label 17 out of range: 10 classes", show)

    def test_a_file_of_the_generation_before_speaks_for_no_other(self):
        done = self.job(WRITES, recovery={"max_restarts": 1})
        first, second = (one["cause"] for one in done["attempts"][0]["generations"])
        self.assertEqual((first["rank"], first["exception"]["type"]), (1, "ValueError"), first)
        self.assertEqual((second["exit_code"], second.get("exception")), (3, None), second)

    @unittest.skipUnless(harness.has_module("torch"), f"no module torch for {PYTHON}")
    def test_torch_s_own_record_is_read(self):
        done = self.job(RECORDS)
        cause = done["cause"]
        self.assertEqual((cause["rank"], cause["exception"]["type"]), (1, "ValueError"), cause)
        self.assertIn("label 17 out of range", cause["message"])
        self.assertNotIn("label 17", self.daemon.rank_log(done["id"], 1))
        self.assertIn("in read_labels", self.daemon.cli("show", done["id"]).stdout)


if __name__ == "__main__":
    harness.main()
