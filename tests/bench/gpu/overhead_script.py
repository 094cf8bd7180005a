"""The script of overhead.py: overhead_script.py DEVICE STEPS. Trains the convnet, reports each step, prints the share of that."""

import json
import sys
import time

import lockstep
import torch
from peer_models import mnist_convnet


def main():
    device, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    model = mnist_convnet().to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    x = torch.rand(256 if device == "cuda" else 32, 1, 28, 28, device=device) * 255
    y = torch.randint(10, (len(x),), device=device)
    began, reporting = time.perf_counter(), 0.0
    for step in range(1, steps + 1):
        if step == steps // 5:
            began, reporting = time.perf_counter(), 0.0
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()  # a script that looks at its loss waits for the GPU here, reported or not
        before = time.perf_counter()
        lockstep.report(step=step, loss=value)
        reporting += time.perf_counter() - before
    print(json.dumps({"percent": 100 * reporting / (time.perf_counter() - began)}), flush=True)


main()
