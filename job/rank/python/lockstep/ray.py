"""A Ray cluster inside a job's allocation, and the script that drives it.

    {"framework": "ray", "command": ["python", "train.py"], "resources": {"nodes": 4}, …}
    lockstep run -N 4 -- python train.py                                  # train.py imports ray
    lockstep run -N 4 -- python -m lockstep.ray train.py --epochs 3      # framework command, one rank a node

Rank 0 starts the head on the port that its agent has held for it, the others join; no port is guessed. Where the head
is and its token are in a file of the user's (0600) in the attempt's folder, which every node sees, and not in the key
store, which lockstepd keeps: who joins another head runs what that one says. Once every node is there the script runs
beside the head with RAY_ADDRESS set, so that ray.init() finds the cluster. Its exit status is rank 0's; then every
node of Ray is stopped. After a SIGTERM it has the job's grace period to save in, but Ray's own processes on its node
have had the signal, too. Who has not joined after five minutes is named. Ray's own port asks for a token that only
the job's ranks are told, unless the job sets RAY_AUTH_MODE itself. Ray gives a node half a minute to come up, which a
slow file system or a busy machine may take: until every node is there, one that has not is started again, three times
in all. A node of Ray that ends later fails its rank, so `recovery` starts all of it again.

What each Ray node announces: `--num-gpus` by CUDA_VISIBLE_DEVICES, `--num-cpus` by this process's CPUs, of which
Slurm may have given fewer (SLURM_CPUS_ON_NODE). Other words for `ray start` go before the script, or before `--` and
any command: python -m lockstep.ray --resources='{"big": 1}' train.py
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

import lockstep
from lockstep._client import LockstepError, TimedOut
from lockstep._context import master_port_is_served

# sys.exit() in this file, not SystemExit: the hooks tell the agent of the words, which are then the job's cause.
JOIN_SECONDS = 300.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_STARTS = 3  # of a node, until every node is there


def _words(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """(for ray start, what runs beside the head)"""
    for number, word in enumerate(arguments):
        if word == "--" and arguments[number + 1:]:
            return arguments[:number], arguments[number + 1:]
        if not word.startswith("-"):
            return arguments[:number], [sys.executable, *arguments[number:]]
    sys.exit("usage: python -m lockstep.ray [--OPTION=VALUE of ray start …] SCRIPT [ARGUMENT …] | -- COMMAND …")


def _cpus() -> int:
    """What of this machine is the job's: Slurm counts CPUs also where it confines nobody to them."""
    mine = len(os.sched_getaffinity(0))
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return min(mine, int(given)) if given.isdigit() and int(given) > 0 else mine


def _name_of(rank: int) -> str:
    """'rank 3 (n4)'"""
    hosts = os.environ.get("LOCKSTEP_HOSTS", "").split(",")
    return f"rank {rank} ({hosts[rank]})" if rank < len(hosts) and hosts[rank] else f"rank {rank}"


def _meeting_file(place: lockstep.RankContext) -> str:
    """In the attempt's folder, as the agent names it to whoever writes there."""
    note = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if not note:
        sys.exit("lockstep.ray: TORCHELASTIC_ERROR_FILE does not say where the attempt's folder is")
    return os.path.join(os.path.dirname(note), f"ray-head-{place.generation}.json")


