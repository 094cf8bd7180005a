"""A script that reports and prints nothing, of three trainings one after another: the losses are 1, 1, then 2, 2, under a
default device, then 3, 3, 3, of which a new optimizer beside the old one makes the steps."""

import importlib.util

assert importlib.util.find_spec("torch")  # as `import transformers` asks

import torch  # noqa: E402


def train(optimizer, loss, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (weight * loss).sum().backward()
        optimizer.step()


weight = torch.nn.Parameter(torch.ones(1))
train(torch.optim.SGD([weight], 0.0), 1.0, 2)
torch.set_default_device("cpu")
before = torch.optim.SGD([weight], 0.0)
train(before, 2.0, 2)
torch.set_default_device(None)
train(torch.optim.Adam([weight], 0.0), 3.0, 3)
