"""A Python function as a job, as submitit does it.

    job = lockstep.submit(train, 0.1, ranks_per_node=2)      # train(0.1) on two ranks
    job.result()                                             # what rank 0 returned; raises what the function raised
    job.results()                                            # of every rank

The function and its arguments are pickled into a folder that the nodes must see (default: `.lockstep/jobs` where the
caller is), with cloudpickle if that is installed: then also functions of a notebook and lambdas. Without it the
function must be importable by its module's name. The job runs in the caller's directory, with its Python.

The folder is its owner's alone (mode 0700): a pickle runs code of whoever wrote it. The ranks must therefore run as the
caller. Where one account's lockstepd runs the jobs of several people they do not, and cannot read it: submit a
specification there.
"""

import os
import pathlib
import pickle
import sys
import traceback
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from lockstep.daemon import Daemon, Job, JobFailed

_RESOURCES = ("nodes", "ranks_per_node", "gpus_per_node", "gpu_type", "cpus_per_rank", "memory_mb_per_node",
              "time_limit", "spares", "min_nodes", "binding", "ranks_per_gpu")
_SLURM = ("partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude", "exclusive")


class FunctionFailed(JobFailed):
    """The function raised on a rank; ``__cause__`` is its exception if it could be pickled, ``traceback`` its text."""

    def __init__(self, job: dict, text: str = ""):
        super().__init__(job)
        self.traceback = text

    def __str__(self) -> str:
        return super().__str__() + ("\n" + self.traceback if self.traceback else "")


class FunctionJob(Job):
    """The job of a function. `folder` holds it and what each rank returned."""

    def __init__(self, daemon: Daemon, id: str, folder: pathlib.Path, world_size: int):  # noqa: A002
        super().__init__(daemon, id)
        self.folder = folder
        self.world_size = world_size

    def result(self, timeout: Optional[float] = None, rank: int = 0) -> Any:
        """What the function returned on `rank`, once the job has ended; raises FunctionFailed, JobFailed (it was
        cancelled, a node was lost …) or TimeoutError."""
        return self._outcome(self.wait(timeout, check=False), rank)

    def results(self, timeout: Optional[float] = None) -> List[Any]:
        """What it returned on every rank, in their order."""
        document = self.wait(timeout, check=False)
        world_size = _newest(document)[2] or self.world_size  # an elastic job may have ended on fewer nodes
        return [self._outcome(document, rank) for rank in range(world_size)]

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """What result() would raise, or None."""
        try:
            self.result(timeout)
            return None
        except JobFailed as error:
            return error

    def _outcome(self, document: dict, rank: int) -> Any:
        if document["state"] != "succeeded":
            failed = document.get("cause", {}).get("rank", rank)
            kept = self._read(document, failed)
            error = FunctionFailed(document, kept["traceback"]) if kept and not kept["ok"] else JobFailed(document)
            raise error from (kept or {}).get("exception")
        kept = self._read(document, rank)
        if kept is None:
            raise JobFailed({**document, "cause": {"message": f"rank {rank} left nothing in {self.folder}"}})
        return kept["value"]

    def _read(self, document: dict, rank: int) -> Optional[dict]:
        """What the rank left, unless it was one of an earlier start of the ranks: that is not how the job has ended."""
        path = self.folder / f"result-{rank}.pickle"
        if not path.exists():
            return None
        with open(path, "rb") as file:
            kept = pickle.load(file)
        if "generation" in kept and (kept["attempt"], kept["generation"]) != _newest(document)[:2]:
            return None
        for name in ("value", "exception"):
            if isinstance(kept.get(name), bytes):
                try:
                    kept[name] = pickle.loads(kept[name])
                except Exception:  # of a class that only the rank could import
                    kept[name] = None
        return kept


def _newest(document: dict) -> Tuple[int, int, int]:
    """(attempt, generation, ranks) of the last start of a job's ranks; 0 for what there never was."""
    attempt: dict = (document.get("attempts") or [{}])[-1]
    generation: dict = (attempt.get("generations") or [{}])[-1]
    return attempt.get("number", 0), generation.get("number", 0), generation.get("world_size", 0)


