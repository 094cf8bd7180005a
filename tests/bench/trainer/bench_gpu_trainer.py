#!/usr/bin/python3
"""Native trainer on a GPU against PyTorch on the same one: eager, torch.compile, and with CUDA graphs.

    bench_gpu_trainer.py --train build/bin/lockstep-train [--python PYTHON] [--precision bf16] [only …]

One rank. The native one reads its data set through its loader and reports every step; the peer has all of it on the GPU
(peer_gpu.py). What it takes is the time of the last two thirds of the steps. The cost of reporting is that of the report
calls over all steps. Where there is no GPU it says so and measures nothing.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))

import bench_trainer  # noqa: E402
import rank_agent  # noqa: E402

MODELS = {  # name: (data, batch, steps, context, resize)
    "mnist_convnet": ("digits", 256, 900, 0, 0),
    "mobilenet_v2": ("digits", 128, 240, 0, 112),
    "gpt": ("text", 64, 600, 256, 0),
}


def configuration(options, folder, model, **more):
    data, batch, steps, context, resize = MODELS[model]
    out = {"model": model, "batch_size": batch, "max_steps": steps, "epochs": 100_000, "devices": "gpu",
           "precision": options.precision, "checkpoint_every_steps": 0, "export": "none", "loader_workers": options.workers,
           "dataset": {"name": data, "path": str(folder / data)}, **more}
    if data == "digits":
        out.update(train_samples=20_000, test_samples=200)
    else:
        out["context"] = context
    if resize:
        out["dataset"]["resize"] = resize
    if model == "mobilenet_v2":
        out["dropout"] = 0.2
    path = folder / f"{model}.json"
    path.write_text(json.dumps(out))
    return path


def native(options, folder, model, **more):
    """(samples/s, share of reporting in %)"""
    _, batch, steps, _, _ = MODELS[model]
    steps = more.get("max_steps", steps)
    codes, reports = rank_agent.run([options.train, "--config", str(configuration(options, folder, model, **more))],
                                    1, "", log_directory=str(folder))
    log = (folder / "0.log").read_text(encoding="utf-8")
    if any(codes):
        sys.exit(f"lockstep-train failed: {codes}\n{log[-2000:]}")
    ends = {m["step"]: m["time"] for _, m in reports if m["op"] == "report" and "loss" in m}
    share = float(re.search(r"reporting took ([0-9.]+) %", log)[1])
    more_words = re.search(r"([0-9]+ tokens/s, MFU [0-9.]+)", log)
    return 2 * (steps // 3) * batch / (ends[steps] - ends[steps - 2 * (steps // 3)]), share, more_words and more_words[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="models: " + ", ".join(MODELS))
    parser.add_argument("--train", required=True, help="path of a lockstep-train with CUDA")
    parser.add_argument("--python", default=sys.executable, help="the one with PyTorch")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--workers", type=int, default=4, help="threads of the native loader")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ways", nargs="*", help="of the peer; default: all")
    options = parser.parse_args()
    options.train = os.path.abspath(options.train)
    if subprocess.run([options.python, "-c", "import torch; torch.zeros(1).cuda()"], capture_output=True, check=False).returncode:
        print(f"gpu: SKIPPED: {options.python} has no PyTorch that can use a GPU")
        return 0
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        bench_trainer.make_texts(folder)
        models = [m for m in MODELS if not options.only or m in options.only]
        for model in models:  # makes the data set
            native(options, folder, model, max_steps=30)
        peers = {}
        for model in models:
            data, batch, steps, context, resize = MODELS[model]
            command = [options.python, str(HERE / "peer_gpu.py"), "--model", model, "--data", str(folder / data),
                       "--context", str(context), "--resize", str(resize), "--batch", str(batch), "--steps", str(steps // 2),
                       "--precision", options.precision, *(["--ways", *options.ways] if options.ways else [])]
            peers[model] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            stderr=open(folder / f"{model}.peer", "w", encoding="utf-8"))
        for peer in peers.values():
            peer.stdout.readline()  # "ready"
        for model, peer in peers.items():
            seen = [native(options, folder, model) for _ in range(options.rounds)]
            rows = [json.loads(line) for line in peer.communicate("go\n")[0].splitlines()] if peer.poll() is None else []
            if not rows:
                print(f"{model}: the peer failed: " + (folder / f"{model}.peer").read_text(encoding="utf-8")[-600:])
            seen += [native(options, folder, model)]
            rates = sorted(rate for rate, _, _ in seen)
            ours = rates[len(rates) // 2]
            print(f"{model}, {options.precision}, batch {MODELS[model][1]}: native {ours:.0f} samples/s (from {rates[0]:.0f} "
                  f"to {rates[-1]:.0f}), reporting {seen[-1][1]:.3f} %, {seen[-1][2] or ''}", flush=True)
            for row in rows:
                print(f"  {row['way']}: {row['samples_per_second']:.0f}, ratio {ours / row['samples_per_second']:.2f} "
                      f"(torch {row['torch']}, {row['gpu']})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
