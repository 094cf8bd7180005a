"""How much training is left of a job whose ranks are killed, frozen and cut off all the time? See tests/fault/run."""

import collections
import ctypes
import errno
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
import typing

import harness

SCRIPT = pathlib.Path(__file__).resolve().parent / "chaos_script.py"
# Of 30 minutes; a part of them has as many less.
FAULTS = {"kill": 27, "freeze": 20, "link of ranks": 8, "link of an agent": 7}
PERIOD = 0.1  # seconds a step: 32 ranks need half of it on two cores
HANG_SECONDS = 3
SETTLED = 10  # steps of a generation before the next fault: one that is asked for meanwhile waits
FAULT_FREE_SECONDS = 20
SOCKETS = {"lockstepd.sock", b"lockstepd.sock"}
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
libc = ctypes.CDLL(None, use_errno=True)


class Size(typing.NamedTuple):
    nodes: int
    per_node: int

    @property
    def ranks(self):
        return self.nodes * self.per_node


LARGE = Size(4, 8)


def struck_by(dice, kind, size):
    """The rank; rank 0 is the hub of all links."""
    return dice.randrange(1 if kind == "link of ranks" else 0, size.ranks)


def plan(seed, minutes, size):
    """[(second, kind, rank)] in order."""
    dice = random.Random(seed)
    out = []
    for kind, count in FAULTS.items():
        for _ in range(max(1, round(count * minutes / 30))):
            rank = struck_by(dice, kind, size)
            out.append((dice.uniform(10, max(20, minutes * 60 - 10)), kind, rank))
    return sorted(out)


def one_of_each(seed, size):
    """The same, each as soon as the ranks have got over the one before."""
    dice = random.Random(seed)
    return [(0, kind, struck_by(dice, kind, size)) for kind in FAULTS]


def why_not():
    """Why no connection of another process can be cut here; "" if one can."""
    ours, its = socket.socketpair()
    with ours, its, subprocess.Popen(["cat"], stdin=its) as other:
        its.close()
        try:
            found = connection(other.pid, lambda peer: True)
            if found is None:
                return "no socket is found in /proc"
            found.close()
            return ""
        except OSError as error:
            return str(error)
        finally:
            ours.close()


def connection(pid, is_peer):
    """A copy of the process's first socket whose peer's address is_peer() takes; None: it has none."""
    process = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    if process < 0:
        raise OSError(ctypes.get_errno(), f"pidfd_open of process {pid}")
    try:
        for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                if not os.readlink(path).startswith("socket:["):
                    continue
            except OSError:
                continue  # closed meanwhile
            copy = libc.syscall(SYS_PIDFD_GETFD, process, int(path.name), 0)
            if copy < 0:
                if ctypes.get_errno() == errno.EBADF:
                    continue  # closed meanwhile
                raise OSError(ctypes.get_errno(), f"pidfd_getfd of process {pid}")
            found = socket.socket(fileno=copy)
            try:
                if is_peer(found.getpeername()):
                    return found
            except OSError:
                pass  # it is not connected
            found.close()
        return None
    finally:
        os.close(process)


def cut(pid, is_peer):
    """Resets a connection of the process, as a switch that forgets it would: both ends get ECONNRESET. Over a Unix socket,
    both ends see its end. False: it has none."""
    found = connection(pid, is_peer)
    if found is None:
        return False
    with found:
        if found.family == socket.AF_UNIX:
            found.shutdown(socket.SHUT_RDWR)
            return True
        nowhere = struct.pack("H14x", socket.AF_UNSPEC)
        return libc.connect(found.fileno(), nowhere, len(nowhere)) == 0  # connect(2): dissolves it, by RST


