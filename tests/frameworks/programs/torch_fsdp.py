"""Sharded data parallelism on CPUs over gloo: FullyShardedDataParallel (fsdp1) or fully_shard (fsdp2). Prints every rank's loss
and how many of the parameters it holds.
"""

import sys

import torch
import torch.distributed as dist

WIDTH = 64


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10))


def batch_of(rank, step):
    x = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(1000 * rank + step))
    return x, x[:, :10].argmax(1)


def by_hand(kind):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = network()
    if kind == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        held = sum(parameter.to_local().numel() for parameter in model.parameters())
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
        held = sum(parameter.numel() for parameter in model.parameters())
    print(f"rank {rank} of {dist.get_world_size()} holds {held} parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(1, 13):
        x, y = batch_of(rank, step)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


by_hand(sys.argv[1])
