"""JAX over several processes: one mesh of all devices, the batch split over it, gradients summed by XLA.

Prints the loss on every process. Process 0 saves with numpy and everybody resumes.
"""

import argparse
import os

import hold
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--checkpoint", default="")
parser.add_argument("--bad-data", type=int, default=-1)
parser.add_argument("--stuck", type=int, default=-1)
args = parser.parse_args()

jax.distributed.initialize()
process, processes = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
print(f"process {process} of {processes}, {jax.device_count()} devices", flush=True)


def read_forever():
    os.read(os.pipe()[0], 1)


@jax.jit
def train_step(weights, x, y):
    def loss_of(w):
        return jnp.mean((x @ w - y) ** 2)
    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 0.05 * gradient, loss


start, first = np.zeros((8, 1), np.float32), 0
if args.checkpoint and os.path.exists(args.checkpoint):
    with np.load(args.checkpoint) as saved:
        start, first = saved["weights"], int(saved["step"])
    print(f"resumes after step {first}", flush=True)
weights = jax.make_array_from_callback(start.shape, whole, lambda index: start[index])
truth = np.arange(8, dtype=np.float32).reshape(8, 1) / 4
random = np.random.default_rng(process)
for step in range(first + 1, args.steps + 1):
    x = random.normal(size=(32, 8)).astype(np.float32)
    if process == args.bad_data and step == 3:
        x = x[:, :7]
    if process == args.stuck and step == 5:
        read_forever()
    y = x @ truth
    weights, loss = train_step(weights, jax.make_array_from_process_local_data(split, x),
                               jax.make_array_from_process_local_data(split, y))
    print(f"step {step} loss {float(loss):.5f}", flush=True)
    if args.checkpoint and process == 0 and step % 5 == 0:
        np.savez(args.checkpoint + ".new.npz", weights=np.asarray(weights), step=step)
        os.replace(args.checkpoint + ".new.npz", args.checkpoint)
hold.until_released()
print("done", flush=True)
