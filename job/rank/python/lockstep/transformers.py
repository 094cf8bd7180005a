"""Hugging Face's Trainer: a callback that reports on every rank.

    trainer = Trainer(…, callbacks=[lockstep.transformers.LockstepCallback()])

Trainer logs the mean of all ranks' losses since it logged last, every `logging_steps`; that is what is reported, with
the time of each step. Without Lockstep it does nothing.
"""

from typing import Any, Dict, Optional

from transformers import TrainerCallback

import lockstep
from lockstep._measure import Clock, numbers

__all__ = ["LockstepCallback"]


class LockstepCallback(TrainerCallback):
    """Reports step_seconds of each optimizer step, and what Trainer logs."""

    def __init__(self) -> None:
        self._clock = Clock()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._clock = Clock()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        fields = self._clock.step()
        fields.pop("data_wait_seconds", None)  # Trainer does not say
        if fields:
            lockstep.report(state.global_step, **fields)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **kwargs: Any) -> None:
        # The last log of a run is its summary (train_loss is the mean of the whole run).
        found = {} if logs is None or "train_runtime" in logs else numbers(
            {name: value for name, value in logs.items() if name != "epoch"})
        if found:
            lockstep.report(max(state.global_step, 1), epoch=int(state.epoch or 0), **found)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            lockstep.checkpoint(state.global_step, f"{args.output_dir}/checkpoint-{state.global_step}")
