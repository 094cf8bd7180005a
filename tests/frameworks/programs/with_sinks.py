"""Reports ten losses, then waits for FOLDER/go and reports ten more; all of it goes to every sink as well. With --die the
first generation ends after the eleventh, once FOLDER/die is there."""

import os
import pathlib
import sys
import time

import lockstep
import lockstep.sinks

folder = pathlib.Path(sys.argv[1])


def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.05)


for kind in ("tensorboard", "mlflow", "wandb"):
    writes = lockstep.sinks.add(kind, folder / kind)
print(f"writes {writes}", flush=True)
first = 1 if lockstep.context().generation == 1 else 11
for step in range(first, 21):
    if step == 11:
        wait_for("go")
        if lockstep.context().generation == 1 and "--die" in sys.argv:
            lockstep.report(11, loss=99.0)
            wait_for("die")
            os._exit(7)
    lockstep.report(step, loss=10.0 / step, accuracy=step / 20)
