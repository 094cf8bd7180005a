"""A DDP script that prints and reports nothing. --load-seconds is a batch's way from the disk, --compute-seconds are
those of --slow-rank's steps. --time prints the median step."""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--load-seconds", type=float, default=0.0)
parser.add_argument("--compute-seconds", type=float, default=0.0)
parser.add_argument("--slow-rank", type=int, default=-1)
parser.add_argument("--time", action="store_true")
args = parser.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * args.steps

    def __getitem__(self, index):
        if args.load_seconds and index % 8 == 0:
            time.sleep(args.load_seconds)
        x = torch.randn(8)
        return x, x.sum(0, keepdim=True)


model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
times = []
for x, y in torch.utils.data.DataLoader(Data(), 8):
    times.append(time.perf_counter())
    if rank == args.slow_rank:
        time.sleep(args.compute_seconds)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
if args.time:
    steps = [after - before for before, after in zip(times, times[1:])]
    print(f"{statistics.median(steps) * 1e6:.1f} us a step", flush=True)
dist.destroy_process_group()
