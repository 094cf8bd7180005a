"""Ranks of the page's tests: a step is a sleep and a barrier, reported by lockstep.report.

    train.py MODE STEPS SECONDS

good; straggler: rank 3 computes three times as long; crash: rank 1 raises at step 20; forever: until it is ended;
hostile: prints what should harm no page; wordy: prints 6,000 lines first; hang: rank 5 waits for a lock from step 20 on;
nan: no loss is a number from step 20 on.
"""

import math
import os
import sys
import threading
import time

import lockstep

MODE, STEPS, PACE = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
RANK = int(os.environ["RANK"])


def collate(batch):
    return batch["labels"]


def load_shard(lock):
    with lock:
        return open("/dev/null", "rb")


def print_hostile():
    print('<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>')
    print("user \u202egnp.exe\u202c and \u2066isolated\u2069")
    print("bell \x07 null \x00 escape \x1b[31mred\x1b[0m \x1b]0;title\x07 end")
    print("long " + "x" * 100_000 + " tail")
    print("progress 10%\rprogress 100%", flush=True)


def main():
    print(f"rank {RANK} starts, \x1b[32mgreen\x1b[0m", flush=True)
    if MODE == "wordy":
        print("".join(f"needle {line} of rank {RANK}\n" if line == 1000 else f"straw {line}\n" for line in range(6000)), flush=True)
    if MODE == "hostile" and RANK == 0:
        print_hostile()
    lock = threading.Lock()
    for step in range(1, STEPS + 1):
        began = time.monotonic()
        if MODE == "hang" and RANK == 5 and step == 20:
            lock.acquire()
            load_shard(lock)
        time.sleep(PACE * (3 if MODE == "straggler" and RANK == 3 else 1))
        computed = time.monotonic()
        lockstep.barrier(f"step{step}", timeout=60 if MODE != "hang" else 3600)
        now = time.monotonic()
        loss = 2.5 * math.exp(-step / 60) + 0.2 + 0.01 * RANK
        if MODE == "nan" and step >= 20:
            loss = math.nan
        lockstep.report(step=step, loss=loss, step_seconds=now - began, comm_wait_seconds=now - computed,
                        grad_norm=1.0 / step, samples=32)
        if step % 10 == 0:
            print(f"step {step}/{STEPS} loss {loss:.4f}", flush=True)
        if MODE == "crash" and RANK == 1 and step == 20:
            collate({"tokens": [1, 2, 3]})


main()
