"""DistributedDataParallel with DistributedSampler; rank 0 saves, everybody resumes. Any launcher's environment.

--bad-data RANK: that rank meets a label that does not exist. --stuck RANK: that rank reads and gets no answer.
"""

import argparse
import os

import hold
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--checkpoint", default="")
parser.add_argument("--bad-data", type=int, default=-1)
parser.add_argument("--stuck", type=int, default=-1)
args = parser.parse_args()


def read_forever():
    """A read from a file system that does not answer."""
    os.read(os.pipe()[0], 1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(0)
images = torch.randn(512, 64)
labels = (images[:, :10]).argmax(1)
dataset = TensorDataset(images, labels)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
first = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    state = torch.load(args.checkpoint)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
    print(f"rank {rank} of {world} resumes at epoch {first}", flush=True)

for epoch in range(first, args.epochs):
    sampler.set_epoch(epoch)
    for batch, (x, y) in enumerate(loader):
        if rank == args.bad_data and batch == 2:
            y = y + 17
        if rank == args.stuck and batch == 5:
            read_forever()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch: {epoch}, batch: {batch}, loss is: [{loss.item():.5f}]", flush=True)
    if args.checkpoint:
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                       args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)
        dist.barrier()
hold.until_released()
print(f"rank {rank} of {world} checksum {sum(p.double().sum() for p in model.parameters()).item():.6f}", flush=True)
dist.destroy_process_group()
