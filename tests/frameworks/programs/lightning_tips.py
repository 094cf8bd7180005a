"""Lightning as its list of tips has it: workers that load, accumulated gradients, DDP on several nodes.

Prints what Lightning prints: its progress bar, on rank 0. --bad-data RANK: that rank meets a label that does not exist.
"""

import argparse

import hold
import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment, SLURMEnvironment
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=2)
parser.add_argument("--devices", type=int, default=2)
parser.add_argument("--strategy", default="ddp")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--folder", default="")
parser.add_argument("--bad-data", type=int, default=-1)
parser.add_argument("--environment", default="", help="slurm or lightning: not the one that Lightning finds")


class Classifier(pl.LightningModule):
    def __init__(self, bad_rank):
        super().__init__()
        self.bad_rank = bad_rank
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def training_step(self, batch, index):
        x, y = batch
        if self.global_rank == self.bad_rank and index == 2:
            y = y + 17
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def main():
    args = parser.parse_args()
    pl.seed_everything(0)
    images = torch.randn(1024, 64)
    data = TensorDataset(images, images[:, :10].argmax(1))
    checkpoints = pl.callbacks.ModelCheckpoint(dirpath=args.folder, save_last=True) if args.folder else None
    environments = {"slurm": SLURMEnvironment, "lightning": LightningEnvironment}
    plugins = [environments[args.environment]()] if args.environment else None
    trainer = pl.Trainer(accelerator="cpu", devices=args.devices, num_nodes=args.nodes, strategy=args.strategy, plugins=plugins,
                         max_epochs=args.epochs, accumulate_grad_batches=2, logger=False, log_every_n_steps=1,
                         callbacks=[checkpoints] if checkpoints else None, enable_checkpointing=bool(args.folder))
    # ckpt_path "last": the newest if there is one.
    trainer.fit(Classifier(args.bad_data), DataLoader(data, 32, shuffle=True, num_workers=1, persistent_workers=True),
                ckpt_path="last" if args.folder else None)
    hold.until_released()
    print(f"{type(trainer.strategy.cluster_environment).__name__} rank {trainer.global_rank} of {trainer.world_size}",
          flush=True)


if __name__ == "__main__":
    main()
