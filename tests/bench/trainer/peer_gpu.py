#!/usr/bin/python3
"""The peer of the GPU trainer's benchmark: the same network trained by PyTorch on one GPU, as eager code, by
torch.compile and by torch.compile(mode="reduce-overhead"), which makes CUDA graphs.

It is given what it can have: the whole data set lies on the GPU, Adam is the fused one, and no loader takes part.
Compiling is not timed: it says "ready" behind it and waits for a line, so that several of these compile side by side and
are timed one after the other. Then a line of JSON for each way. Run by bench_gpu_trainer.py.
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


def trainer(options, way):
    """A function that makes so many steps."""
    torch.manual_seed(0)
    make_model, read = MODELS[options.model]
    model = make_model(options.context).cuda().train()
    if options.model in ("mnist_convnet", "mobilenet_v2", "alexnet_split"):
        model = model.to(memory_format=torch.channels_last)
    compiled = model if WAYS[way] is None else torch.compile(model, mode=WAYS[way])
    x, y = (tensor.cuda() for tensor in read(pathlib.Path(options.data), options.context).tensors)
    if options.resize:
        x = nn.functional.interpolate(x[:8192], size=(options.resize, options.resize), mode="bilinear")
        y = y[:8192]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    criterion = nn.CrossEntropyLoss()
    batches = len(x) // options.batch

    def steps(count):
        for step in range(count):
            if step % batches == 0:
                order = torch.randperm(len(x), device="cuda")
            chosen = order[step % batches * options.batch:][:options.batch]
            with torch.autocast("cuda", torch.bfloat16, enabled=options.precision == "bf16"):
                loss = criterion(compiled(x[chosen]), y[chosen].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()  # every step's loss is looked at, as ours is reported
        torch.cuda.synchronize()

    steps(20)
    return steps


def rate(options, steps):
    steps(10)
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
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    options = parser.parse_args()
    made = {way: trainer(options, way) for way in options.ways}
    print("ready", flush=True)
    sys.stdin.readline()
    for way, steps in made.items():
        print(json.dumps({"model": options.model, "way": way, "samples_per_second": rate(options, steps),
                          "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}), flush=True)


if __name__ == "__main__":
    main()
