"""Reports ten losses, then waits for FOLDER/go and reports ten more; all of it goes to every sink as well."""

import os
import pathlib
import sys
import time

import lockstep
import lockstep.sinks

folder = pathlib.Path(sys.argv[1])
for kind in ("tensorboard", "mlflow", "wandb"):
    writes = lockstep.sinks.add(kind, folder / kind)
print(f"writes {writes}", flush=True)
first = 1 if lockstep.context().generation == 1 else 11
for step in range(first, 21):
    if step == 11:
        while not (folder / "go").exists():
            time.sleep(0.05)
        if lockstep.context().generation == 1 and "--die" in sys.argv:
            lockstep.report(11, loss=99.0)
            time.sleep(1)
            os._exit(7)
    lockstep.report(step, loss=10.0 / step, accuracy=step / 20)
