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

All functions may be called from any thread (the first checkpoint_requested() from the main one). After ``os.fork()`` the child opens its own connection.
"""

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

__all__ = [
    "Client",
    "Conflict",
    "LockstepError",
    "NotFound",
    "TimedOut",
    "TooLarge",
    "add",
    "barrier",
    "cas",
    "checkpoint",
    "checkpoint_requested",
    "delete",
    "dropped_reports",
    "get",
    "multi_get",
    "multi_set",
    "phase",
    "report",
    "set",
    "wait",
]
