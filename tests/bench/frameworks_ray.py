"""The driver of frameworks.py for Ray Train, in a cluster that is there already: frameworks_ray.py FOLDER RANKS.

A rank begins when Ray calls its function. By then Ray has started the process, imported torch in it and made the process
group, which takes nothing of the rank's own time."""

import pathlib
import sys
import time


def worker(config):
    begin = time.time()
    from frameworks_training import Moments, train_together

    import ray.train

    moments = Moments(begin, time.time())
    moments.met = moments.imported
    rank = ray.train.get_context().get_world_rank()
    folder = pathlib.Path(config["folder"])
    train_together(folder, moments, rank, len(list(folder.glob(f"[0-9]*-{rank}.json"))))


def main():
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address="auto", log_to_driver=False)
    TorchTrainer(worker, train_loop_config={"folder": sys.argv[1]}, torch_config=TorchConfig(backend="gloo"),
                 scaling_config=ScalingConfig(num_workers=int(sys.argv[2])),
                 run_config=RunConfig(storage_path=f"{sys.argv[1]}/ray", failure_config=FailureConfig(max_failures=3))).fit()


if __name__ == "__main__":
    main()
