"""lockstep.sinks: what ranks report is found where TensorBoard, MLflow and W&B look, read by their own libraries."""

import json
import pathlib
import subprocess

import frameworks
import harness

TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
runs = EventMultiplexer().AddRunsFromDirectory(sys.argv[1]).Reload()
print(json.dumps({run: [[e.step, e.value] for e in runs.Scalars(run, "loss")] for run in runs.Runs()
                  if "loss" in runs.GetAccumulator(run).Tags()["scalars"]}))
"""
MLFLOW = """
import json, os, pathlib, sys
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=pathlib.Path(sys.argv[1]).as_uri())
number = client.get_experiment_by_name("lockstep").experiment_id
print(json.dumps({run.info.run_name: [run.info.status, sorted([m.step, m.value] for m in
                  client.get_metric_history(run.info.run_id, "loss"))] for run in client.search_runs([number])}))
"""
# Nothing of W&B's Python reads its file: LevelDB's log format (blocks of 32 KiB, a header of 7 bytes before each part of a
# record) of its own messages.
WANDB = """
import json, pathlib, struct, sys
from wandb.proto import wandb_internal_pb2
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb")):
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack("<IHB", data[at:at + 7])
        whole += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # all of a record, or its last part
            record, whole = wandb_internal_pb2.Record.FromString(whole), b""
            for item in record.history.item:
                if item.key == "loss" or list(item.nested_key) == ["loss"]:
                    found.setdefault(path.stem, []).append([record.history.step.num, json.loads(item.value_json)])
print(json.dumps(found))
"""


class Sinks(frameworks.Framework):
    ENVIRONMENT = "sinks"

    def read(self, code, folder):
        done = subprocess.run([self.python(), "-W", "ignore", "-c", code, str(folder)], capture_output=True, text=True,
                              timeout=120 * harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def one(self, code, folder):
        """What the only run there holds: rank 0's."""
        (name, found), = self.read(code, folder).items()
        self.assertIn("-rank-00000", name)
        return found

    def shows(self, count):
        def is_live():
            runs = self.read(TENSORBOARD, self.root / "tensorboard")
            return [len(points) for points in runs.values()] == [count]
        harness.wait_until(is_live, 120, f"TensorBoard shows the {count} losses of a job that runs")

    @frameworks.in_every_run
    def test_all_three(self):
        job = self.submit("command", "with_sinks.py", self.root)
        losses = [[step, 10.0 / step] for step in range(1, 21)]

        self.shows(10)
        (self.root / "go").touch()
        self.ends(job)
        self.assert_logs(job, "writes True", "writes False")
        self.assertEqual(len(self.daemon.series(job)[1]), 20, "and Lockstep has all ranks'")
        for (step, value), (wanted, loss) in zip(self.one(TENSORBOARD, self.root / "tensorboard"), losses, strict=True):
            self.assertEqual(step, wanted)
            self.assertAlmostEqual(value, loss, places=5)  # of single precision there
        self.assertEqual(self.one(MLFLOW, self.root / "mlflow"), ["FINISHED", losses])
        self.assertEqual(self.one(WANDB, self.root / "wandb"), losses)
        self.saw("tensorboard mlflow-skinny wandb", "lockstep.sinks",
                 "every report of rank 0: TensorBoard live, MLflow's file, W&B offline; read by their own libraries")

    def test_the_next_generation_goes_on_with_the_run(self):
        job = self.submit("command", "with_sinks.py", self.root, "--die", ranks=1, recovery={"max_restarts": 1})
        self.shows(10)
        (self.root / "go").touch()
        self.shows(11)
        (self.root / "die").touch()
        self.ends(job)
        found = self.one(TENSORBOARD, self.root / "tensorboard")
        self.assertEqual([step for step, _ in found], list(range(1, 21)))
        self.assertLess(found[10][1], 1.0, "not what the first generation had reported of step 11")
        self.assertEqual(self.one(MLFLOW, self.root / "mlflow")[0], "FINISHED")

    def test_one_that_cannot_write_is_named_and_training_goes_on(self):
        pathlib.Path(self.root / "tensorboard").write_text("a file where a folder should be")
        (self.root / "go").touch()
        job = self.submit("command", "with_sinks.py", self.root, ranks=1)
        self.ends(job)
        self.assertIn("lockstep: nothing goes to tensorboard at", self.daemon.rank_log(job))
        self.assertEqual(len(self.daemon.series(job)[0]), 20)
        self.assertEqual(self.one(MLFLOW, self.root / "mlflow")[0], "FINISHED")


if __name__ == "__main__":
    frameworks.main()