class Job:
    def __init__(self, daemon, folder, steps, period, warm, size=LARGE, hang_seconds=HANG_SECONDS):
        folder.mkdir()
        self.daemon, self.folder, self.size = daemon, folder, size
        recovery = {"max_restarts": 1000, "on": ["rank_failure", "hang"]}
        if warm:
            recovery["warm_standby"] = ["lockstep", "array", "socket", "pathlib"]
        self.id = daemon.submit({
            "name": "chaos", "framework": "command", "command": [harness.PYTHON, str(SCRIPT), str(folder), str(steps), str(period)],
            "resources": {"nodes": size.nodes, "ranks_per_node": size.per_node}, "environment": {"PYTHONPATH": str(harness.PYTHON_PACKAGE)},
            "watch": {"hang_seconds": hang_seconds}, "capture": {"preset": "none"}, "recovery": recovery})["id"]

    def progress(self):
        """(generation, step it began after, newest step)"""
        try:
            return tuple(map(int, (self.folder / "progress").read_text().split()))
        except (OSError, ValueError):
            return 0, 0, 0

    def settled(self):
        generation, first, step = self.progress()
        return generation > 0 and step >= first + SETTLED

    def pid(self, rank):
        ranks = self.daemon.get(f"/v1/jobs/{self.id}/ranks?limit=1000")["items"]
        return next(one["pid"] for one in ranks if one["rank"] == rank)

    def master_port(self):
        """Of the newest generation."""
        after, port = 0, 0
        while items := self.daemon.events(self.id, after):
            after = items[-1]["seq"]
            port = next((one["data"]["master_port"] for one in reversed(items) if one["kind"] == "generation_started"), port)
        return port

    def finish(self, last=None):
        if last:
            harness.write_whole(self.folder / "last", str(last))
        done = self.daemon.wait_state(self.id, harness.FINAL, 300)
        if done["state"] != "succeeded":
            raise SystemExit(f"chaos: the job is {done['state']}: {done.get('cause')}")
        finals = {(self.folder / f"final-{rank}").read_text() for rank in range(self.size.ranks)}
        if len(finals) != 1:
            raise SystemExit("chaos: the ranks do not have the same weights at the end")
        step, weights = finals.pop().split()
        return int(step), weights, done


