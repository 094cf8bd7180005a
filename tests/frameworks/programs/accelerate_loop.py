"""Accelerate's loop: prepare() and backward(), state saved by save_state(). Prints on every rank."""

import argparse
import os

import hold
import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--folder", default="")
parser.add_argument("--bad-data", type=int, default=-1)
args = parser.parse_args()

accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
images = torch.randn(512, 64)
data = torch.utils.data.TensorDataset(images, images[:, :10].argmax(1))
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.5)
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
first = 0
if args.folder and os.path.exists(os.path.join(args.folder, "epoch")):
    with open(os.path.join(args.folder, "epoch"), encoding="ascii") as file:
        first = int(file.read()) + 1
    accelerator.load_state(os.path.join(args.folder, f"state-{(first - 1) % 2}"))
    print(f"resumes at epoch {first}", flush=True)
print(f"rank {accelerator.process_index} of {accelerator.num_processes}, {accelerator.distributed_type}", flush=True)
for epoch in range(first, args.epochs):
    for batch, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            if accelerator.process_index == args.bad_data and batch == 2:
                y = y + 17
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch: {epoch}, batch: {batch}, loss is: [{loss.item():.5f}]", flush=True)
    if args.folder:
        accelerator.save_state(os.path.join(args.folder, f"state-{epoch % 2}"))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            with open(os.path.join(args.folder, "epoch.new"), "w", encoding="ascii") as file:
                file.write(str(epoch))
            os.replace(os.path.join(args.folder, "epoch.new"), os.path.join(args.folder, "epoch"))
        accelerator.wait_for_everyone()  # the next state is written over the one before this
hold.until_released()
accelerator.end_training()
