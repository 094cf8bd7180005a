"""Data-parallel training by Ray's actors: the driver holds the parameter, the workers are wherever the cluster has room.
--checkpoint FILE: the driver saves there and resumes from it, on however many nodes there are then.
"""

import argparse
import json
import os
import pathlib
import time

import hold
import ray

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--bad-data", type=int, default=-1)
parser.add_argument("--checkpoint", type=pathlib.Path)
parser.add_argument("--pause", type=float, default=0.0)
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
weight, first = 0.0, 1
if args.checkpoint and args.checkpoint.exists():
    saved = json.loads(args.checkpoint.read_text())
    weight, first = saved["weight"], saved["step"] + 1
    print(f"resumed after step {saved['step']} of {saved['nodes']} nodes", flush=True)
for step in range(first, args.steps + 1):
    found = ray.get([worker.gradient.remote(weight, step) for worker in workers])
    weight -= 0.1 * sum(gradient for gradient, _ in found) / len(found)
    print(f"step {step} loss {sum(loss for _, loss in found) / len(found):.5f}", flush=True)
    if args.checkpoint and step % 5 == 0:
        args.checkpoint.with_suffix(".new").write_text(json.dumps({"weight": weight, "step": step, "nodes": len(alive)}))
        args.checkpoint.with_suffix(".new").rename(args.checkpoint)
    time.sleep(args.pause)
hold.until_released()
ray.shutdown()
