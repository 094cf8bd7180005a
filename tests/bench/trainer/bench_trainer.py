#!/usr/bin/python3
"""Native trainer against PyTorch DDP, model by model, and what its parts cost.

    bench_trainer.py --train build/bin/lockstep-train [--rounds 3] [--ranks 2] [only …]

`only`: models and all_reduce, bytes, checkpoint, start. Both sides train the same network on the same
files with the same batch, one thread per rank, in alternation; the result is the median over the
rounds of the ratio in each round, with every PyTorch there is: Debian's, and --peer PYTHON (an
environment of `deploy/install-frameworks torch`). The native ranks meet through
tests/support/rank_agent.py and report every step to it; the peer reports nothing. The cost of reporting
is the wall time of the report calls inside rank 0 (making the message, sending it, and what the
kernel does to wake the reader) over the time of all steps.

bytes: what two, three and four ranks that share no memory send a step, counted on a loopback interface of
their own (needs root), against the ring's 2 (n - 1) / n of the gradients. checkpoint: how long a step waits for a
checkpoint, over the median step, and how much longer the step after one takes in all. start: from exec to the line of the first step, step included.

--rows FILE: the figures as JSON for tests/bench/run, those that have one with their target.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))

import rank_agent  # noqa: E402

DEBIAN = "/usr/bin/python3"  # the one that has Debian's torch
MODELS = {  # name: (data, batch, steps, of them to warm up, context)
    "mnist_convnet": ("digits", 64, 60, 15, 0),
    "mlp": ("digits", 64, 100, 20, 0),
    "alexnet_split": ("digits", 16, 16, 4, 0),
    "mobilenet_v2": ("digits", 16, 24, 6, 0),
    "gpt": ("text", 16, 40, 10, 64),
    "seq2seq": ("pairs", 32, 40, 10, 16),
}
PARTS = ("all_reduce", "bytes", "checkpoint", "start")
RATIO = {"mnist_convnet": 1.3}  # at least, to DDP
REPORTING = 0.5                 # at most, in % of a step
ROWS = []


def keep_row(what, values, unit, target="", higher_is_better=True):
    """`values`: one for each round."""
    ROWS.append({"what": what, "values": values, "unit": unit, "target": target, "higher_is_better": higher_is_better})


def make_texts(folder):
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghij", k=chance.randrange(2, 9))) for _ in range(500)]
    (folder / "text").write_text(" ".join(chance.choices(words, k=60_000)))
    lines = (" ".join(chance.choices(words, k=2))[:16] for _ in range(8_000))
    (folder / "pairs").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))


def configuration(options, folder, model, **more):
    data, batch, steps, _, context = MODELS[model]
    out = {"model": model, "batch_size": batch, "max_steps": steps, "epochs": 1000,
           "checkpoint_every_steps": 0, "export": "none", "loader_workers": options.workers,
           "dataset": {"name": data, "path": str(folder / data)}, **more}
    if data == "digits":
        out.update(train_samples=options.samples, test_samples=200)
    else:
        out["context"] = context
    if model == "mobilenet_v2":
        out["dropout"] = 0.2
    path = folder / "train.json"
    path.write_text(json.dumps(out))
    return path


def native(options, folder, model, checkpoints="", **more):
    """(reports of rank 0's steps, its last line)."""
    config = configuration(options, folder, model, **more)
    codes, reports = rank_agent.run([options.train, "--config", str(config)], options.ranks,
                                    checkpoints, log_directory=str(folder))
    if any(codes):
        sys.exit(f"lockstep-train failed: {codes}")
    steps = [m for rank, m in reports if rank == 0 and m["op"] == "report" and "loss" in m]
    return steps, (folder / "0.log").read_text(encoding="utf-8").splitlines()[-1]


def samples_per_second(options, steps, model):
    _, batch, count, warm_up, _ = MODELS[model]
    ends = {m["step"]: m["time"] for m in steps}
    return (count - warm_up) * batch * options.ranks / (ends[count] - ends[warm_up])


def peer(options, python, folder, model):
    """(samples/s, version of torch)"""
    data, batch, steps, warm_up, context = MODELS[model]
    command = [python, str(HERE / "peer_ddp.py"), "--model", model, "--data", str(folder / data),
               "--context", str(context), "--ranks", str(options.ranks), "--batch", str(batch),
               "--steps", str(steps), "--warm-up", str(warm_up), "--workers", str(options.workers)]
    words = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                           text=True).stdout.split()
    return float(words[0]), words[-1]


