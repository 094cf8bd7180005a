"""JAX: to meet under any framework setting, and to report arrays.

    lockstep.jax.initialize()          # instead of jax.distributed.initialize(); nothing without Lockstep
    lockstep.jax.report(step, loss=loss)
"""

import os
from typing import Any, Dict

import jax

import lockstep

__all__ = ["initialize", "report"]


def initialize(**options: Any) -> None:
    """jax.distributed.initialize() with this job's coordinator and numbers, also with `framework: command`.

    Without Lockstep, or in a job of one process: nothing. options go to JAX.
    """
    place = lockstep.context()
    if not place.is_lockstep or place.world_size == 1:
        return
    address = os.environ["MASTER_ADDR"]
    host = f"[{address}]" if ":" in address else address
    options.setdefault("coordinator_address", f"{host}:{os.environ['MASTER_PORT']}")
    jax.distributed.initialize(num_processes=place.world_size, process_id=place.rank, **options)


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
