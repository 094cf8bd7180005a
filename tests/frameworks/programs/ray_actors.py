"""Data-parallel training by Ray's actors: a parameter server and workers, wherever the cluster has room."""

import argparse
import os

import ray

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--bad-data", type=int, default=-1)
args = parser.parse_args()

ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
alive = [node for node in ray.nodes() if node["Alive"]]
print(f"RAY_ADDRESS {os.environ.get('RAY_ADDRESS')}")
print(f"{len(alive)} nodes, {int(ray.cluster_resources()['CPU'])} CPUs", flush=True)


@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, number):
        self.number = number

    def gradient(self, weight, step):
        if self.number == args.bad_data and step == 3:
            raise ValueError(f"image 17 of worker {self.number} is broken")
        return 2 * (weight - 3.0), (weight - 3.0) ** 2


workers = [Worker.remote(number) for number in range(2)]
weight = 0.0
for step in range(1, args.steps + 1):
    found = ray.get([worker.gradient.remote(weight, step) for worker in workers])
    weight -= 0.1 * sum(gradient for gradient, _ in found) / len(found)
    print(f"step {step} loss {sum(loss for _, loss in found) / len(found):.5f}", flush=True)
ray.shutdown()
