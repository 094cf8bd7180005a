"""What a rank reports, also where people already look: TensorBoard, MLflow and W&B, by their own libraries.

    import lockstep.sinks
    lockstep.sinks.add("tensorboard", "/shared/tensorboard")     # tensorboard --logdir /shared/tensorboard, live
    lockstep.sinks.add("mlflow", "/shared/mlruns")               # or the address of a tracking server
    lockstep.sinks.add("wandb", "/shared/wandb")                 # offline: wandb sync /shared/wandb/wandb/offline-run-*

After that everything that report() and the callbacks of this package report goes there as well, of rank 0 or, with
all_ranks=True, of each. A thread writes: report() never waits for a disk or a server. What does not keep up is left out
beyond 10,000 reports, a sink that fails is named once on stderr and left; training goes on. A job's next generation
goes on with the same run: TensorBoard leaves out what the one before had after the step it begins with.
"""

import atexit
import os
import pathlib
import queue
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Tuple, Union

import lockstep
from lockstep import _client

__all__ = ["add"]

_WAITING = 10_000
_END_SECONDS = 10.0

Report = Tuple[int, float, Dict[str, float]]  # step, Unix seconds, metrics


def _name() -> str:
    place = lockstep.context()
    return f"{place.job_id or 'by-hand'}-rank-{place.rank:05d}"


class _TensorBoard:
    def __init__(self, folder: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._session = event_pb2.Event, summary_pb2.Summary, event_pb2.SessionLog
        self._writer = EventFileWriter(str(pathlib.Path(folder) / _name()))
        self._first = True

    def write(self, reports: List[Report]) -> None:
        for step, moment, metrics in reports:
            if self._first:
                self._first = False
                self._writer.add_event(self._event(step=step, wall_time=moment,
                                                   session_log=self._session(status=self._session.START)))
            values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
            self._writer.add_event(self._event(step=step, wall_time=moment, summary=self._summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _MLflow:
    def __init__(self, place: str) -> None:
        if "://" not in place:
            # Folders of files, which mlflow-skinny and several machines can write; a database is a URI of the user's.
            place = pathlib.Path(place).resolve().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self._metric, self._client = Metric, MlflowClient(tracking_uri=place)
        experiment = self._client.get_experiment_by_name("lockstep")
        number = experiment.experiment_id if experiment else self._client.create_experiment("lockstep")
        found = self._client.search_runs([number], filter_string=f"tags.lockstep = '{_name()}'", max_results=1)
        run = found[0] if found else self._client.create_run(number, run_name=_name(), tags={"lockstep": _name()})
        self._run = run.info.run_id

    def write(self, reports: List[Report]) -> None:
        all_of_them = [self._metric(name, value, int(moment * 1000), step)
                       for step, moment, metrics in reports for name, value in metrics.items()]
        for begin in range(0, len(all_of_them), 1000):  # as many as a server takes at once
            self._client.log_batch(self._run, metrics=all_of_them[begin:begin + 1000])

    def close(self) -> None:
        self._client.set_terminated(self._run)


class _Wandb:
    def __init__(self, folder: str) -> None:
        import wandb

        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(mode="offline", dir=folder, project="lockstep", id=_name().lower(), name=_name(),
                               settings=wandb.Settings(silent=True, x_disable_stats=True))

    def write(self, reports: List[Report]) -> None:
        for step, _, metrics in reports:
            self._run.log(metrics, step=step)

    def close(self) -> None:
        self._run.finish()


_KINDS: Dict[str, Callable[[str], Any]] = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "wandb": _Wandb}


class _Writer(threading.Thread):
    """Writes what comes, all that waits at once; None ends it."""

    def __init__(self, kind: str, place: str) -> None:
        super().__init__(name=f"lockstep-{kind}", daemon=True)
        self._kind, self._place, self._pid = kind, place, os.getpid()
        self._reports: "queue.Queue[Any]" = queue.Queue(_WAITING)
        self._failed = False

    def take(self, step: int, moment: float, metrics: Dict[str, float]) -> None:
        if os.getpid() != self._pid or self._failed:
            return  # a fork has no thread
        try:
            self._reports.put_nowait((step, moment, metrics))
        except queue.Full:
            pass

    def run(self) -> None:
        try:
            sink = _KINDS[self._kind](self._place)
            while self._some(sink):
                pass
            sink.close()
        except Exception as error:  # whatever a library of somebody else raises: training goes on
            self._failed = True
            print(f"lockstep: nothing goes to {self._kind} at {self._place} any more: {type(error).__name__}: {error}",
                  file=sys.stderr, flush=True)

    def _some(self, sink: Any) -> bool:
        reports = [self._reports.get()]
        while reports[-1] is not None:
            try:
                reports.append(self._reports.get_nowait())
            except queue.Empty:
                break
        goes_on = reports[-1] is not None
        if not goes_on:
            reports.pop()
        if reports:
            sink.write(reports)
        return goes_on

    def finish(self) -> None:
        if os.getpid() != self._pid or not self.is_alive():
            return
        try:
            self._reports.put(None, timeout=_END_SECONDS)
        except queue.Full:
            return
        self.join(_END_SECONDS)


def add(kind: str, place: Union[str, "os.PathLike[str]"], all_ranks: bool = False) -> bool:
    """Sends what this rank reports to `kind` ("tensorboard", "mlflow", "wandb") as well.

    place: a folder, which the ranks that write must see; of mlflow also the URI of a tracking server. Returns
    whether this rank writes: rank 0, or any with all_ranks. Raises ValueError for another kind, ImportError where
    its library is not installed. Works without Lockstep, too. Any thread; a fork's child writes nothing.
    """
    if kind not in _KINDS:
        raise ValueError(f"{kind}: one of {', '.join(_KINDS)}")
    if lockstep.context().rank != 0 and not all_ranks:
        return False
    __import__(kind)
    writer = _Writer(kind, os.fspath(place))
    writer.start()
    _client.sinks.append(writer.take)
    # Libraries stop their own threads at the end, the last one registered first: this comes before them.
    register = getattr(threading, "_register_atexit", atexit.register)
    register(writer.finish)
    return True
