"""A failure of tests/fixtures/culprit/train.py under Ray Train, in a cluster that is there: culprit_ray.py KIND RANK STEP.
The last line of its output is JSON: the ranks that Ray Train's error names, in its order, and the error."""

import json
import os
import pathlib
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "culprit"


def worker(config):
    sys.argv = config["argv"]
    os.environ.update(config["environment"])
    sys.path.insert(0, str(SCRIPTS))
    import torch
    import train  # tests/fixtures/culprit

    torch.set_num_threads(1)
    train.train()  # Ray has made the process group


def main():
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address="auto", log_to_driver=False)
    mark = {name: value for name, value in os.environ.items() if name == "CULPRIT_MARK"}  # for ranks that the cluster starts
    trainer = TorchTrainer(worker, torch_config=TorchConfig(backend="gloo"),
                           train_loop_config={"argv": ["train.py", *sys.argv[1:4]], "environment": mark},
                           scaling_config=ScalingConfig(num_workers=4, resources_per_worker={"CPU": 1}),
                           run_config=RunConfig(storage_path=sys.argv[4], failure_config=FailureConfig(max_failures=0)))
    try:
        trainer.fit()
        print(json.dumps({"ranks": [], "error": ""}))
    except WorkerGroupError as error:
        print(json.dumps({"ranks": list(error.worker_failures), "error": str(error)[:2000]}))


if __name__ == "__main__":
    main()
