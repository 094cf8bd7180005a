"""What other launchers say of the rank that is to blame: torchrun by its "Root Cause", NVRx's ft_launcher by the failure that it
reports first, Ray Train by the ranks of its error, torchft by whose launcher reports a failure. Lockstep's failures
(tests/fault/culprit.py), four ranks on one node, the torch environment of deploy/install-frameworks torch peers. Left out:
of all of them `spawn` and `torchrun`, whose ranks are started by what they start; of Ray Train and torchft `finally` and `record`,
which are about a process group that the script makes. None of them names a rank that hangs.

Only runs count in which the failure began (CULPRIT_MARK of tests/fixtures/culprit/train.py)."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import culprit
import harness

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = pathlib.Path(os.path.abspath(os.environ.get("LOCKSTEP_FRAMEWORKS", harness.SOURCE / "build" / "frameworks")))
RANKS = 4
SECONDS = 120
END_SECONDS = 10
# What they say on one node, where local ranks are the ranks.
ROOT_CAUSE = re.compile(r"Root Cause.*?rank +: (\d+)", re.S)
FIRST_FAILURE = re.compile(r"failed \(exitcode: [^)]*\) local_rank: (\d+)")
# What a process makes of its own process group has no counterpart where the launcher makes the group.
ONE_FUNCTION = ("finally", "record")


class CannotRun(Exception):
    """A peer that this machine cannot run: why."""


def python_of(name):
    if not (ENVIRONMENTS / name / "installed.txt").exists():  # the last that is written
        raise CannotRun(f"no {ENVIRONMENTS / name}: deploy/install-frameworks torch peers")
    return str(ENVIRONMENTS / name / "bin" / "python")


def environment(**more):
    own = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "SLURM", "PYTHON"))}
    return {**own, "OMP_NUM_THREADS": "1", **more}


def launched(command, **given):
    try:
        return subprocess.Popen(command, start_new_session=True, **given)
    except OSError as error:
        raise CannotRun(f"it cannot be started: {error}") from None


def stop(processes, folder):
    """Whatever came of them, they are over, and so is whoever works in their folder: torchrun starts each rank in a session of
    its own, and is given the time to end them."""
    for one in processes:
        if one.poll() is None:
            one.terminate()
    deadline = time.monotonic() + END_SECONDS
    for one in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(max(0, deadline - time.monotonic()))
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
    folder = pathlib.Path(folder).resolve()
    for link in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink() == folder:
                os.kill(int(link.parent.name), signal.SIGKILL)


def served(process, ask, seconds, what):
    """The answer of ask(), once there is one; CannotRun if the process ends before, or there is none in time."""
    try:
        harness.wait_until(lambda: ask() or process.poll() is not None, seconds, what)
    except AssertionError as error:
        raise CannotRun(str(error)) from None
    if not (answer := ask()):
        raise CannotRun(f"it ended with {process.poll()} before: {what}")
    return answer


def finished(command, folder, environment_of_it):
    """(exit status, stdout, stderr) of what works in the folder."""
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        process = launched(command, cwd=folder, stdout=out, stderr=err, env=environment_of_it)
    try:
        status = process.wait(SECONDS)
    finally:
        stop([process], folder)
    return status, *((folder / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout", "stderr"))


def judged(named, rank, said):
    """What is wrong with the ranks that were named; "" if it is right. Several are no answer: which of them it was is left to
    the reader."""
    if not named:
        return f"nobody is named: {said[-200:]}"
    if rank not in named:
        return f"ranks {named}, not {rank}"
    return f"among others: ranks {named}" if len(named) > 1 else ""


class Launcher:
    """A command that starts the ranks and says which failed: torchrun and what is built on it."""

    kinds = [kind for kind in culprit.FAILURES if kind not in culprit.NODE_LAUNCH]

    def __init__(self, words, says):
        self.words, self.says = words, says

    def run(self, folder, mark, kind, rank, step):
        _, _, said = finished([*self.words, f"--nproc_per_node={RANKS}", str(culprit.SCRIPTS / "train.py"), kind, str(rank), str(step)],
                              folder, environment(**mark))
        root = self.says.search(said)
        return judged([int(root.group(1))] if root else [], rank, said)

    def close(self):
        pass


class RayTrain:
    kinds = [kind for kind in Launcher.kinds if kind not in ONE_FUNCTION]

    def __init__(self):
        self.python = python_of("peers")
        # Short: Ray's sockets are below it.
        self.place = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
        # Without the last its head drains for half a minute when it is told to end.
        self.environment = environment(RAY_TMPDIR=self.place.name, RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_V2_ENABLED="1",
                                       RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="0")
        self.started = []
        try:
            self.started.append(launched([self.python, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--num-cpus={RANKS + 2}",
                                          "--port=0", "--include-dashboard=false", f"--temp-dir={self.place.name}"],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment,
                                         cwd=self.place.name))
            found = served(self.started[0], lambda: [path.read_text(encoding="utf-8") for path in pathlib.Path(self.place.name).glob(
                "ray_current_cluster")], 60, "Ray's cluster is there")
        except BaseException:
            self.close()
            raise
        self.environment["RAY_ADDRESS"] = found[0].strip()  # there may be other clusters on the machine

    def run(self, folder, mark, kind, rank, step):
        status, out, err = finished([self.python, str(HERE / "culprit_ray.py"), kind, str(rank), str(step), str(folder)], folder,
                                    {**self.environment, **mark})
        if status != 0:
            return f"nobody is named: {err[-300:]}"
        said = json.loads(out.splitlines()[-1])
        return judged(said["ranks"], rank, said["error"])

    def close(self):
        stop(self.started, self.place.name)
        self.place.cleanup()


class TorchFt:
    kinds = RayTrain.kinds

    def __init__(self):
        self.python = python_of("peers")
        self.place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.started = []
        path = pathlib.Path(self.place.name) / "log"
        listens = re.compile(r"listening on: http://\S+:(\d+)")
        try:
            with open(path, "wb") as log:
                self.started.append(launched([pathlib.Path(self.python).parent / "torchft_lighthouse", "--bind", "127.0.0.1:0",
                                              "--min_replicas", "1", "--join_timeout_ms", "2000"], stdout=log, stderr=log,
                                             cwd=self.place.name, env=environment()))
            port = served(self.started[0], lambda: listens.search(path.read_text(encoding="utf-8", errors="replace")), 30,
                          "torchft's lighthouse listens").group(1)
        except BaseException:
            self.close()
            raise
        self.address = f"http://127.0.0.1:{port}"

    def run(self, folder, mark, kind, rank, step):
        logs = [folder / str(number) for number in range(RANKS)]
        started = []
        try:
            for number, path in enumerate(logs):
                with open(path, "wb") as log:
                    started.append(launched(
                        [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
                         str(HERE / "culprit_torchft.py"), kind, str(rank), str(step)], stdout=log, stderr=log, cwd=folder,
                        env=environment(**mark, TORCHFT_LIGHTHOUSE=self.address, REPLICA_GROUP_ID=str(number))))
            deadline = time.monotonic() + SECONDS
            codes = [one.wait(max(1, deadline - time.monotonic())) for one in started]
        finally:
            stop(started, folder)
        failed = [number for number, code in enumerate(codes) if code != 0]
        return judged(failed, rank, "".join(path.read_text(errors="replace") for path in logs))

    def close(self):
        stop(self.started, self.place.name)
        self.place.cleanup()


PEERS = {
    "torchrun": lambda: Launcher([python_of("torch"), "-m", "torch.distributed.run", "--standalone"], ROOT_CAUSE),
    "ft_launcher": lambda: Launcher([str(pathlib.Path(python_of("torch")).parent / "ft_launcher"), "--rdzv-backend=c10d",
                                     "--rdzv-endpoint=localhost:0", "--nnodes=1", "--max-restarts=0"], FIRST_FAILURE),
    "Ray Train": RayTrain,
    "torchft": TorchFt,
}


def one_run(peer, kind, rank, step):
    """(what is wrong or "", whether the failure began)."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = pathlib.Path(place)
        try:
            why = peer.run(folder, {"CULPRIT_MARK": str(folder / "begun")}, kind, rank, step)
        except subprocess.TimeoutExpired:
            why = f"it does not end in {SECONDS} s"
        return why, (folder / "begun").exists()