def _tell(path: str, address: str, token: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump({"head": address, "token": token}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _find(path: str) -> Tuple[str, str]:
    """(address of the head, token), of nobody but this user. It is there already, but for what a file server's clients
    remember."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
            break
        except FileNotFoundError:
            if time.monotonic() > deadline:
                sys.exit(f"lockstep.ray: rank 0's {path} is not seen on this node")
            time.sleep(_LOOK_SECONDS)
    with file:
        owner = os.fstat(file.fileno()).st_uid
        if os.geteuid() not in (0, owner):
            sys.exit(f"lockstep.ray: {path} is of uid {owner}, another user")
        told = json.load(file)
    return told["head"], told["token"]


def _use_token(token: str) -> None:
    """Whoever reaches a cluster without one may run code in it; Ray before 2.52 has none and takes no notice."""
    if token:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = token


class _Node:
    """`ray start`, which stays in front and takes its node with it when it is ended."""

    def __init__(self, *words: Any) -> None:
        self._words = words
        self._starts = 1
        self._process = _start(*words)

    def check(self, may_start_again: bool) -> None:
        """Ends this process if the node has ended."""
        if self._process.poll() is None:
            return
        what = f"lockstep.ray: ray start ended with {self._process.returncode} on node {lockstep.context().node_rank}"
        if not may_start_again or self._starts >= _STARTS:
            sys.exit(what)
        self._starts += 1
        print(f"{what}: started again, {self._starts} of {_STARTS}", file=sys.stderr, flush=True)
        self._process = _start(*self._words)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _start(place: lockstep.RankContext, head: Optional[str], own: List[str], temporary: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
               f"--node-ip-address={place.address or '127.0.0.1'}", f"--num-cpus={_cpus()}",
               # Several jobs, or several nodes of one, may be on this machine: no port but the head's is fixed.
               "--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0",
               "--metrics-export-port=0"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        command.append(f"--num-gpus={len(visible.split(','))}")
    if head is None:
        command += ["--head", f"--port={os.environ['MASTER_PORT']}", "--include-dashboard=false",
                    f"--temp-dir={temporary}"]
    else:
        command.append(f"--address={head}")
    environment = dict(os.environ, RAY_USAGE_STATS_ENABLED="0")
    # All nodes of a job end together, so none waits for its work to be taken over: longer than the grace period.
    environment.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(command + own, env=environment, stdin=subprocess.DEVNULL, start_new_session=False)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        return True
    except OSError:
        return False


def _is_set(key: str, seconds: float) -> bool:
    try:
        lockstep.wait(key, timeout=seconds)
        return True
    except TimedOut:
        return False


def _has_joined(rank: int, seconds: float) -> bool:
    return _is_set(f"ray/joins/{rank}", seconds)


def _wait_for_nodes(node: _Node, address: str, count: int) -> None:
    """Until Ray counts every node; names the ranks that have not called in."""
    deadline = time.monotonic() + JOIN_SECONDS
    while not _listens(address):
        node.check(may_start_again=True)
        if time.monotonic() > deadline:
            sys.exit(f"lockstep.ray: the head does not listen at {address}")
        time.sleep(_LOOK_SECONDS)
    missing = list(range(1, count))
    while missing:
        node.check(may_start_again=False)  # the others know of it
        if _has_joined(missing[0], 1.0):
            missing.pop(0)
        elif time.monotonic() > deadline:
            absent = [rank for rank in missing if not _has_joined(rank, 0.1)]
            names = ", ".join(_name_of(rank) for rank in absent[:8]) + (" and others" if len(absent) > 8 else "")
            sys.exit(f"lockstep.ray: {len(absent)} of {count} nodes have not joined the head at {address} "
                     f"within {JOIN_SECONDS:.0f} s: {names}")
    ray = _connect(node, address, deadline)
    try:
        while sum(1 for one in ray.nodes() if one["Alive"]) < count:
            node.check(may_start_again=False)
            if time.monotonic() > deadline:
                alive = sum(1 for one in ray.nodes() if one["Alive"])
                sys.exit(f"lockstep.ray: {alive} of {count} nodes are in the cluster at {address}")
            time.sleep(_LOOK_SECONDS)
    finally:
        ray.shutdown()


def _connect(node: _Node, address: str, deadline: float) -> Any:
    """The module ray, connected: the head's port is open before it takes a driver, on a busy machine longer than
    ray.init() waits."""
    import ray

    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="warning")
            return ray
        except ConnectionError:
            node.check(may_start_again=False)
            if time.monotonic() > deadline:
                raise
            ray.shutdown()
            time.sleep(_LOOK_SECONDS)


def _needs_the_port() -> None:
    if master_port_is_served():
        sys.exit("lockstep.ray: at the port that the head needs the ranks of torch or Horovod meet, as the job's "
                 "framework says: it must be ray or command (lockstep run takes it by itself)")


def _drive(script: List[str], environment: Dict[str, str]) -> int:
    """The script's exit status. It has the grace period after a SIGTERM, which the agent sends to all of a rank's
    processes: it is waited for, and not told twice."""
    told: List[bool] = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    process = subprocess.Popen(script, env=environment)
    try:
        if told:  # it may have come before there was this process
            process.terminate()
        return process.wait()
    finally:
        if process.poll() is None:
            process.kill()
        signal.signal(signal.SIGTERM, before)


def _head(place: lockstep.RankContext, own: List[str], script: List[str]) -> int:
    temporary = f"/tmp/lockstep-ray-{os.getuid()}-{place.job_id[-8:].lower()}-{place.generation}"
    host = place.address or "127.0.0.1"
    address = f"[{host}]:{os.environ['MASTER_PORT']}" if ":" in host else f"{host}:{os.environ['MASTER_PORT']}"
    token = "" if os.environ.get("RAY_AUTH_MODE") else secrets.token_hex(32)
    _use_token(token)
    meeting = _meeting_file(place) if place.world_size > 1 else ""
    node = _Node(place, None, own, temporary)
    try:
        if meeting:
            _tell(meeting, address, token)
            lockstep.set("ray/head", "1")
        _wait_for_nodes(node, address, place.world_size)
        if place.world_size > 1:
            lockstep.set("ray/all", "1")
        return _drive(script, dict(os.environ, RAY_ADDRESS=address))
    finally:
        if place.world_size > 1:
            try:
                lockstep.set("ray/over", "1")
            except LockstepError:
                pass
        node.stop()
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(meeting)


def _worker(place: lockstep.RankContext, own: List[str]) -> int:
    lockstep.wait("ray/head", timeout=JOIN_SECONDS)
    head, token = _find(_meeting_file(place))
    _use_token(token)
    node = _Node(place, head, own, "")
    complete = False
    try:
        lockstep.set(f"ray/joins/{place.rank}", "1")
        while True:
            complete = complete or _is_set("ray/all", 0.1)
            node.check(may_start_again=not complete)
            if _is_set("ray/over", 1.0):
                return 0
    finally:
        node.stop()


def main(arguments: List[str]) -> int:
    own, script = _words(arguments)
    place = lockstep.context()
    if not place.is_lockstep:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a command would too
            signal.signal(number, signal.SIG_DFL)
        os.execvp(script[0], script)  # ray.init() makes a cluster of its own
    if place.local_world_size > 1:
        sys.exit("lockstep.ray: one rank a node (ranks_per_node 1); Ray itself uses all of it")
    _needs_the_port()
    # So that what is started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return _head(place, own, script) if place.rank == 0 else _worker(place, own)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
