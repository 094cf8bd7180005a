"""A rank of torch.distributed: meeting_peer.py BACKEND [BYTES]. Prints when it was ready, had joined the others and had summed with
them; with BYTES also how long an all-reduce of so many takes, many in a row as nccl_rank has them."""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

ROWS, IN_A_ROW = 7, 20


def main():
    backend = sys.argv[1]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu") if backend == "gloo" else torch.device("cuda", rank % torch.cuda.device_count())
    began = time.time()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Eagerly: without a device NCCL would not begin before the first all-reduce.
    dist.init_process_group(backend, device_id=None if backend == "gloo" else device)
    joined = time.time()
    one = torch.ones(1, device=device)
    dist.all_reduce(one)
    if one.item() != ranks:
        sys.exit(f"the first sum is wrong: {one.item()}")
    print(f"moments: began {began:.6f} joined {joined:.6f} summed {time.time():.6f}", flush=True)
    for size in map(int, sys.argv[2:]):
        values = torch.zeros(size // 4, device=device)
        seconds = []
        for _ in range(ROWS + 1):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(IN_A_ROW):
                dist.all_reduce(values)
            dist.barrier()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append((time.perf_counter() - start) / IN_A_ROW)
        print(json.dumps({"bytes": size, "seconds": statistics.median(seconds[1:])}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