def strike(job, kind, rank):
    """Who may be named for it; None: nothing may follow."""
    if kind == "kill":
        os.kill(job.pid(rank), signal.SIGKILL)
        return {rank}
    if kind == "freeze":
        os.kill(job.pid(rank), signal.SIGSTOP)
        return {rank}
    if kind == "link of ranks":
        port = job.master_port()
        if not cut(job.pid(rank), lambda peer: isinstance(peer, tuple) and peer[1] == port):
            raise RuntimeError(f"rank {rank} has no connection to the hub")
        return {0, rank}
    claims = [one for one in job.daemon.events(job.id) if one["kind"] == "agent_claimed"]
    agent = next(one["data"]["pid"] for one in claims if one["data"]["node_rank"] == rank // job.size.per_node)
    port = int(job.daemon.url.rsplit(":", 1)[1].strip("/"))
    if not cut(agent, lambda peer: peer[1] == port if isinstance(peer, tuple) else os.path.basename(peer) in SOCKETS):
        raise RuntimeError(f"the agent of rank {rank} has no connection to lockstepd")
    return None


def judge(kind, allowed, cause):
    """What is wrong with the cause of the generation that the fault ended; "" if nothing is."""
    expected = {"kill": "rank_signal", "freeze": "hang"}.get(kind)
    if cause.get("rank") not in allowed:
        return f"rank {cause.get('rank')} is named, not {sorted(allowed)}: {cause.get('message')}"
    if expected and cause.get("class") != expected:
        return f"{cause.get('class')}, not {expected}: {cause.get('message')}"
    return ""


def fault_free_rate(daemon, folder, warm):
    """Steps a second."""
    job = Job(daemon, folder, 10**9, PERIOD, warm)
    harness.wait_until(job.settled, 120, "the ranks make steps")
    began, first = time.monotonic(), job.progress()[2]
    time.sleep(FAULT_FREE_SECONDS)
    rate = (job.progress()[2] - first) / (time.monotonic() - began)
    job.finish(job.progress()[2] + 20)
    return rate


def under_fire(job, faults, seconds):
    """(step at the beginning, its moment, [(kind, rank, generation that it met, who may be named, seconds until steps)])"""
    harness.wait_until(job.settled, 120, "the ranks make steps")
    began, first = time.monotonic(), job.progress()[2]
    struck = []
    for at, kind, rank in faults:
        while time.monotonic() - began < seconds and (time.monotonic() - began < at or not job.settled()):
            time.sleep(0.05)
        if time.monotonic() - began >= seconds:
            break
        generation = job.progress()[0]
        moment, step = time.monotonic(), job.progress()[2]
        allowed = strike(job, kind, rank)
        if allowed is not None:
            harness.wait_until(lambda: job.progress()[0] > generation or time.monotonic() - began > seconds, 120,
                               f"the ranks go on after a {kind} of rank {rank}")
        struck.append((kind, rank, generation, allowed, time.monotonic() - moment))
        print(f"  {moment - began:6.1f} s  step {step:6}  {kind} of rank {rank}: "
              f"{'steps again after %.1f s' % struck[-1][4] if allowed is not None else 'nothing is to follow'}", flush=True)
    return first, began, struck


def main(options):
    faults = plan(options.seed, options.minutes, LARGE)
    counts = collections.Counter(kind for _, kind, _ in faults)
    print(f"chaos: seed {options.seed}, {options.minutes:g} minutes, {LARGE.ranks} ranks on {LARGE.nodes} nodes and {os.cpu_count()} cores, "
          f"{'cold starts' if options.cold else 'warm standbys'}; {', '.join(f'{n} × {kind}' for kind, n in counts.items())}")
    with tempfile.TemporaryDirectory(prefix="lockstep-chaos-") as name:
        folder = pathlib.Path(name)
        daemon = harness.Daemon(folder / "daemon", "--log-level", "warn")
        (folder / "daemon").mkdir()
        daemon.start()
        try:
            rate = fault_free_rate(daemon, folder / "free", not options.cold)
            print(f"  without faults {rate:.2f} steps a second; load average {os.getloadavg()[0]:.1f}", flush=True)
            job = Job(daemon, folder / "chaos", 10**9, PERIOD, not options.cold)
            first, began, struck = under_fire(job, faults, options.minutes * 60)
            while time.monotonic() - began < options.minutes * 60:
                time.sleep(0.05)
            steps, seconds = job.progress()[2] - first, time.monotonic() - began
            last, weights, done = job.finish(job.progress()[2] + 20)
            print(f"  load average {os.getloadavg()[0]:.1f}; the same {last} steps without faults …", flush=True)
            # As fast as it can: how long a step takes is nothing that the weights depend on.
            same = Job(daemon, folder / "same", last, 0, False).finish()
            return verdict(steps, seconds, rate, struck, done, weights == same[1] and last == same[0])
        finally:
            daemon.clean_up()


def wrong_culprits(struck, done):
    """(what is wrong, in words; {generation: the fault that ended it})"""
    generations = done["attempts"][-1]["generations"]
    wrong, ended = [], {}
    for kind, rank, generation, allowed, took in struck:
        if allowed is None:
            continue
        ended[generation] = kind
        cause = generations[generation - 1].get("cause", {})
        if why := judge(kind, allowed, cause):
            wrong.append(f"{kind} of rank {rank}, generation {generation}: {why}")
    for number, one in enumerate(generations[:-1], 1):
        if number not in ended:
            wrong.append(f"generation {number} ended without a fault: {one.get('cause', {}).get('message')}")
    return wrong, ended


def verdict(steps, seconds, rate, struck, done, equal):
    wrong, ended = wrong_culprits(struck, done)
    for kind in FAULTS:
        took = sorted(took for one, *_, allowed, took in struck if one == kind and allowed is not None)
        if took:
            print(f"  {kind}: {len(took)}, steps again after {took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest)")
    kept = steps / (rate * seconds)
    print(f"  {len(struck)} faults in {seconds:.0f} s: {steps} steps, {100 * kept:.1f} % of those without faults")
    print(f"  {len(wrong)} wrong culprits of {len(ended)}")
    for line in wrong:
        print(f"    WRONG {line}")
    print(f"  final weights {'bit-equal' if equal else 'NOT EQUAL'} to those of a run without faults", flush=True)
    return 0 if equal and not wrong else 1
