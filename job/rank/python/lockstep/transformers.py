"""Hugging Face's Trainer: a callback that reports on every rank.

    trainer = Trainer(…, callbacks=[lockstep.transformers.LockstepCallback()])

Trainer logs the mean of all ranks' losses since it logged last, every `logging_steps`; that is what is reported, with
the time of each step. Without Lockstep it does nothing.
"""

from typing import Any, Dict, Optional

from transformers import TrainerCallback

import lockstep
from lockstep._measure import Clock, numbers, say_phase

__all__ = ["LockstepCallback"]


class LockstepCallback(TrainerCallback):
    """Reports step_seconds of each optimizer step, what Trainer logs, and when it evaluates or saves."""

    def __init__(self) -> None:
        self._clock = Clock()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._clock = Clock()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        fields = self._clock.step()
        fields.pop("data_wait_seconds", None)  # Trainer does not say
        if fields:
            lockstep.report(state.global_step, **fields)
        self._say_what_follows(control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        say_phase("train")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._say_what_follows(control)

    # Trainer calls nothing before it evaluates or saves; its own callback, which comes first, has set what it will do.
    @staticmethod
    def _say_what_follows(control: Any) -> None:
        say_phase("eval" if control.should_evaluate else "checkpoint" if control.should_save else "train")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        say_phase("eval")  # of evaluate() that the script itself calls

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        say_phase("checkpoint" if control.should_save else "train")

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        say_phase("train")

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **kwargs: Any) -> None:
        # The last log of a run is its summary (train_loss is the mean of the whole run).
        found = {} if logs is None or "train_runtime" in logs else numbers(
            {name: value for name, value in logs.items() if name != "epoch"})
        if found:
            lockstep.report(max(state.global_step, 1), epoch=int(state.epoch or 0), **found)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        say_phase("train")
        if state.is_world_process_zero:
            lockstep.checkpoint(state.global_step, f"{args.output_dir}/checkpoint-{state.global_step}")