def bench_model(options, folder, model):
    """The worst of the ratios to the peers."""
    ratios, costs, names = {python: [] for python in options.peers}, [], {}
    line = ""
    for number in range(options.rounds):
        steps, line = native(options, folder, model)
        ours = samples_per_second(options, steps, model)
        costs.append(float(re.search(r"reporting took ([0-9.]+) %", line)[1]))
        shown = []
        for python in options.peers:
            theirs, names[python] = peer(options, python, folder, model)
            ratios[python].append(ours / theirs)
            shown.append(f"DDP of torch {names[python]} {theirs:.0f}, ratio {ours / theirs:.2f}")
        print(f"  {model}, round {number + 1}: native {ours:.0f} samples/s, {'; '.join(shown)}", flush=True)
    for python, seen in ratios.items():
        print(f"{model}: {statistics.median(seen):.2f} × DDP of torch {names[python]} "
              f"(from {min(seen):.2f} to {max(seen):.2f})")
        keep_row(f"{model}: native / DDP of torch {names[python]}, samples/s", seen, "×", RATIO.get(model, ""))
    tokens = re.search(r"([0-9]+ tokens/s, MFU [0-9.]+)", line)
    print(f"{model}: reporting {statistics.median(costs):.3f} % of a step"
          + (f", {tokens[1]}" if tokens else ""), flush=True)
    keep_row(f"{model}: reporting, of a step", costs, "%", REPORTING, higher_is_better=False)
    return min(statistics.median(seen) for seen in ratios.values())


def bench_all_reduce(options, folder):
    """Ours and raw gloo in the same processes; torch's beside them."""
    sizes = ["197000", str(1 << 20), str(16 << 20)]
    program = pathlib.Path(options.train).parent / "bench_all_reduce"
    if not program.exists():
        print("all_reduce: SKIPPED: bench_all_reduce is not built (cmake -DLOCKSTEP_BENCH=ON)")
        return
    meet = folder / "meet"
    meet.mkdir()
    ranks = [subprocess.Popen([program, str(rank), "2", str(meet), *sizes], stdout=subprocess.PIPE, text=True)
             for rank in range(2)]
    ours = [json.loads(line) for line in ranks[0].communicate()[0].splitlines()]
    ranks[1].communicate()
    for python in options.peers:
        lines = subprocess.run([python, HERE / "peer_all_reduce.py", *sizes], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, check=True, text=True).stdout.splitlines()
        theirs = {row["bytes"]: row["us"] for row in map(json.loads, lines)}
        for row in ours:
            print(f"all_reduce of {row['bytes']} bytes, 2 ranks: {row['lockstep_us']:.0f} µs, over TCP "
                  f"{row['tcp_us']:.0f} µs; raw gloo "
                  f"{row['gloo_us']:.0f} µs ({row['gloo_us'] / row['lockstep_us']:.2f} ×), torch's "
                  f"{theirs[row['bytes']]:.0f} µs ({theirs[row['bytes']] / row['lockstep_us']:.2f} ×), {python}",
                  flush=True)


def sent_bytes():
    """What went over this network's loopback interface so far."""
    for line in pathlib.Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def count_bytes(options, folder):
    """Inside a network of its own, without memory to share: bytes that 20 steps more put on the wire, by
    number of ranks, as if each were on a machine of its own."""
    for ranks in (2, 3, 4):
        options.ranks = ranks
        counts = []
        for steps in (5, 25):
            before = sent_bytes()
            native(options, folder, "mlp", max_steps=steps, batch_size=16)
            counts.append(sent_bytes() - before)
        print(json.dumps({"ranks": ranks, "bytes": (counts[1] - counts[0]) / 20 / ranks}), flush=True)


