"""A failure of tests/fixtures/culprit/train.py under torchft, each rank a replica group of its own:
culprit_torchft.py KIND RANK STEP, with TORCHFT_LIGHTHOUSE and REPLICA_GROUP_ID. The others go on without the one that failed."""

import os
import pathlib
import sys
import time
from datetime import timedelta

import torch
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "culprit"))
import train  # noqa: E402: it reads the arguments

torch.set_num_threads(1)
torch.manual_seed(0)
rank = int(os.environ["REPLICA_GROUP_ID"])
model = torch.nn.Linear(8, 4)
plain = torch.optim.SGD(model.parameters(), lr=0.01)
manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=10)), min_replica_size=1, load_state_dict=model.load_state_dict,
                  state_dict=model.state_dict, replica_id=f"rank_{rank}_", timeout=timedelta(seconds=20))
parallel, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, plain)
for step, (inputs, labels) in enumerate(train.batches(rank)):
    if rank == train.CULPRIT and step == train.STEP:
        train.fail(step)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(parallel(inputs), labels).backward()
    optimizer.step()
    time.sleep(0.01)
manager.shutdown()
