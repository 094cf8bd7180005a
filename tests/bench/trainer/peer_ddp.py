#!/usr/bin/python3
"""The peer of the trainer's benchmark: the same network trained by PyTorch's DistributedDataParallel.

An ordinary script, as the guides write it: gloo, TensorDataset + DistributedSampler + DataLoader,
torch.optim.Adam, the loss of every step read with item(). Run by bench_trainer.py; by hand:

    peer_ddp.py --data FOLDER --ranks 2 --steps 150 --warm-up 30
"""

import argparse
import os
import pathlib
import socket
import struct
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def read_idx(path):
    data = path.read_bytes()
    dimensions = data[3]
    sizes = struct.unpack(f">{dimensions}I", data[4:4 + 4 * dimensions])
    return torch.frombuffer(bytearray(data[4 + 4 * dimensions:]), dtype=torch.uint8).view(sizes)


def norm(channels):
    """BatchNormalization(scale=False) with Keras's constants."""
    layer = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
    layer.weight.requires_grad_(False)
    return layer


class Rescaling(nn.Module):
    def forward(self, x):
        return x * (1.0 / 255.0)


def make_model():
    return nn.Sequential(
        Rescaling(),
        nn.Conv2d(1, 12, 3, padding=1, bias=False), norm(12), nn.ReLU(),
        nn.Conv2d(12, 24, 6, stride=2, bias=False), norm(24), nn.ReLU(),
        nn.Conv2d(24, 32, 6, stride=2, padding=2), norm(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))


def train(rank, options, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    torch.manual_seed(0)
    folder = pathlib.Path(options.data)
    images = read_idx(folder / "train-images-idx3-ubyte").unsqueeze(1).float()
    labels = read_idx(folder / "train-labels-idx1-ubyte").long()
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset, num_replicas=options.ranks, rank=rank, seed=0)
    loader = DataLoader(dataset, batch_size=options.batch, sampler=sampler,
                        num_workers=options.workers)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    criterion = nn.CrossEntropyLoss()
    model.train()
    step, epoch, running, start = 0, 0, 0.0, 0.0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step == options.warm_up:
                start = time.perf_counter()
            if step == options.steps:
                break
        epoch += 1
    if rank == 0:
        results.put((time.perf_counter() - start, loss.item()))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of MNIST's IDX files")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--workers", type=int, default=0, help="of each DataLoader")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    mp.start_processes(train, (options, port, results), nprocs=options.ranks,
                       start_method="spawn")
    seconds, loss = results.get()
    samples = (options.steps - options.warm_up) * options.batch * options.ranks
    print(f"{samples / seconds:.1f} samples/s, last loss {loss:.4f}")


if __name__ == "__main__":
    main()
