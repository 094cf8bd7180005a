#!/usr/bin/python3
"""torch.distributed's all-reduce over gloo between two processes: peer_all_reduce.py BYTES… prints
a line {"bytes", "us"} for each, the median of an operation's time. Run by bench_trainer.py."""

import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank_of(rank, sizes, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for size in sizes:
        values = torch.full((size // 4,), 1e-30)
        times, seen = 50 if size < 1 << 20 else 8, []
        for number in range(18):
            start = time.perf_counter()
            for _ in range(times):
                dist.all_reduce(values)
            if number >= 3:
                seen.append((time.perf_counter() - start) / times)
        if rank == 0:
            print(json.dumps({"bytes": size, "us": 1e6 * statistics.median(seen)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        PORT = probe.getsockname()[1]
    mp.start_processes(rank_of, ([int(size) for size in sys.argv[1:]], PORT), nprocs=2, start_method="spawn")
