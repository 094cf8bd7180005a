"""The script of frameworks.py: DDP that trains until there is FOLDER/stop, with a checkpoint every 50 steps. Each rank notes
when its process began, had imported torch, had met the others, had loaded the checkpoint and had made its first step, in a
file of its own for each time it is started."""

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
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
saved = folder / "checkpoint.pt"
step = 0
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
reloaded = time.time()
first = step + 1
stop = torch.zeros(1)
while not stop:
    x = torch.randn(32, 64)
    loss = torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0 and step % 50 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "checkpoint.new")
        (folder / "checkpoint.new").rename(saved)
    if step == first:
        new = folder / f"{restart}-{rank}.new"
        new.write_text(json.dumps({"round": restart, "rank": rank, "pid": os.getpid(), "begin": begin, "imported": imported,
                                   "met": met, "reloaded": reloaded, "step": time.time(), "resumed": first - 1}))
        new.rename(new.with_suffix(".json"))
    stop += (folder / "stop").exists()
    dist.all_reduce(stop)
    time.sleep(0.01)
dist.destroy_process_group()
