"""What the callbacks share: metric names, the loss of a tensor without waiting for a device, the time of a step."""

import re
import time
from collections import deque
from typing import Any, Dict, Mapping, Optional

import lockstep
from lockstep import _client

_LOSS_NAMES = ("loss", "train_loss", "train/loss", "training_loss", "loss_step", "train_loss_step", "train/loss_step")
_UNFIT = re.compile(r"[^a-z0-9_]+")


def metric_name(name: str) -> str:
    """'Val/Acc@1' -> 'val_acc_1'; a training loss is 'loss', whatever it is called."""
    if name.lower() in _LOSS_NAMES:
        return "loss"
    out = _UNFIT.sub("_", str(name).lower()).strip("_")
    if not out or not out[0].isalpha():
        out = "m_" + out
    if out in _client.RESERVED:
        out += "_value"
    return out[:64]


def numbers(values: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Of a dictionary of a framework's the entries that are a number, by the names that Lockstep takes."""
    found = {}
    for name, value in (values or {}).items():
        try:
            found[metric_name(name)] = _client._number(name, value)
        except (TypeError, ValueError, RuntimeError):
            continue  # a text, an array
    return found


_phase = "train"  # what this process was last said to be in; another trainer of it may go on


def say_phase(name: str) -> None:
    """phase() of the callbacks, as it changes: a phase that a script says by itself stays until they say another."""
    global _phase
    if name != _phase and lockstep.phase(name) is not False:  # else it was lost, and is said again
        _phase = name


# For what is still on its way from a device when a training ends. A device that waits for a rank that is gone never
# answers: the process must end all the same.
END_SECONDS = 2.0


class Later:
    """Reports whose loss is on a device: sent once it has arrived, so that nothing waits for a GPU while it trains.

    At most 64 wait; more are dropped, the oldest first. Who makes one calls flush(END_SECONDS) at the end.
    """

    def __init__(self) -> None:
        self._waiting: deque = deque(maxlen=64)

    def report(self, step: int, loss: Any, **fields: Any) -> None:
        if loss is not None and getattr(loss, "is_cuda", False):
            import torch

            if torch.cuda.is_current_stream_capturing():
                return  # a CUDA graph would make the copy part of every replay, and its event cannot be asked
            try:
                copy = loss.detach().to("cpu", non_blocking=True)
                event = torch.cuda.Event()
                event.record()
                self._waiting.append((event, step, copy, time.time(), fields))
            except RuntimeError:
                pass
        else:
            if loss is not None:
                fields["loss"] = _client._number("loss", loss.detach() if hasattr(loss, "detach") else loss)
            _client.send_report(step, **fields)
        self.flush()

    def flush(self, seconds: float = 0.0) -> None:
        """Sends what has arrived; waits at most so long for the rest. A device that has failed raises nothing here."""
        deadline = time.monotonic() + seconds
        while self._waiting:
            event, step, copy, moment, fields = self._waiting[0]
            try:
                arrived = event.query()
            except RuntimeError:
                self._waiting.clear()
                return
            if arrived:
                self._waiting.popleft()
                _client.send_report(step, timestamp=moment, loss=float(copy), **fields)
            elif time.monotonic() < deadline:
                time.sleep(0.001)
            else:
                return


class Clock:
    """The seconds between two steps, of which so many were waited for data."""

    def __init__(self) -> None:
        self._last: Optional[float] = None
        self._since: Optional[float] = None
        self.data_wait = 0.0

    def batch_wanted(self) -> None:
        self._since = time.perf_counter()

    def batch_there(self) -> None:
        if self._since is not None:
            self.data_wait += time.perf_counter() - self._since
            self._since = None

    def step(self) -> Dict[str, Any]:
        """The fields of a report: step_seconds (not of the first) and data_wait_seconds."""
        now = time.perf_counter()
        fields: Dict[str, Any] = {}
        if self._last is not None:
            fields["step_seconds"] = now - self._last
            fields["data_wait_seconds"] = self.data_wait
        self._last, self.data_wait = now, 0.0
        return fields
