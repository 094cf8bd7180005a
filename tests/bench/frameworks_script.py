"""The script of frameworks.py: DDP that trains until there is FOLDER/stop. Each rank notes when its process began, had
imported torch, had met the others and had made its first step, in a file of its own for each time it is started."""

import time

begin = time.time()

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

imported = time.time()
folder = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
met = time.time()
rank, restart = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
stop = torch.zeros(1)
step = 0
while not stop:
    x = torch.randn(32, 64)
    loss = torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step == 1:
        new = folder / f"{restart}-{rank}.new"
        new.write_text(json.dumps({"round": restart, "rank": rank, "pid": os.getpid(), "begin": begin, "imported": imported,
                                   "met": met, "step": time.time()}))
        new.rename(new.with_suffix(".json"))
    stop += (folder / "stop").exists()
    dist.all_reduce(stop)
    time.sleep(0.01)
dist.destroy_process_group()
