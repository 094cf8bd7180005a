"""Accelerate: a tracker.

    accelerator = Accelerator(log_with=LockstepTracker())
    accelerator.init_trackers("run")
    accelerator.log({"loss": loss}, step=step)

Accelerate sets trackers up and calls them on the main process only. For every rank's own loss: lockstep.report(), or
lockstep.auto(). Without Lockstep it does nothing.
"""

from typing import Any, Dict, Optional

from accelerate.tracking import GeneralTracker

import lockstep
from lockstep._measure import numbers

__all__ = ["LockstepTracker"]


class LockstepTracker(GeneralTracker):
    """Reports what accelerator.log() is given; steps are Accelerate's plus one, as it counts from 0."""

    name = "lockstep"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._step = 0

    @property
    def tracker(self) -> Any:
        return lockstep

    def store_init_configuration(self, values: Dict[str, Any]) -> None:
        pass

    def log(self, values: Dict[str, Any], step: Optional[int] = None, **options: Any) -> None:
        self._step = self._step + 1 if step is None else int(step) + 1
        found = numbers(values)
        if found:
            lockstep.report(self._step, **found)
