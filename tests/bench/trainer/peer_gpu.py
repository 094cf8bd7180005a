#!/usr/bin/python3
"""The peer of the GPU trainer's benchmark: the same network trained by PyTorch on one GPU, as eager code, by
torch.compile and by torch.compile(mode="reduce-overhead"), which makes CUDA graphs. On a CPU, where that bench is rehearsed, by
the first two.

It is given what it can have: the whole data set lies on the GPU, Adam is the fused one, and no loader takes part.
Compiling is not timed: it says "ready" behind it and waits for a line, so that several of these compile side by side and
are timed one after the other. Then a line of JSON for each way, with its error if it does not work (torch.compile on a GPU needs
Triton). Run by gpu/trainer.py.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
from peer_models import MODELS
from torch import nn

WAYS = {"eager": None, "compile": "default", "compile reduce-overhead": "reduce-overhead"}
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def trainer(options, way):
    """A function that makes so many steps."""
    torch.manual_seed(0)
    make_model, read = MODELS[options.model]
    model = make_model(options.context).to(options.device).train()
    if options.model in ("mnist_convnet", "mobilenet_v2", "alexnet_split"):
        model = model.to(memory_format=torch.channels_last)
    compiled = model if WAYS[way] is None else torch.compile(model, mode=WAYS[way])
    x, y = (tensor.to(options.device) for tensor in read(pathlib.Path(options.data), options.context).tensors)
    if options.resize:
        x = nn.functional.interpolate(x[:8192], size=(options.resize, options.resize), mode="bilinear")
        y = y[:8192]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    scaler = torch.amp.GradScaler(options.device, enabled=options.precision == "fp16")
    criterion = nn.CrossEntropyLoss()
    batches = len(x) // options.batch

    def steps(count):
        for step in range(count):
            if step % batches == 0:
                order = torch.randperm(len(x), device=options.device)
            chosen = order[step % batches * options.batch:][:options.batch]
            with torch.autocast(options.device, TYPES.get(options.precision), enabled=options.precision in TYPES):
                loss = criterion(compiled(x[chosen]), y[chosen].flatten())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loss.item()  # every step's loss is looked at, as ours is reported
        if options.device == "cuda":
            torch.cuda.synchronize()

    steps(options.warm_up)
    return steps


def rate(options, steps):
    steps(options.warm_up // 2)
    start = time.perf_counter()
    steps(options.steps)
    return options.steps * options.batch / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--data", required=True)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--resize", type=int, default=0)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--precision", default="fp32", choices=("fp32", *TYPES))
    parser.add_argument("--ways", nargs="*", choices=WAYS)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    options.warm_up = 20 if on_gpu else 2
    made, wrong = {}, {}
    for way in options.ways or (WAYS if on_gpu else list(WAYS)[:2]):
        try:
            made[way] = trainer(options, way)
        except Exception as error:  # the other ways count without it
            wrong[way] = f"{type(error).__name__}: {str(error).strip()[:200]}"
    print("ready", flush=True)
    sys.stdin.readline()
    for way, steps in made.items():
        print(json.dumps({"way": way, "samples_per_second": rate(options, steps)}), flush=True)
    for way, error in wrong.items():
        print(json.dumps({"way": way, "error": error}), flush=True)


if __name__ == "__main__":
    main()
