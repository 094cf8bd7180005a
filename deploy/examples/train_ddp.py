"""DistributedDataParallel on digits drawn on the spot; an ordinary script, nothing in it is Lockstep's.

    lockstep submit deploy/examples/pytorch-ddp.json --follow      from the repository's folder
    torchrun --nproc_per_node 2 deploy/examples/train_ddp.py       the same without Lockstep

Rank 0 writes a checkpoint after each epoch into $LOCKSTEP_CHECKPOINT_DIR if that is set, and every rank
begins from it if it is there, so that `"recovery": {}` in the specification needs nothing more.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits(samples):
    """Ten noisy patterns of 28 × 28, the same on every rank."""
    made = torch.Generator().manual_seed(7)
    patterns = (torch.rand(10, 28 * 28, generator=made) > 0.7).float()
    labels = torch.arange(samples) % 10
    return TensorDataset(patterns[labels] + 0.6 * torch.randn(samples, 28 * 28, generator=made), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.001)
    options = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(28 * 28, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

    folder = os.environ.get("LOCKSTEP_CHECKPOINT_DIR")
    path = os.path.join(folder, "train_ddp.pt") if folder else None
    first = 1
    if path and os.path.exists(path):
        saved = torch.load(path, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1

    data = digits(options.samples)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=options.batch_size, sampler=sampler)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    step = (first - 1) * len(loader)
    for epoch in range(first, options.epochs + 1):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            step += 1
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        if path and dist.get_rank() == 0:
            # A new name and a rename: what is there under its own name is whole.
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                       path + ".new")
            os.replace(path + ".new", path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
