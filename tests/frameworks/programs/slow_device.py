"""A training whose losses arrive from the device only after it has ended: every event stands in for a GPU's, whose
copy takes 20 looks. With "lightning" Lightning trains and the package's callback reports. After five steps it fails."""

import sys
import time

import torch

from lockstep import _measure


class Event:
    looks = 20

    def query(self):
        self.looks -= 1
        return self.looks < 0


def report(self, step, loss, **fields):
    self._waiting.append((Event(), step, loss.clone(), time.time(), fields))
    self.flush(0)


_measure.Later.report = report
model = torch.nn.Linear(4, 1)


def loss_of(x):
    return ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()


def by_hand():
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(torch.randn(8, 4)).backward()
        optimizer.step()
    raise ValueError("the sixth batch is broken")


def by_lightning():
    import lightning.pytorch as pl

    from lockstep.lightning import LockstepCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            if index == 5:
                raise ValueError("the sixth batch is broken")
            return loss_of(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.05)

    pl.Trainer(accelerator="cpu", max_epochs=1, callbacks=[LockstepCallback()], logger=False, enable_progress_bar=False,
               enable_checkpointing=False).fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 4), 8))


by_lightning() if "lightning" in sys.argv else by_hand()
