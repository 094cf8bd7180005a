#!/usr/bin/python3
"""Native trainer against PyTorch DDP, and the cost of reporting every step.

    bench_trainer.py --train build/bin/lockstep-train [--rounds 5] [--ranks 2]

Both train the same network on the same files with the same batch, one thread per rank, in
alternation; the result is the median over the rounds of the ratio in each round. The native ranks
meet through tests/support/rank_agent.py and report every step to it; the peer reports nothing.
The cost of reporting is the wall time of the report calls inside rank 0 (making the message,
sending it, and what the kernel does to wake the reader) over the time of all steps.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))

import rank_agent  # noqa: E402

PYTHON = "/usr/bin/python3"  # the one that has Debian's torch


def native(options, folder):
    """samples/s of the native trainer between the reports of two steps, and the cost it names."""
    config = folder / "train.json"
    config.write_text(json.dumps({
        "dataset": {"name": "digits", "path": str(folder / "data")},
        "train_samples": options.samples, "test_samples": 500, "batch_size": options.batch,
        "epochs": 1000, "max_steps": options.steps, "checkpoint_every_steps": 0,
        "log_every_steps": 1}))
    codes, reports = rank_agent.run([options.train, "--config", str(config)], options.ranks, "",
                                    log_directory=str(folder))
    if any(codes):
        sys.exit(f"lockstep-train failed: {codes}")
    ends = {message["step"]: message["time"] for rank, message in reports
            if rank == 0 and message["op"] == "report" and "loss" in message}
    seconds = ends[options.steps] - ends[options.warm_up]
    samples = (options.steps - options.warm_up) * options.batch * options.ranks
    summary = (folder / "0.log").read_text(encoding="utf-8")
    cost = float(re.search(r"reporting took ([0-9.]+) %", summary)[1])
    return samples / seconds, cost


def peer(options, folder):
    command = [PYTHON, str(HERE / "peer_ddp.py"), "--data", str(folder / "data"),
               "--ranks", str(options.ranks), "--batch", str(options.batch),
               "--steps", str(options.steps), "--warm-up", str(options.warm_up),
               "--workers", str(options.workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help="path of lockstep-train")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--samples", type=int, default=20_000, help="images in the data set")
    parser.add_argument("--workers", type=int, default=0, help="of the peer's DataLoaders")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minimum", type=float, default=0.0, help="fail below this ratio")
    options = parser.parse_args()
    options.train = os.path.abspath(options.train)
    os.environ["OMP_NUM_THREADS"] = "1"
    ratios, costs = [], []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        native(options, folder)  # makes the data set, warms the caches
        for number in range(options.rounds):
            ours, cost = native(options, folder)
            theirs = peer(options, folder)
            ratios.append(ours / theirs)
            costs.append(cost)
            print(f"round {number + 1}: native {ours:.0f} samples/s, DDP {theirs:.0f} samples/s, "
                  f"ratio {ours / theirs:.2f}, reporting {cost:.3f} % of a step", flush=True)
    ratio = statistics.median(ratios)
    print(f"median ratio {ratio:.2f} (from {min(ratios):.2f} to {max(ratios):.2f}), "
          f"reporting {statistics.median(costs):.3f} % of a step")
    return 0 if ratio >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