def bench_bytes(options, folder):
    if os.geteuid() != 0:
        print("bytes: SKIPPED: needs root for a network of its own")
        return
    alone = 'ip link set lo up && LOCKSTEP_TRAIN_OVER_TCP=1 exec "$@"'
    command = ["unshare", "--net", "sh", "-c", alone, "sh", sys.executable, __file__,
               "--train", options.train, "--count-bytes", str(folder)]
    gradients = 4 * (784 * 256 + 256 + 2560 + 10)
    for line in subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines():
        row = json.loads(line)
        ring = 2 * (row["ranks"] - 1) / row["ranks"] * gradients
        print(f"bytes a step and rank, mlp, {row['ranks']} ranks: {row['bytes']:.0f}; the ring's "
              f"2 (n - 1) / n are {ring:.0f}: {row['bytes'] / ring:.3f} ×", flush=True)


def bench_checkpoint(options, folder):
    # So far apart that the one before is on the disk, which 27 MB are after 0.2 s: a step waits for that, too.
    every = 20
    for model, strategy, ranks in (("mnist_convnet", "data_parallel", 2), ("mobilenet_v2", "data_parallel", 2),
                                   ("mlp", "pipeline", 2)):
        options.ranks = ranks
        steps, _ = native(options, folder, model, checkpoints=str(folder / f"kept-{model}"), strategy=strategy,
                          max_steps=5 * every + 4, checkpoint_every_steps=every)
        waited = [m["checkpoint_seconds"] for m in steps if "checkpoint_seconds" in m]
        step = statistics.median(m["step_seconds"] for m in steps)
        # What the optimizer writes elsewhere meanwhile is no wait, and would be seen here.
        after = statistics.median(m["step_seconds"] for m in steps if m["step"] > every and m["step"] % every == 1)
        size = sum(f.stat().st_size for f in (folder / f"kept-{model}").iterdir()) / 2e6
        share = 100 * statistics.median(waited) / step
        print(f"checkpoint of {model}, {strategy}, {size:.1f} MB: a step waits {1e3 * statistics.median(waited):.2f} "
              f"ms of {1e3 * step:.1f} ms, {share:.1f} % (worst {100 * max(waited) / step:.1f} %); the step after one "
              f"takes {100 * (after / step - 1):.1f} % longer", flush=True)
        keep_row(f"checkpoint of {model}, {strategy}: a step waits, of a step", [100 * one / step for one in waited], "%")


def bench_start(options, folder):
    options.ranks = 1
    seen = []
    for _ in range(options.rounds + 1):
        start = time.time()
        steps, _ = native(options, folder, "mnist_convnet", max_steps=2)
        seen.append(steps[0]["time"] - start)
    print(f"start of a rank to the end of its first step: {statistics.median(seen[1:]):.3f} s "
          f"(from {min(seen):.3f} to {max(seen):.3f})", flush=True)
    keep_row("start of a rank to the end of its first step", seen[1:], "s", higher_is_better=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="models, or " + ", ".join(PARTS))
    parser.add_argument("--train", required=True, help="path of lockstep-train")
    parser.add_argument("--peer", action="append", default=[], metavar="PYTHON", help="one more with a torch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=20_000, help="images in the data set")
    parser.add_argument("--workers", type=int, default=0, help="threads or processes that load, of a rank of either side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minimum", type=float, default=0.0, help="fail below this ratio to any peer")
    parser.add_argument("--rows", type=pathlib.Path, help="file for the figures")
    parser.add_argument("--count-bytes", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.train = os.path.abspath(options.train)
    options.peers = [DEBIAN, *options.peer]
    built = HERE.parents[2] / "build" / "frameworks" / "torch" / "bin" / "python"
    if built.exists() and not options.peer:
        options.peers.append(str(built))
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.count_bytes:
        count_bytes(options, options.count_bytes)
        return 0
    ratios = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        make_texts(folder)
        native(options, folder, "mlp", max_steps=2)  # makes the data set, warms the caches
        for model in MODELS:
            if not options.only or model in options.only:
                ratios.append(bench_model(options, folder, model))
        for part, bench in zip(PARTS, (bench_all_reduce, bench_bytes, bench_checkpoint, bench_start), strict=True):
            if not options.only or part in options.only:
                bench(options, folder)
    if options.rows:
        options.rows.write_text(json.dumps(ROWS), encoding="utf-8")
    return 0 if not ratios or min(ratios) >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
