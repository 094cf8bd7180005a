"""Keras' guide to distributed training with PyTorch, its model, loop and launch. What differs, since there is no GPU
and no network: the processes are counted by an argument, gloo instead of nccl, digits drawn on the spot.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers


def get_model():
    inputs = keras.Input(shape=(28, 28, 1))
    x = layers.Rescaling(1.0 / 255.0)(inputs)
    x = layers.Conv2D(filters=12, kernel_size=3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(scale=False, center=True)(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(filters=24, kernel_size=6, use_bias=False, strides=2)(x)
    x = layers.BatchNormalization(scale=False, center=True)(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(filters=32, kernel_size=6, padding="same", strides=2, name="large_k")(x)
    x = layers.BatchNormalization(scale=False, center=True)(x)
    x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(256, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    outputs = layers.Dense(10)(x)
    return keras.Model(inputs, outputs)


def get_dataset():
    random = np.random.default_rng(0)
    y_train = random.integers(0, 10, 1024)
    patterns = random.uniform(0, 255, (10, 28, 28))
    x_train = (patterns[y_train] + random.normal(0, 40, (1024, 28, 28))).astype("float32")
    x_train = np.expand_dims(x_train, -1)
    print("x_train shape:", x_train.shape)
    return torch.utils.data.TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))


def train_model(model, dataloader, num_epochs, optimizer, loss_fn):
    for epoch in range(num_epochs):
        running_loss = 0.0
        running_loss_count = 0
        for batch_idx, (inputs, targets) in enumerate(dataloader):
            outputs = model(inputs)
            loss = loss_fn(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            running_loss_count += 1
        print(f"Epoch {epoch + 1}/{num_epochs}, Loss: {running_loss / running_loss_count}")


num_epochs = 2
batch_size = 64


def setup_device(current_gpu_index, num_gpus):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "56492"
    torch.distributed.init_process_group(
        backend="gloo", init_method="env://", world_size=num_gpus, rank=current_gpu_index)


def cleanup():
    torch.distributed.destroy_process_group()


def prepare_dataloader(dataset, current_gpu_index, num_gpus, batch_size):
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=num_gpus, rank=current_gpu_index, shuffle=False)
    return torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=batch_size, shuffle=False)


def per_device_launch_fn(current_gpu_index, num_gpu):
    setup_device(current_gpu_index, num_gpu)
    torch.set_num_threads(1)
    dataset = get_dataset()
    model = get_model()
    dataloader = prepare_dataloader(dataset, current_gpu_index, num_gpu, batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = torch.nn.CrossEntropyLoss()
    ddp_model = torch.nn.parallel.DistributedDataParallel(model)
    train_model(ddp_model, dataloader, num_epochs, optimizer, loss_fn)
    cleanup()


if __name__ == "__main__":
    num_gpu = int(sys.argv[1])
    print(f"Running on {num_gpu} GPUs")
    torch.multiprocessing.start_processes(
        per_device_launch_fn, args=(num_gpu,), nprocs=num_gpu, join=True, start_method="fork")
