"""The script of killed.py, for launchers that start one: killed_script.py FOLDER BACKEND. DDP until there is FOLDER/stop, with a
checkpoint every 20 steps. Each rank notes its own moments."""

import time

begin = time.time()

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from frameworks_training import model, optimizer, save

imported = time.time()


def main():
    folder, backend = pathlib.Path(sys.argv[1]), sys.argv[2]
    rank, round_number = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    # NCCL's communicator is made in the first collective: so what is before it is the meeting alone.
    dist.init_process_group(backend)
    met = time.time()
    stop = torch.zeros(1, device=device)
    dist.all_reduce(stop)
    stop.item()
    joined = time.time()
    trained = torch.nn.parallel.DistributedDataParallel(model().to(device))
    optimizer_of_it = optimizer(trained.parameters())
    step = 0
    if (folder / "checkpoint.pt").exists():
        state = torch.load(folder / "checkpoint.pt", map_location=device)
        trained.load_state_dict(state["model"])
        optimizer_of_it.load_state_dict(state["optimizer"])
        step = state["step"]
    first = step + 1
    while not stop.item():
        x = torch.randn(32, 64, device=device)
        loss = torch.nn.functional.cross_entropy(trained(x), x[:, :10].argmax(1))
        optimizer_of_it.zero_grad()
        loss.backward()
        optimizer_of_it.step()
        loss.item()  # on a GPU the step is done now
        step += 1
        if rank == 0 and step % 20 == 0:
            save(folder, {"model": trained.state_dict(), "optimizer": optimizer_of_it.state_dict(), "step": step})
        if step == first:
            new = folder / f"{round_number}-{rank}.new"
            new.write_text(json.dumps({"round": round_number, "rank": rank, "pid": os.getpid(), "resumed": first - 1, "begin": begin,
                                       "imported": imported, "met": met, "joined": joined, "step": time.time()}))
            new.rename(new.with_suffix(".json"))
        stop += (folder / "stop").exists()
        dist.all_reduce(stop)
        time.sleep(0.01)
    dist.destroy_process_group()


main()