def _pickler() -> Any:
    try:
        import cloudpickle

        return cloudpickle
    except ImportError:
        return pickle


def submit(what: Union[Callable[..., Any], Mapping[str, Any]], *arguments: Any, daemon: Optional[Daemon] = None,
           folder: Optional[os.PathLike] = None, kwargs: Optional[Mapping[str, Any]] = None,
           name: Optional[str] = None, framework: Optional[str] = None, environment: Optional[Mapping[str, str]] = None,
           slurm: Optional[Mapping[str, Any]] = None, **options: Any) -> Job:
    """Submits a function with its arguments, or a specification, and returns its Job (of a function: FunctionJob).

    kwargs: the function's keyword arguments. options: nodes, ranks_per_node, gpus_per_node, cpus_per_rank,
    memory_mb_per_node, time_limit …; partition, account, qos …; any other field of a specification (recovery,
    checkpoint, labels …). daemon: default Daemon(). environment: variables of the ranks.
    """
    if not callable(what) and not isinstance(what, Mapping):
        raise TypeError(f"submit() takes a function or a specification (a mapping of its fields), not {type(what).__name__}")
    daemon = daemon or Daemon()
    if not callable(what):
        if arguments or kwargs:
            raise TypeError("a specification takes no arguments")
        return daemon.submit(what)
    resources = {key: options.pop(key) for key in _RESOURCES if key in options}
    site: Dict[str, Any] = {**(slurm or {}), **{key: options.pop(key) for key in _SLURM if key in options}}
    base = pathlib.Path(folder or ".lockstep/jobs").expanduser().absolute()
    place = base / uuid.uuid4().hex[:12]
    place.mkdir(parents=True, mode=0o700)
    module = getattr(what, "__module__", None)
    pickler = _pickler()
    if pickler is pickle and module == "__main__":
        raise TypeError("a function of the script itself needs cloudpickle, or a module of its own")
    with open(place / "call.pickle", "wb") as file:
        pickler.dump((what, arguments, dict(kwargs or {})), file)
    # The ranks find what the caller finds; what belongs to the Python itself they find anyway.
    paths = [os.path.abspath(entry) for entry in sys.path if entry == "" or os.path.isdir(entry)]
    paths = [entry for entry in paths if not entry.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep))]
    given = dict(environment or {})
    given["PYTHONPATH"] = os.pathsep.join([*filter(None, [given.get("PYTHONPATH")]), *dict.fromkeys(paths)])
    title = name or "".join(c if c.isalnum() or c in "._-" else "-" for c in getattr(what, "__name__", "function"))
    specification: Dict[str, Any] = {
        "name": title.strip("-_.")[:64] or "function", "framework": framework or "pytorch",
        "command": [sys.executable, "-m", "lockstep.functions", str(place)], "working_directory": os.getcwd(),
        "environment": given, "resources": resources, **options}
    if site:
        specification["slurm"] = site
    world = int(resources.get("nodes", 1)) * int(resources.get("ranks_per_node", 1))
    return FunctionJob(daemon, daemon.submit(specification).id, place, world)


def _dumped(value: Any) -> Optional[bytes]:
    try:
        return _pickler().dumps(value)
    except Exception:
        return None


def _run(folder: pathlib.Path) -> int:
    """On a rank: calls the function and leaves what it returned, whole or not at all."""
    from lockstep._context import context

    place = context()
    rank = max(place.rank, 0)
    with open(folder / "call.pickle", "rb") as file:
        function, arguments, keywords = pickle.load(file)
    kept: Dict[str, Any] = {"ok": True}
    failure: Optional[BaseException] = None
    try:
        value = function(*arguments, **keywords)
        kept["value"] = _pickler().dumps(value)
    except Exception as error:
        failure = error
        kept = {"ok": False, "traceback": traceback.format_exc(), "exception": _dumped(error)}
    kept.update(attempt=place.attempt, generation=place.generation)
    new = folder / f"result-{rank}.pickle.new"
    with open(new, "wb") as file:
        pickle.dump(kept, file)
    os.replace(new, folder / f"result-{rank}.pickle")
    if failure is not None:
        raise failure
    return 0


if __name__ == "__main__":
    sys.exit(_run(pathlib.Path(sys.argv[1])))
