"""Tells the agent which rank this process is, and gives the rank an output of its own.

With launch node one process per node (torchrun, mp.spawn, accelerate, paddle.distributed.launch) starts
the node's ranks; they share one report socket and one pipe for what they print. A process that knows
which rank it is says so:

  {"op": "hello", "id": 1, "rank": 3, "local_rank": 1, "world_size": 4}

as soon as it knows: at the start of the interpreter by its environment, after
torch.distributed.init_process_group() and paddle.distributed.init_parallel_env() by what they met.
If it still prints into the pipe of all, it makes one of its own and sends the reading end along; once
the agent has answered, its stdout and stderr become that pipe. Nothing changes for the script.

With the other launch modes only the number of ranks that have met is told: one that trains by itself
is then noticed.
"""

import os
import sys

_PATIENCE = 3.0  # seconds, for an agent that does not answer: one that is gone refuses at once
_NAMES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE", "PADDLE_TRAINERS_NUM"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
)

_told = None  # (pid, identity) of the last hello


def _environment():
    found = {}
    for names in _NAMES:
        for key, name in zip(("rank", "local_rank", "world_size"), names):
            value = os.environ.get(name, "")
            if value.isdigit():
                found[key] = int(value)
        if "rank" in found:
            return found
        found = {}
    return found


def _shared_outputs():
    """Of stdout and stderr those that are still the launcher's pipe."""
    shared = []
    for number in (1, 2):
        try:
            info = os.fstat(number)
        except OSError:
            continue
        if f"{info.st_dev}:{info.st_ino}" == os.environ.get("LOCKSTEP_OUTPUT"):
            shared.append(number)
    return shared


def _hello(identity, outputs):
    import array
    import json
    import socket

    reading = writing = -1
    rights = []
    try:
        if outputs:
            reading, writing = os.pipe()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [reading]))]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(os.environ["LOCKSTEP_SOCKET"])
            message = json.dumps({"op": "hello", "id": 1, **identity}).encode()
            connection.sendmsg([message], rights)
            answer = json.loads(connection.recv(4096))
        if answer.get("ok") is True and outputs:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            for number in outputs:
                os.dup2(writing, number)
        return answer.get("ok") is True
    finally:
        for number in (reading, writing):
            if number >= 0:
                os.close(number)


def tell(identity):
    """Once per process and identity. Never raises."""
    global _told
    try:
        if not identity or _told == (os.getpid(), identity):
            return
        outputs = _shared_outputs() if "LOCKSTEP_OUTPUT" in os.environ else []
        if _hello(identity, outputs):
            _told = (os.getpid(), identity)
    except Exception:
        pass


def _hook_torch(module):
    """Whoever joins a process group knows its rank, also where nothing is in the environment."""
    init = module.init_process_group

    def init_process_group(*args, **kwargs):
        out = init(*args, **kwargs)
        try:
            tell({"rank": module.get_rank(), "world_size": module.get_world_size(),
                  **_local_rank(module.get_rank())})
        except Exception:
            pass
        return out

    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(init_process_group, name, getattr(init, name))
    init_process_group.__wrapped__ = init
    module.init_process_group = init_process_group


def _hook_rendezvous(module):
    """Ranks are clients of the agent's store, as torchrun's are of its agent's. A script that meets at a port of its own,
    as PyTorch's tutorials do (MASTER_PORT = 12355 and mp.spawn), must host that store: nobody listens there, and its
    processes would retry for half an hour."""
    import threading

    create = getattr(module, "_create_c10d_store", None)
    of_agent = getattr(module, "_torchelastic_use_agent_store", None)
    if create is None or of_agent is None:
        return
    own = threading.local()  # while a thread makes such a store

    def _torchelastic_use_agent_store():
        return of_agent() and not getattr(own, "store", False)

    def _create_c10d_store(hostname, port, *args, **kwargs):
        own.store = _is_of_the_script(port)
        try:
            return create(hostname, port, *args, **kwargs)
        finally:
            own.store = False

    for replaced, by in ((create, _create_c10d_store), (of_agent, _torchelastic_use_agent_store)):
        for name in ("__doc__", "__module__", "__name__", "__qualname__"):
            setattr(by, name, getattr(replaced, name))
        by.__wrapped__ = replaced
        setattr(module, by.__name__, by)


def _is_of_the_script(port):
    """Where the variables are ours: a torchrun that the script starts names a run of its own, whose agent serves."""
    ours = os.environ.get("LOCKSTEP_MASTER_PORT", "")
    return (os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and ours != "" and str(port) != ours
            and os.environ.get("TORCHELASTIC_RUN_ID") == os.environ.get("LOCKSTEP_JOB_ID"))


def _local_rank(rank):
    """Of the same rank in the environment, which a script may have set for itself."""
    said = _environment()
    return {"local_rank": said["local_rank"]} if said.get("rank") == rank and "local_rank" in said else {}


def _hook_paddle(module):
    init = module.init_parallel_env

    def init_parallel_env(*args, **kwargs):
        out = init(*args, **kwargs)
        tell(_environment())
        return out

    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(init_parallel_env, name, getattr(init, name))
    init_parallel_env.__wrapped__ = init
    module.init_parallel_env = init_parallel_env


def _accelerate_starts(args, alone):
    """What `accelerate launch` is about to do, said where that is not the job: its configuration file counts where the
    command line says nothing, and knows nothing of Lockstep."""
    try:
        if "LOCKSTEP_RANKS_PER_NODE" not in os.environ:
            return
        job = int(os.environ["LOCKSTEP_WORLD_SIZE"])
        asked = int(getattr(args, "num_processes", 0) or 0)
        one = alone and job > 1 and not getattr(args, "mpirun_hostfile", None)
        if not one and asked in (0, job):
            return
        config = getattr(args, "config_file", None) or os.path.join(
            os.environ.get("HF_HOME", os.path.expanduser("~/.cache/huggingface")), "accelerate", "default_config.yaml")
        source = f" (its configuration: {config})" if os.path.isfile(config) else ""
        starts = "starts one process, not a group of them" if one else f"is for {asked} processes"
        print(f"lockstep: accelerate launch {starts}{source}; the job has {job}: --multi_gpu --num_machines, "
              "--num_processes {world_size} and --machine_rank {node_rank} of its command count before any "
              "configuration", file=sys.stderr, flush=True)
        _hello({"world_size": 1 if one else asked}, [])
    except Exception:
        pass


def _hook_accelerate(module):
    def wrap(name, alone):
        prepare = getattr(module, name, None)
        if prepare is None:
            return

        def prepared(args, *more, **named):
            _accelerate_starts(args, alone)
            return prepare(args, *more, **named)

        for attribute in ("__doc__", "__module__", "__name__", "__qualname__"):
            setattr(prepared, attribute, getattr(prepare, attribute))
        prepared.__wrapped__ = prepare
        setattr(module, name, prepared)

    wrap("prepare_simple_launcher_cmd_env", True)
    wrap("prepare_multi_gpu_env", False)


def install(after_import):
    """Once per process. after_import(name, act): call act(module) once that module is there."""
    if "LOCKSTEP_RANKS_PER_NODE" in os.environ:
        tell(_environment())
    after_import("torch.distributed.distributed_c10d", _hook_torch)
    after_import("torch.distributed.rendezvous", _hook_rendezvous)
    after_import("paddle.distributed.parallel", _hook_paddle)
    after_import("accelerate.utils.launch", _hook_accelerate)
