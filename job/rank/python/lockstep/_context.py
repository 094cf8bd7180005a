"""Which rank this process is, and of what."""

import os
from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class RankContext:
    """Where this process stands in its job. Without Lockstep: rank 0 of 1, and the names are empty.

    ``rank`` counts over the job, ``local_rank`` on the node; both are -1 in a process that launches the ranks
    itself (launch node) and is none; those that it starts are known by RANK, PADDLE_TRAINER_ID or
    OMPI_COMM_WORLD_RANK and what these launchers set beside it. ``generation`` counts the starts of the ranks in
    one allocation, ``attempt`` the allocations, both from 1: with either above that the job is going on after
    something was lost.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    nodes: int = 1
    job_id: str = ""
    job_name: str = ""
    attempt: int = 1
    generation: int = 1
    role: str = "worker"
    role_rank: int = 0
    role_size: int = 1
    address: str = ""
    hosts: Tuple[str, ...] = ()  # by node rank; empty in a world of more than 1,024 nodes
    checkpoint_directory: Optional[str] = None  # of the whole job, over attempts; made before the ranks start

    @property
    def is_lockstep(self) -> bool:
        """Whether Lockstep started this process."""
        return bool(self.job_id)

    @property
    def restarted(self) -> bool:
        """Whether ranks of this job ran before: look for a checkpoint."""
        return self.generation > 1 or self.attempt > 1


def _number(names: Tuple[str, ...], default: int) -> int:
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return default


def context() -> RankContext:
    """This process's place, read from the environment each time."""
    job = os.environ.get("LOCKSTEP_JOB_ID", "")
    if not job:
        return RankContext()
    rank = _number(("LOCKSTEP_RANK", "RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK"), -1)
    hosts = os.environ.get("LOCKSTEP_HOSTS", "")
    return RankContext(
        rank=rank,
        world_size=_number(("LOCKSTEP_WORLD_SIZE", "WORLD_SIZE", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE"), 1),
        local_rank=_number(("LOCKSTEP_LOCAL_RANK", "LOCAL_RANK", "PADDLE_RANK_IN_NODE",
                            "OMPI_COMM_WORLD_LOCAL_RANK"), -1),
        local_world_size=_number(("LOCKSTEP_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE"), 1),
        node_rank=_number(("LOCKSTEP_NODE_RANK",), 0),
        nodes=_number(("LOCKSTEP_NODES",), 1),
        job_id=job,
        job_name=os.environ.get("LOCKSTEP_JOB_NAME", ""),
        attempt=_number(("LOCKSTEP_ATTEMPT",), 1),
        generation=_number(("LOCKSTEP_GENERATION",), 1),
        role=os.environ.get("LOCKSTEP_ROLE", "worker"),
        role_rank=_number(("LOCKSTEP_ROLE_RANK",), rank),
        role_size=_number(("LOCKSTEP_ROLE_SIZE",), 1),
        address=os.environ.get("LOCKSTEP_ADDRESS", ""),
        hosts=tuple(hosts.split(",")) if hosts else (),
        checkpoint_directory=os.environ.get("LOCKSTEP_CHECKPOINT_DIR") or None,
    )


def master_port_is_served() -> bool:
    """Whether something listens at MASTER_PORT where rank 0 is, by what this process was told: torch's store or
    Horovod's rendezvous, of the agent or of the user's own launcher. Nothing else can listen there then."""
    port = os.environ.get("MASTER_PORT", "")
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" or (
        port != "" and os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT") == port)
