"""DistributedDataParallel that may go on in a larger or smaller world in the middle of an epoch. Plain PyTorch;
nothing in it is Lockstep's.

    lockstep submit deploy/examples/elastic.json --follow          from the repository's folder

A checkpoint says how many samples of the epoch all ranks together have used. What is left of the epoch is shared
out among the ranks that there are, so each sample is used once in an epoch, whatever comes between (but for up to
WORLD_SIZE - 1 that DistributedSampler repeats to fill up the last places of what it shares out).

--global-batch stays what it is: each rank takes its part. --show-samples prints which samples each step takes.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits(samples):
    """Ten noisy patterns of 28 × 28 with their numbers, the same on every rank."""
    made = torch.Generator().manual_seed(7)
    patterns = (torch.rand(10, 28 * 28, generator=made) > 0.7).float()
    labels = torch.arange(samples) % 10
    return TensorDataset(patterns[labels] + 0.6 * torch.randn(samples, 28 * 28, generator=made), labels,
                         torch.arange(samples))


def rest_of_epoch(data, epoch, used, batch_size):
    """A loader of this rank's share of what is left of the epoch once `used` samples of it are."""
    # The order depends on the epoch alone, so it is the same on every rank and in every world.
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch)).tolist()
    rest = Subset(data, order[used:])
    return DataLoader(rest, batch_size=batch_size, sampler=DistributedSampler(rest, shuffle=False))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--global-batch", type=int, default=96)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="let each step take longer, to look on")
    parser.add_argument("--show-samples", action="store_true")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    epoch, used, step = 1, 0, 0
    path = os.path.join(os.environ.get("LOCKSTEP_CHECKPOINT_DIR", "."), "train_elastic.pt")
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch, used, step = saved["epoch"], saved["used"], saved["step"]
    dist.barrier()  # nobody writes a newer one while another still reads
    print(f"rank {rank} of {world}: epoch {epoch}, {used} samples of it used, step {step}", flush=True)

    data = digits(options.samples)
    ddp = DistributedDataParallel(model)
    while epoch <= options.epochs:
        for images, labels, numbers in rest_of_epoch(data, epoch, used, max(options.global_batch // world, 1)):
            time.sleep(options.step_seconds)
            if options.show_samples:
                print(f"samples of epoch {epoch} step {step + 1} of {world}: {numbers.tolist()}", flush=True)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            used += len(numbers) * world  # every rank's batch has the same length: the sampler fills up
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if rank == 0 and step % options.save_every == 0:
                # A new name and a rename: what is there under its own name is whole.
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch,
                            "used": used, "step": step}, path + ".new")
                os.replace(path + ".new", path)
        epoch, used = epoch + 1, 0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
