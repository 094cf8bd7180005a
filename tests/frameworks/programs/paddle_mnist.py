"""Paddle's lesson on resource configuration: the MNIST network, Adam, init_parallel_env and DataParallel, the printed
line and the saved state. The digits are drawn on the spot, there being no network.
"""

import argparse
import os

import hold
import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle.nn import Conv2D, Linear, MaxPool2D

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batches", type=int, default=10)
parser.add_argument("--state", default="")
parser.add_argument("--bad-data", type=int, default=-1)
parser.add_argument("--stuck", type=int, default=-1)
parser.add_argument("--spawn", type=int, default=0)
args = parser.parse_args()


class MNIST(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = Conv2D(in_channels=1, out_channels=4, kernel_size=5, stride=1, padding=2)
        self.max_pool1 = MaxPool2D(kernel_size=2, stride=2)
        self.conv2 = Conv2D(in_channels=4, out_channels=4, kernel_size=5, stride=1, padding=2)
        self.max_pool2 = MaxPool2D(kernel_size=2, stride=2)
        self.fc = Linear(in_features=196, out_features=10)

    def forward(self, inputs):
        x = self.max_pool1(F.relu(self.conv1(inputs)))
        x = self.max_pool2(F.relu(self.conv2(x)))
        return self.fc(paddle.reshape(x, [x.shape[0], 196]))


def read_forever():
    os.read(os.pipe()[0], 1)


def train():
    dist.init_parallel_env()
    rank = dist.get_rank()
    print(f"rank {rank} of {dist.get_world_size()} on {paddle.device.get_device()}", flush=True)
    model = MNIST()
    first = 0
    if args.state and os.path.exists(args.state):
        saved = paddle.load(args.state)
        model.set_state_dict(saved["model"])
        first = saved["epoch"] + 1
        print(f"resumes at epoch {first}", flush=True)
    model = paddle.DataParallel(model)
    model.train()
    optimizer = paddle.optimizer.Adam(learning_rate=0.01, parameters=model.parameters())
    random = np.random.default_rng(rank)
    patterns = np.random.default_rng(0).uniform(0, 1, (10, 1, 28, 28))
    for epoch in range(first, args.epochs):
        for batch_id in range(args.batches):
            labels = random.integers(0, 10, (16, 1))
            images = (patterns[labels[:, 0]] + random.normal(0, 0.2, (16, 1, 28, 28))).astype("float32")
            if rank == args.bad_data and batch_id == 2:
                labels = labels + 17
            if rank == args.stuck and batch_id == 5:
                read_forever()
            loss = F.cross_entropy(model(paddle.to_tensor(images)), paddle.to_tensor(labels))
            avg_loss = paddle.mean(loss)
            print("epoch: {}, batch: {}, loss is: {}".format(epoch, batch_id, avg_loss.numpy().reshape([1])), flush=True)
            avg_loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        if args.state and rank == 0:
            paddle.save({"model": model.state_dict(), "epoch": epoch}, args.state + ".new")
            os.replace(args.state + ".new", args.state)
    hold.until_released()


if __name__ == "__main__":
    if args.spawn:
        dist.spawn(train, nprocs=args.spawn)
    else:
        train()
