"""The native trainer's networks as an ordinary PyTorch script writes them, and their data, for peer_ddp.py."""

import math
import pathlib
import struct
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "fixtures"))

from torch_mobilenet import DEVIATION, MEAN, MobileNetV2  # noqa: E402


def norm(channels):
    """BatchNormalization(scale=False) with Keras's constants."""
    layer = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
    layer.weight.requires_grad_(False)
    return layer


class Rescaling(nn.Module):
    def forward(self, x):
        return x * (1.0 / 255.0)


def mnist_convnet():
    return nn.Sequential(
        Rescaling(),
        nn.Conv2d(1, 12, 3, padding=1, bias=False), norm(12), nn.ReLU(),
        nn.Conv2d(12, 24, 6, stride=2, bias=False), norm(24), nn.ReLU(),
        nn.Conv2d(24, 32, 6, stride=2, padding=2), norm(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))


def mlp():
    return nn.Sequential(Rescaling(), nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.5),
                         nn.Linear(256, 10))


def alexnet_split():
    def pool():
        return nn.MaxPool2d(3, 2, 1)

    return nn.Sequential(
        Rescaling(),
        nn.Conv2d(1, 96, 5, padding=2), nn.ReLU(), pool(),
        nn.Conv2d(96, 256, 5, padding=2, groups=2), nn.ReLU(), pool(),
        nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 384, 3, padding=1, groups=2), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1, groups=2), nn.ReLU(), pool(),
        nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(256 * 16, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


class Coloured(nn.Module):
    """Grey images in all three colours, ImageNet's mean taken out."""

    def forward(self, x):
        return ((x / 255.0).expand(-1, 3, -1, -1) - MEAN.to(x.device)) / DEVIATION.to(x.device)


def mobilenet_v2():
    return nn.Sequential(Coloured(), MobileNetV2())


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if hasattr(functional, "scaled_dot_product_attention"):  # from 2.0 on
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            seen = scores.masked_fill(later, -math.inf).softmax(-1) @ value
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, context, width=128):
        super().__init__()
        self.words, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(4)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.blocks(x)).flatten(0, 1)


class Seq2Seq(nn.Module):
    """Luong's attention over a GRU, as PyTorch's tutorial has it, all places of the target at once."""

    def __init__(self, context, width=128):
        super().__init__()
        self.context = context
        self.source, self.target = nn.Embedding(256, width), nn.Embedding(256, width)
        self.encoder, self.decoder = (nn.GRU(width, width, batch_first=True) for _ in range(2))
        self.attention, self.combine = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 256)

    def forward(self, x):
        source, target = x[:, :self.context], x[:, self.context:]
        seen, _ = self.encoder(self.source(source))
        is_there = source != 0
        last = (is_there.sum(1) - 1).view(-1, 1, 1).expand(-1, 1, seen.shape[2])
        states, _ = self.decoder(self.target(target), seen.gather(1, last).transpose(0, 1).contiguous())
        scores = self.attention(states) @ seen.transpose(1, 2)
        weights = scores.masked_fill(~is_there.unsqueeze(1), -math.inf).softmax(-1)
        both = torch.cat([weights @ seen, states], -1)
        return self.head(torch.tanh(self.combine(both))).flatten(0, 1)


def read_idx(path):
    data = path.read_bytes()
    dimensions = data[3]
    sizes = struct.unpack(f">{dimensions}I", data[4:4 + 4 * dimensions])
    return torch.frombuffer(bytearray(data[4 + 4 * dimensions:]), dtype=torch.uint8).view(sizes)


def images(folder, _):
    pixels = read_idx(folder / "train-images-idx3-ubyte").unsqueeze(1).float()
    return TensorDataset(pixels, read_idx(folder / "train-labels-idx1-ubyte").long())


def text(path, context):
    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
    count = (len(data) * 9 // 10 - 1) // context
    return TensorDataset(data[:count * context].view(count, context),
                         data[1:count * context + 1].view(count, context))


def pairs(path, context):
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if number % 10:
            source, target = line.split(b"\t")[:2]
            rows.append(list(source.ljust(context, b"\0")) + [2] + list(target.ljust(context, b"\0"))
                        + list((target + b"\3").ljust(context + 1, b"\0")))
    data = torch.tensor(rows)
    answers = data[:, 2 * context + 1:]
    return TensorDataset(data[:, :2 * context + 1], answers.masked_fill(answers == 0, -100))


MODELS = {  # name: (network of a context, its data of a path and a context)
    "mnist_convnet": (lambda _: mnist_convnet(), images),
    "mlp": (lambda _: mlp(), images),
    "alexnet_split": (lambda _: alexnet_split(), images),
    "mobilenet_v2": (lambda _: mobilenet_v2(), images),
    "gpt": (Gpt, text),
    "seq2seq": (Seq2Seq, pairs),
}
