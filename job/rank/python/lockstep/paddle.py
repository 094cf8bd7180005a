"""Paddle's high-level API: a callback for paddle.Model.fit().

    model.fit(…, callbacks=[lockstep.paddle.LockstepCallback()])

Paddle's own progress line is printed on rank 0 only; this reports on every rank. Without Lockstep it does nothing.
"""

from typing import Any, Dict, Optional

from paddle.callbacks import Callback

import lockstep
from lockstep._measure import Clock, numbers

__all__ = ["LockstepCallback"]


def _first(value: Any) -> Any:
    """Losses and metrics come as lists of one."""
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return value


class LockstepCallback(Callback):
    """Reports each batch of training: loss, metrics, step_seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._step = 0
        self._epoch = 0
        self._clock = Clock()

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._clock = Clock()

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, step: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._step += 1
        fields = self._clock.step()
        fields.pop("data_wait_seconds", None)
        said = logs or {}
        found = numbers({name: _first(value) for name, value in said.items() if name not in ("step", "batch_size")})
        if "batch_size" in said:
            found["samples"] = int(_first(said["batch_size"]))
        lockstep.report(self._step, epoch=self._epoch, **found, **fields)
