#!/usr/bin/python3
"""The peer of the trainer's benchmark: the same network trained by PyTorch's DistributedDataParallel.

An ordinary script, as the guides write it: gloo, TensorDataset + DistributedSampler + DataLoader,
torch.optim.Adam, the loss of every step read with item(). Run by bench_trainer.py; by hand:

    peer_ddp.py --model mnist_convnet --data FOLDER --ranks 2 --steps 150 --warm-up 30
"""

import argparse
import os
import pathlib
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peer_models import MODELS
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(rank, options, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    torch.manual_seed(0)
    make_model, read = MODELS[options.model]
    dataset = read(pathlib.Path(options.data), options.context)
    sampler = DistributedSampler(dataset, num_replicas=options.ranks, rank=rank, seed=0)
    loader = DataLoader(dataset, batch_size=options.batch, sampler=sampler,
                        num_workers=options.workers)
    model = DistributedDataParallel(make_model(options.context))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    criterion = nn.CrossEntropyLoss()
    model.train()
    step, epoch, running, start = 0, 0, 0.0, 0.0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y.flatten())
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
    parser.add_argument("--model", default="mnist_convnet", choices=MODELS)
    parser.add_argument("--data", required=True, help="folder of MNIST's IDX files, or the file of texts")
    parser.add_argument("--context", type=int, default=64, help="bytes of a text")
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
    print(f"{samples / seconds:.1f} samples/s, last loss {loss:.4f}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
