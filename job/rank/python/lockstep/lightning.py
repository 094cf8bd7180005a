"""Lightning: a Logger and a Callback that report on every rank.

    trainer = lightning.Trainer(callbacks=[LockstepCallback()], logger=LockstepLogger(), …)

The callback reports the loss of each optimizer step, its time and the wait for data. The logger takes what the module
logs (self.log). Either is enough; both may be used. Without Lockstep they do nothing.
"""

import sys
from typing import Any, Dict, Optional

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.loggers.logger import Logger
else:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers.logger import Logger

import lockstep
from lockstep._measure import END_SECONDS, Clock, Later, numbers, say_phase

__all__ = ["LockstepCallback", "LockstepLogger"]


class LockstepLogger(Logger):
    """Reports what is logged, on every rank: values are the rank's own unless they are logged with sync_dist=True."""

    @property
    def name(self) -> str:
        return "lockstep"

    @property
    def version(self) -> str:
        return lockstep.context().job_id or "none"

    def log_metrics(self, metrics: Dict[str, Any], step: Optional[int] = None) -> None:
        found = numbers({name: value for name, value in metrics.items() if name != "epoch"})
        if found:
            lockstep.report((step or 0) + 1, epoch=int(metrics["epoch"]) if "epoch" in metrics else None, **found)

    def log_hyperparams(self, params: Any, *arguments: Any, **options: Any) -> None:
        pass


class LockstepCallback(Callback):
    """Reports each optimizer step: loss (of all its micro-batches), step_seconds, data_wait_seconds."""

    def __init__(self) -> None:
        self._later = Later()
        self._clock = Clock()
        self._loss: Any = None
        self._step = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        say_phase("train")
        self._step = trainer.global_step
        self._clock = Clock()
        self._clock.batch_wanted()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        say_phase("train")  # Lightning calls nothing once a checkpoint is there
        self._clock.batch_there()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and hasattr(loss, "detach"):
            loss = loss.detach()  # divided by accumulate_grad_batches already, so the parts add up
            self._loss = loss if self._loss is None else self._loss + loss
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._later.report(self._step, self._loss, epoch=trainer.current_epoch, **self._clock.step())
            self._loss = None
        self._clock.batch_wanted()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._later.flush(END_SECONDS)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._later.flush(END_SECONDS)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        say_phase("checkpoint")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        say_phase("eval")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        say_phase("train")
