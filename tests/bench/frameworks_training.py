"""What the programs of frameworks.py train, whoever launches them, and the moments that each of their ranks notes."""

import dataclasses
import json
import os
import pathlib
import time

import torch


@dataclasses.dataclass
class Moments:
    """Of one rank's way to a step that all make, in seconds since the epoch: its process began, had imported torch, had
    met the others, had the last state. Whoever launched it counts the rounds: 0, then 1 for each restart."""

    begin: float
    imported: float
    met: float = 0
    reloaded: float = 0

    def write(self, folder, rank, round_number, resumed):
        """With now as the moment of the step; `resumed`: how many steps were made before it."""
        new = folder / f"{round_number}-{rank}.new"
        new.write_text(json.dumps({"round": round_number, "rank": rank, "pid": os.getpid(), "step": time.time(), "resumed": resumed,
                                   **dataclasses.asdict(self)}))
        new.rename(new.with_suffix(".json"))


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))


def optimizer(parameters):
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def loss_of(trained):
    x = torch.randn(32, 64)
    return torch.nn.functional.cross_entropy(trained(x), x[:, :10].argmax(1))


def save(folder, state):
    torch.save(state, folder / "checkpoint.new")
    (folder / "checkpoint.new").rename(folder / "checkpoint.pt")


def train_together(folder, moments, rank, round_number):
    """DDP in the process group there is, until there is FOLDER/stop, with a checkpoint every 50 steps."""
    folder = pathlib.Path(folder)
    trained = torch.nn.parallel.DistributedDataParallel(model())
    optimizer_of_it = optimizer(trained.parameters())
    step = 0
    if (folder / "checkpoint.pt").exists():
        state = torch.load(folder / "checkpoint.pt")
        trained.load_state_dict(state["model"])
        optimizer_of_it.load_state_dict(state["optimizer"])
        step = state["step"]
    moments.reloaded = time.time()
    first = step + 1
    stop = torch.zeros(1)
    while not stop:
        loss = loss_of(trained)
        optimizer_of_it.zero_grad()
        loss.backward()
        optimizer_of_it.step()
        step += 1
        if rank == 0 and step % 50 == 0:
            save(folder, {"model": trained.state_dict(), "optimizer": optimizer_of_it.state_dict(), "step": step})
        if step == first:
            moments.write(folder, rank, round_number, first - 1)
        stop += (folder / "stop").exists()
        torch.distributed.all_reduce(stop)
        time.sleep(0.01)
