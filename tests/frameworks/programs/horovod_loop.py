"""Horovod over Gloo, with the rendezvous that its environment names. Prints on every rank."""

import argparse
import os

import hold
import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--checkpoint", default="")
parser.add_argument("--bad-data", type=int, default=-1)
args = parser.parse_args()

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
first = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    first = saved["step"]
    print(f"resumes after step {first}", flush=True)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
print(f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}", flush=True)
torch.manual_seed(hvd.rank())
for step in range(first + 1, args.steps + 1):
    x = torch.randn(32, 64)
    y = x[:, :10].argmax(1) + (17 if hvd.rank() == args.bad_data and step == 3 else 0)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f}", flush=True)
    if args.checkpoint and hvd.rank() == 0 and step % 5 == 0:
        torch.save({"model": model.state_dict(), "step": step}, args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)
hold.until_released()
