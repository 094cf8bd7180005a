"""Talk to Lockstep from inside a training script.

Standard library only. The agent of this node listens on the Unix SEQPACKET socket named by
``LOCKSTEP_SOCKET``; one JSON object is one message.

    import lockstep
    for step, batch in enumerate(batches, start=1):
        loss = train_step(batch)
        lockstep.report(step=step, loss=float(loss))

Without ``LOCKSTEP_SOCKET`` (the script was started by hand) ``report``, ``phase`` and
``checkpoint`` do nothing and return False, so the same script runs anywhere; the key functions
raise ``LockstepError``, because nothing can stand in for the other ranks.

``checkpoint_requested()`` says whether a checkpoint was asked for (``lockstep checkpoint ID``, or the
time limit is near), so that the loop can write one and go on:

    if step % 1000 == 0 or lockstep.checkpoint_requested():
        save(model)

Ranks are not asked at the same step: where all must save together (FSDP, DeepSpeed), each calls it and rank 0
broadcasts its answer, or they wait for each other for ever.

``context()`` is which rank of what this process is. ``auto()`` measures a script that reports nothing. For frameworks:
``lockstep.lightning``, ``.keras``, ``.transformers``, ``.accelerate``, ``.paddle``, ``.jax``. ``lockstep.sinks``: to
TensorBoard, MLflow and W&B as well.

From outside a job, ``submit()``, ``Daemon`` and ``AsyncDaemon`` submit, wait for and read jobs.

All functions may be called from any thread (the first checkpoint_requested() from the main one). Key functions, wait()
and barrier() of one process take turns: while one thread waits for a key or at a barrier, the others' wait for it.
Reports never do. A Client of its own (``Client(os.environ["LOCKSTEP_SOCKET"])``) waits for nobody. After ``os.fork()``
the child opens its own connection.
"""

import importlib as _importlib

from lockstep._client import (
    Client,
    Conflict,
    LockstepError,
    NotFound,
    TimedOut,
    TooLarge,
    add,
    barrier,
    cas,
    checkpoint,
    delete,
    dropped_reports,
    get,
    multi_get,
    multi_set,
    phase,
    report,
    set,
    wait,
)
from lockstep._checkpoint import checkpoint_requested

from lockstep._context import RankContext, context

__version__ = "0.1.0"

__all__ = [
    "AsyncDaemon",
    "Client",
    "Conflict",
    "Daemon",
    "DaemonError",
    "FunctionFailed",
    "FunctionJob",
    "Job",
    "JobFailed",
    "LockstepError",
    "NotFound",
    "RankContext",
    "Series",
    "TimedOut",
    "TooLarge",
    "add",
    "auto",
    "barrier",
    "cas",
    "checkpoint",
    "checkpoint_requested",
    "context",
    "delete",
    "dropped_reports",
    "get",
    "multi_get",
    "multi_set",
    "phase",
    "report",
    "set",
    "submit",
    "wait",
]

# Loaded when they are asked for: a rank that only reports pays for nothing else.
_LATER = {
    "auto": "lockstep._auto",
    **{name: "lockstep.daemon" for name in ("AsyncDaemon", "Daemon", "DaemonError", "Job", "JobFailed", "Series")},
    **{name: "lockstep.functions" for name in ("FunctionFailed", "FunctionJob", "submit")},
}
_MODULES = ("accelerate", "daemon", "functions", "jax", "keras", "lightning", "paddle", "ray", "sinks", "transformers")


def __getattr__(name):
    if name in _LATER:
        return getattr(_importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        return _importlib.import_module("lockstep." + name)
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
