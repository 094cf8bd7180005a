"""JAX: to meet under any framework setting, and to report arrays.

    lockstep.jax.initialize()          # instead of jax.distributed.initialize(); nothing without Lockstep
    lockstep.jax.report(step, loss=loss)
"""

import os
import socket
from typing import Any, Dict

import jax

import lockstep
from lockstep._context import master_port_is_served

__all__ = ["initialize", "report"]


_calls = 0  # of initialize(): after jax.distributed.shutdown() there may be another


def initialize(**options: Any) -> None:
    """jax.distributed.initialize() with this job's coordinator and numbers, whatever the job's `framework`.

    Without Lockstep, or in a job of one process: nothing. options go to JAX. TimedOut if rank 0 does not come within
    initialization_timeout (default 300) seconds.
    """
    place = lockstep.context()
    if not place.is_lockstep or place.world_size == 1:
        return
    if "coordinator_address" not in options:
        options["coordinator_address"] = _coordinator(place, float(options.get("initialization_timeout", 300)))
    jax.distributed.initialize(num_processes=place.world_size, process_id=place.rank, **options)


def _coordinator(place: lockstep.RankContext, seconds: float) -> str:
    global _calls
    _calls += 1
    address = os.environ["MASTER_ADDR"]
    host = f"[{address}]" if ":" in address else address
    if not master_port_is_served():
        return f"{host}:{os.environ['MASTER_PORT']}"  # which was held for it
    # Rank 0 takes another port, for its coordinator to listen at in the next moment, and tells the others.
    key = f"lockstep/jax/{_calls}"
    if place.rank == 0:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
            free.bind(("", 0))
            coordinator = f"{host}:{free.getsockname()[1]}"
            lockstep.set(key, coordinator)
        return coordinator
    lockstep.wait(key, timeout=seconds)
    return lockstep.get(key).decode()


def report(step: int, **metrics: Any) -> bool:
    """lockstep.report() of scalars that are JAX arrays; waits for them, as float() does.

    An array that is whole on every process, or whose part here is one number, is that number.
    """
    found: Dict[str, Any] = {}
    for name, value in metrics.items():
        shards = getattr(value, "addressable_shards", None)
        if shards and not getattr(value, "is_fully_addressable", True):
            value = shards[0].data
        found[name] = float(value) if hasattr(value, "dtype") else value
    return lockstep.report(step, **found)
