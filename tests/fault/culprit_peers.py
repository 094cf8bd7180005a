"""What other launchers say of the rank that is to blame: torchrun by its "Root Cause", NVRx's ft_launcher by the failure that it
reports first, Ray Train by the ranks of its error, torchft by whose launcher reports a failure. The same failures as Lockstep's (tests/fault/culprit.py), four ranks on
one node, the torch environment of deploy/install-frameworks torch peers. None of them names a rank that hangs."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import culprit
import harness

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = pathlib.Path(os.environ.get("LOCKSTEP_FRAMEWORKS", harness.SOURCE / "build" / "frameworks"))
RANKS = 4
SECONDS = 120
# What they say on one node, where local ranks are the ranks.
ROOT_CAUSE = re.compile(r"Root Cause.*?rank +: (\d+)", re.S)
FIRST_FAILURE = re.compile(r"failed \(exitcode: [^)]*\) local_rank: (\d+)")
# What a process makes of its own process group has no counterpart where the launcher makes the group.
ONE_FUNCTION = ("finally", "record")


class CannotRun(Exception):
    """A peer that this machine cannot run: why."""


def python_of(name):
    found = ENVIRONMENTS / name / "bin" / "python"
    if not found.exists():
        raise CannotRun(f"no {found}: deploy/install-frameworks torch peers")
    return str(found)


def environment(**more):
    own = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "SLURM", "PYTHON"))}
    return {**own, "OMP_NUM_THREADS": "1", **more}


def stop(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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

    def run(self, kind, rank, step):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*self.words, f"--nproc_per_node={RANKS}", str(culprit.SCRIPTS / "train.py"), kind, str(rank),
                                   str(step)], cwd=folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  timeout=SECONDS, check=False, env=environment())
        root = self.says.search(done.stderr)
        return judged([int(root.group(1))] if root else [], rank, done.stderr)

    def close(self):
        pass


class RayTrain:
    kinds = [kind for kind in Launcher.kinds if kind not in ONE_FUNCTION]

    def __init__(self):
        self.python = python_of("peers")
        self.place = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp")  # short: Ray's sockets are below it
        self.environment = environment(RAY_TMPDIR=self.place.name, RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_V2_ENABLED="1")
        self.head = subprocess.Popen([self.python, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--num-cpus={RANKS + 2}",
                                      "--port=0", "--include-dashboard=false", f"--temp-dir={self.place.name}"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment,
                                     start_new_session=True)
        harness.wait_until(lambda: any(pathlib.Path(self.place.name).glob("ray_current_cluster")), 60, "Ray's cluster is there")

    def run(self, kind, rank, step):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([self.python, str(HERE / "culprit_ray.py"), kind, str(rank), str(step), folder], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS, check=False,
                                  env=self.environment)
        if done.returncode != 0:
            return f"nobody is named: {done.stderr[-300:]}"
        said = json.loads(done.stdout.splitlines()[-1])
        return judged(said["ranks"], rank, said["error"])

    def close(self):
        stop(self.head)
        self.place.cleanup()


class TorchFt:
    kinds = RayTrain.kinds

    def __init__(self):
        self.python = python_of("peers")
        self.log = tempfile.NamedTemporaryFile(mode="r", encoding="utf-8")
        with open(self.log.name, "wb") as log:
            self.lighthouse = subprocess.Popen([pathlib.Path(self.python).parent / "torchft_lighthouse", "--bind", "127.0.0.1:0",
                                                "--min_replicas", "1", "--join_timeout_ms", "2000"], stdout=log, stderr=log,
                                               env=environment(), start_new_session=True)
        listens = re.compile(r"listening on: http://\S+:(\d+)")
        harness.wait_until(lambda: listens.search(self.text()), 30, "torchft's lighthouse listens")
        self.address = f"http://127.0.0.1:{listens.search(self.text()).group(1)}"

    def text(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def run(self, kind, rank, step):
        with tempfile.TemporaryDirectory() as folder:
            logs = [pathlib.Path(folder) / str(number) for number in range(RANKS)]
            started = []
            try:
                for number, path in enumerate(logs):
                    with open(path, "wb") as log:
                        started.append(subprocess.Popen(
                            [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
                             str(HERE / "culprit_torchft.py"), kind, str(rank), str(step)], stdout=log, stderr=log, cwd=folder,
                            env=environment(TORCHFT_LIGHTHOUSE=self.address, REPLICA_GROUP_ID=str(number)), start_new_session=True))
                deadline = time.monotonic() + SECONDS
                codes = [one.wait(max(1, deadline - time.monotonic())) for one in started]
            finally:
                for one in started:
                    stop(one)
            failed = [number for number, code in enumerate(codes) if code != 0]
            said = "".join(path.read_text(errors="replace") for path in logs)
        return judged(failed, rank, said)

    def close(self):
        stop(self.lighthouse)
        self.log.close()


PEERS = {
    "torchrun": lambda: Launcher([python_of("torch"), "-m", "torch.distributed.run", "--standalone"], ROOT_CAUSE),
    "ft_launcher": lambda: Launcher([str(pathlib.Path(python_of("torch")).parent / "ft_launcher"), "--rdzv-backend=c10d",
                                     "--rdzv-endpoint=localhost:0", "--nnodes=1", "--max-restarts=0"], FIRST_FAILURE),
    "Ray Train": RayTrain,
    "torchft": TorchFt,
}


def main(options, runs):
    """`runs` of each peer; the kinds of failure in turn. Nothing of it is Lockstep's: no exit status."""
    for name, start in PEERS.items():
        if options.peers and name not in options.peers:
            continue
        try:
            peer = start()
        except CannotRun as why:
            print(f"SKIPPED: {name}: {why}")
            continue
        wrong, total = collections.defaultdict(list), collections.Counter()
        try:
            for kind, rank, step in culprit.runs_of(peer.kinds, -(-runs // len(peer.kinds)))[:runs]:
                if time.monotonic() > options.until:
                    print("the time is over")
                    break
                try:
                    why = peer.run(kind, rank, step)
                except subprocess.TimeoutExpired:
                    why = f"it does not end in {SECONDS} s"
                total[kind] += 1
                if why:
                    wrong[kind].append(why)
                    print(f"{name}: WRONG {kind} rank {rank} step {step}: {why}", flush=True)
        finally:
            peer.close()
        culprit.table(f"{name}, the same failures", wrong, total)