def main(options, runs):
    """`runs` of each peer; the kinds of failure in turn. Nothing of it is Lockstep's: no exit status, but 2 for a peer that there
    is not."""
    if unknown := set(options.peers) - set(PEERS):
        print(f"no peers {', '.join(sorted(unknown))}; there are: {', '.join(PEERS)}", file=sys.stderr)
        sys.exit(2)
    for name, start in PEERS.items():
        if options.peers and name not in options.peers:
            continue
        try:
            peer = start()
        except CannotRun as why:
            print(f"SKIPPED: {name}: {why}")
            continue
        wrong, total, not_begun = collections.defaultdict(list), collections.Counter(), 0
        try:
            for kind, rank, step in culprit.runs_of(peer.kinds, -(-runs // len(peer.kinds)))[:runs]:
                if time.monotonic() > options.until:
                    print("the time is over")
                    break
                why, begun = one_run(peer, kind, rank, step)
                if not begun:
                    not_begun += 1
                    print(f"{name}: did not begin: {kind} rank {rank} step {step}: {why}", flush=True)
                    continue
                total[kind] += 1
                if why:
                    wrong[kind].append(why)
                    print(f"{name}: WRONG {kind} rank {rank} step {step}: {why}", flush=True)
        except CannotRun as why:
            print(f"SKIPPED: {name}, from here on: {why}")
        finally:
            peer.close()
        culprit.table(f"{name}, the same failures", wrong, total)
        if not_begun:
            print(f"  {'not begun':12} {not_begun:3} more, which say nothing", flush=True)
