"""The script of frameworks.py for torchft: each rank a replica group of its own, which goes on while the other is away and
hands it the newest state when it is back: frameworks_torchft.py FOLDER, with TORCHFT_LIGHTHOUSE and REPLICA_GROUP_ID."""

import time

begin = time.time()

import os
import pathlib
import sys
from datetime import timedelta

from frameworks_training import Moments, loss_of, model, optimizer, save
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

imported = time.time()
folder = pathlib.Path(sys.argv[1])
rank = int(os.environ["REPLICA_GROUP_ID"])
ranks = int(os.environ["REPLICA_GROUPS"])
trained = model()
plain = optimizer(trained.parameters())


def state():
    return {"model": trained.state_dict(), "optimizer": plain.state_dict()}


def load(given):
    trained.load_state_dict(given["model"])
    plain.load_state_dict(given["optimizer"])


manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=10)), min_replica_size=1, load_state_dict=load,
                  state_dict=state, replica_id=f"rank_{rank}_", timeout=timedelta(seconds=20))
parallel = DistributedDataParallel(manager, trained)
together = Optimizer(manager, plain)
moments = Moments(begin, imported, time.time())
before = 0  # how many made the last step
while not (folder / "stop").exists():
    together.zero_grad()
    loss = loss_of(parallel)
    loss.backward()
    resumed = manager.current_step()
    together.step()
    here = manager.num_participants()
    if manager.current_step() == resumed:
        here = 0  # the step was not taken: somebody has gone
    if here == ranks and before != ranks:
        moments.reloaded = moments.met  # the others' state comes within the step
        moments.write(folder, rank, len(list(folder.glob(f"[0-9]*-{rank}.json"))), resumed)
    before = here
    if rank == 0 and manager.current_step() % 50 == 0:
        save(folder, {**state(), "step": manager.current_step()})
    time.sleep(0.01)
manager.shutdown()
