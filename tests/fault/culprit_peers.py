"""What other launchers say of the rank that is to blame: torchrun by its "Root Cause", NVRx's ft_launcher by the failure that it
reports first, Ray Train by the ranks of its error, torchft by whose launcher reports a failure. Lockstep's failures
(tests/fault/culprit.py), four ranks on one node, the torch environment of deploy/install-frameworks torch peers. Left out:
of all of them `spawn` and `torchrun`, whose ranks are started by what they start; of Ray Train and torchft `finally` and `record`,
which are about a process group that the script makes. None of them names a rank that hangs.

Only runs count in which the failure began (CULPRIT_MARK of tests/fixtures/culprit/train.py)."""

import collections
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import culprit
import peers

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 4
SECONDS = 120
# What they say on one node, where local ranks are the ranks.
ROOT_CAUSE = re.compile(r"Root Cause.*?rank +: (\d+)", re.S)
FIRST_FAILURE = re.compile(r"failed \(exitcode: [^)]*\) local_rank: (\d+)")
# What a process makes of its own process group has no counterpart where the launcher makes the group.
ONE_FUNCTION = ("finally", "record")


def finished(command, folder, **more):
    """(exit status, stdout, stderr) of what works in the folder."""
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        process = peers.launched(command, folder, out, err, **more)
    try:
        status = process.wait(SECONDS)
    finally:
        peers.end([process], folder)
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
                              folder, **mark)
        root = self.says.search(said)
        return judged([int(root.group(1))] if root else [], rank, said)

    def close(self):
        pass


class RayTrain:
    kinds = [kind for kind in Launcher.kinds if kind not in ONE_FUNCTION]

    def __init__(self):
        self.opened = contextlib.ExitStack()
        self.cluster = self.opened.enter_context(peers.ray_cluster(RANKS + 2))

    def run(self, folder, mark, kind, rank, step):
        status, out, err = finished([peers.python_of("peers"), str(HERE / "culprit_ray.py"), kind, str(rank), str(step), str(folder)], folder,
                                    **self.cluster, **mark)
        if status != 0:
            return f"nobody is named: {err[-300:]}"
        said = json.loads(out.splitlines()[-1])
        return judged(said["ranks"], rank, said["error"])

    def close(self):
        self.opened.close()


class TorchFt:
    kinds = RayTrain.kinds

    def __init__(self):
        self.opened = contextlib.ExitStack()
        self.lighthouse = self.opened.enter_context(peers.torchft_lighthouse())

    def run(self, folder, mark, kind, rank, step):
        logs = [folder / str(number) for number in range(RANKS)]
        started = []
        try:
            for number, path in enumerate(logs):
                with open(path, "wb") as log:
                    started.append(peers.launched(
                        [peers.python_of("peers"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
                         str(HERE / "culprit_torchft.py"), kind, str(rank), str(step)], folder, log, **self.lighthouse, **mark,
                        REPLICA_GROUP_ID=str(number)))
            deadline = time.monotonic() + SECONDS
            codes = [one.wait(max(1, deadline - time.monotonic())) for one in started]
        finally:
            peers.end(started, folder)
        failed = [number for number, code in enumerate(codes) if code != 0]
        return judged(failed, rank, "".join(path.read_text(errors="replace") for path in logs))

    def close(self):
        self.opened.close()


PEERS = {
    "torchrun": lambda: Launcher([str(peers.python_of("torch")), "-m", "torch.distributed.run", "--standalone"], ROOT_CAUSE),
    "ft_launcher": lambda: Launcher([str(peers.python_of("torch").parent / "ft_launcher"), "--rdzv-backend=c10d",
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


def check_names(names):
    """Exit status 2 for a peer that there is not."""
    if unknown := set(names) - set(PEERS):
        print(f"no peers {', '.join(sorted(unknown))}; there are: {', '.join(PEERS)}", file=sys.stderr)
        sys.exit(2)


def main(options, runs):
    """`runs` of each peer; the kinds of failure in turn. Nothing of it is Lockstep's: no exit status."""
    for name, start in PEERS.items():
        if options.peers and name not in options.peers:
            continue
        try:
            peer = start()
        except peers.CannotRun as why:
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
        except peers.CannotRun as why:
            print(f"SKIPPED: {name}, from here on: {why}")
        finally:
            peer.close()
        culprit.table(f"{name}, the same failures", wrong, total)
        if not_begun:
            print(f"  {'not begun':12} {not_begun:3} more, which say nothing", flush=True)
