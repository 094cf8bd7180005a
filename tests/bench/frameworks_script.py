"""The script of frameworks.py, for launchers that start one: frameworks_script.py FOLDER."""

import time

begin = time.time()

import os
import sys

import torch.distributed as dist
from frameworks_training import Moments, train_together

moments = Moments(begin, time.time())
dist.init_process_group("gloo")
moments.met = time.time()
train_together(sys.argv[1], moments, dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
dist.destroy_process_group()
