"""A Ray cluster inside a job's allocation, and the script that drives it.

    lockstep run -N 4 -n 1 -- python -m lockstep.ray train.py --epochs 3      # one rank a node

Rank 0 starts the head on the port that its agent has held for it, the others join; nothing is written to a shared
folder, and no port is guessed. Once every node is there the script runs beside the head with RAY_ADDRESS set, so that
ray.init() finds the cluster. Its exit status is rank 0's; then every node of Ray is stopped. Who has not joined after
five minutes is named. A node of Ray that ends early fails its rank, so `recovery` starts all of it again.

What each Ray node announces: `--num-gpus` by CUDA_VISIBLE_DEVICES, `--num-cpus` by this process's CPUs; other words
for `ray start` go before the script: python -m lockstep.ray --resources='{"big": 1}' train.py
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import List, Optional, Tuple

import lockstep
from lockstep._client import LockstepError, TimedOut
from lockstep._context import master_port_is_served

JOIN_SECONDS = 300.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.2


def _words(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """(for ray start, the script and its arguments)"""
    for number, word in enumerate(arguments):
        if not word.startswith("-"):
            return arguments[:number], arguments[number:]
    raise SystemExit("usage: python -m lockstep.ray [--OPTION=VALUE of ray start …] SCRIPT [ARGUMENT …]")


def _start(place: lockstep.RankContext, head: Optional[str], own: List[str], temporary: str) -> subprocess.Popen:
    """`ray start`, which stays in front and takes its node with it when it is ended."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
               f"--node-ip-address={place.address or '127.0.0.1'}", f"--num-cpus={len(os.sched_getaffinity(0))}",
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
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(command + own, env=environment, stdin=subprocess.DEVNULL, start_new_session=False)


def _stop(node: subprocess.Popen) -> None:
    if node.poll() is None:
        node.terminate()
        try:
            node.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def _alive(node: subprocess.Popen) -> None:
    if node.poll() is not None:
        raise SystemExit(f"lockstep.ray: ray start ended with {node.returncode} on node {lockstep.context().node_rank}")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        return True
    except OSError:
        return False


def _wait_for_nodes(node: subprocess.Popen, address: str, count: int) -> None:
    """Until Ray counts every node; names the ranks that have not called in."""
    deadline = time.monotonic() + JOIN_SECONDS
    while not _listens(address):
        _alive(node)
        if time.monotonic() > deadline:
            raise SystemExit(f"lockstep.ray: the head does not listen at {address}")
        time.sleep(_LOOK_SECONDS)
    for rank in range(1, count):
        while True:
            _alive(node)
            try:
                lockstep.wait(f"ray/joins/{rank}", timeout=1.0)
                break
            except TimedOut:
                if time.monotonic() > deadline:
                    raise SystemExit(f"lockstep.ray: rank {rank} of {count} has not joined the head at {address} "
                                     f"within {JOIN_SECONDS:.0f} s") from None
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="warning")
    try:
        while sum(1 for one in ray.nodes() if one["Alive"]) < count:
            _alive(node)
            if time.monotonic() > deadline:
                alive = sum(1 for one in ray.nodes() if one["Alive"])
                raise SystemExit(f"lockstep.ray: {alive} of {count} nodes are in the cluster at {address}")
            time.sleep(_LOOK_SECONDS)
    finally:
        ray.shutdown()


def _needs_the_port() -> None:
    if master_port_is_served():
        raise SystemExit("lockstep.ray: at the port that the head needs the ranks of torch or Horovod meet, as the job's "
                         "framework says: it must be command (lockstep run takes it by itself)")


def _head(place: lockstep.RankContext, own: List[str], script: List[str]) -> int:
    temporary = f"/tmp/lockstep-ray-{os.getuid()}-{place.job_id[-8:].lower()}-{place.generation}"
    host = place.address or "127.0.0.1"
    address = f"[{host}]:{os.environ['MASTER_PORT']}" if ":" in host else f"{host}:{os.environ['MASTER_PORT']}"
    node = _start(place, None, own, temporary)
    try:
        if place.is_lockstep and place.world_size > 1:
            lockstep.set("ray/head", address)
        _wait_for_nodes(node, address, place.world_size)
        return subprocess.run([sys.executable, *script], env=dict(os.environ, RAY_ADDRESS=address), check=False).returncode
    finally:
        if place.world_size > 1:
            try:
                lockstep.set("ray/over", "1")
            except LockstepError:
                pass
        _stop(node)
        shutil.rmtree(temporary, ignore_errors=True)


def _worker(place: lockstep.RankContext, own: List[str]) -> int:
    lockstep.wait("ray/head", timeout=JOIN_SECONDS)
    node = _start(place, lockstep.get("ray/head").decode(), own, "")
    try:
        lockstep.set(f"ray/joins/{place.rank}", "1")
        while True:
            _alive(node)
            try:
                lockstep.wait("ray/over", timeout=1.0)
                return 0
            except TimedOut:
                continue
    finally:
        _stop(node)


def main(arguments: List[str]) -> int:
    own, script = _words(arguments)
    place = lockstep.context()
    if not place.is_lockstep:
        return subprocess.run([sys.executable, *script], check=False).returncode  # ray.init() makes a cluster of its own
    if place.local_world_size > 1:
        raise SystemExit("lockstep.ray: one rank a node (ranks_per_node 1); Ray itself uses all of it")
    _needs_the_port()
    # So that what is started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return _head(place, own, script) if place.rank == 0 else _worker(place, own)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
