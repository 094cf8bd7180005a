"""From Enter to the first step of all ranks, and from the kill of a rank to the next step of all: a DDP script under
Lockstep (recovery, local scheduler; cold and with warm standbys) beside torchrun --max-restarts, NVRx's ft_launcher, Ray Train and
torchft, in turns: the same torch, training and machine. Most of a cold start is the import of torch: on a machine that does
something else as well the ratios say little.

Ray's cluster and torchft's lighthouse are there before the clock runs, as lockstepd is. Ray Train calls a function
(frameworks_ray.py) when it has imported torch and made the process group: that is all in "new ranks begin", and rows of its own
would say 0. torchft's loop is its own (frameworks_torchft.py), and its other ranks go on alone until the killed one is
back, which the others do not: "the next step of all" is theirs together again.

The torch is LOCKSTEP_FRAMEWORKS/torch's (deploy/install-frameworks torch peers), else that of LOCKSTEP_TORCH_PYTHON. Every
rank notes its own moments (frameworks_training.py); when the killed rank's peers are gone is looked for every 2 ms. Who notices
the kill when is nothing that all of them show: it is part of the first span.
"""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import harness
import peers

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
RANKS = 2
SECONDS = 120
# Of each the moment that ends it; the last is the step.
SPANS = {"noticed, old ranks gone": None, "new ranks begin": "begin", "torch imported": "imported", "process group met": "met",
         "checkpoint loaded": "reloaded", "first step": "step"}
# What Ray has done before a rank begins.
NOT_OF_RAY = ("torch imported", "process group met")
CHECKPOINT = "checkpoint.pt"


def python():
    found = peers.installed("torch")
    return str(found) if found else os.environ.get("LOCKSTEP_TORCH_PYTHON")


def until(ask, what):
    deadline = time.monotonic() + SECONDS
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {SECONDS} s: {what}")
        time.sleep(0.002)


def starts(folder):
    """[{rank: moments of it}] of each time that all ranks have made a step."""
    by_round = {}
    for path in folder.glob("*.json"):
        try:
            one = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue  # it is being written
        by_round.setdefault(one["round"], {})[one["rank"]] = one
    return [ranks for _, ranks in sorted(by_round.items()) if len(ranks) == RANKS]


def gone(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def measure_one(folder, begin, end, ready=lambda: True, others_end=True):
    """{"start": seconds, span: seconds …} of one job that begin() starts; end() waits for it. Once ready() and there is a
    checkpoint, a rank is killed, and the others are ended by it or not."""
    clock = time.time()
    begin()
    first = until(lambda: starts(folder), "the first step of all ranks")[0]
    out = {"start": max(one["step"] for one in first.values()) - clock}
    until(lambda: (folder / CHECKPOINT).exists() and ready(), "a checkpoint, and whoever is to wait")
    pids = [one["pid"] for rank, one in first.items() if others_end or rank == 1]
    killed = time.time()
    os.kill(first[1]["pid"], signal.SIGKILL)
    until(lambda: all(map(gone, pids)), "the old ranks are gone")
    moments = [time.time()]
    again = until(lambda: starts(folder)[1:], "the next step of all ranks")[0]
    if any(one["step"] < killed for one in again.values()):
        raise RuntimeError("it began again before the kill")
    if again[1]["pid"] == first[1]["pid"]:
        raise RuntimeError("the round after the kill is of the killed process")
    if any(one["resumed"] < 1 for one in again.values()):
        raise RuntimeError("it did not begin from the checkpoint")
    (folder / "stop").touch()
    end()
    moments += [max(one[name] for one in again.values()) for name in SPANS.values() if name]
    out["again"] = moments[-1] - killed
    for span, before, after in zip(SPANS, [killed, *moments], moments):
        out[span] = after - before
    return out


def by_commands(commands, folder, others_end=True):
    """Launchers that are commands: [(words, more environment)], all of one job."""
    started = []
    with open(folder / "log", "wb") as log:
        def begin():
            for command, more in commands:
                started.append(peers.launched(command, folder, log, **more))

        def end():
            if any([one.wait(SECONDS) for one in started]):
                raise RuntimeError((folder / "log").read_text(errors="replace")[-2000:])

        try:
            return measure_one(folder, begin, end, others_end=others_end)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            words = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{error}; it said last: {' '.join(words)[:200]}") from None
        finally:
            peers.end(started, folder)


def by_torchrun(program, folder, _service):
    return by_commands([([program, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
                          "--max-restarts=3", HERE / "frameworks_script.py", folder], {})], folder)


def by_nvrx(program, folder, _service):
    launcher = pathlib.Path(program).parent / "ft_launcher"
    if not launcher.exists():
        raise peers.CannotRun("nvidia-resiliency-ext is not installed beside that torch")
    return by_commands([([launcher, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1",
                          f"--nproc-per-node={RANKS}", "--max-restarts=3", HERE / "frameworks_script.py", folder], {})], folder)


def by_ray(_program, folder, _service):
    with peers.ray_cluster(RANKS) as cluster:
        return by_commands([([peers.python_of("peers"), HERE / "frameworks_ray.py", folder, str(RANKS)],
                             {**cluster, "PYTHONPATH": str(HERE)})], folder)


def by_torchft(_program, folder, _service):
    with peers.torchft_lighthouse() as lighthouse:
        return by_commands([([peers.python_of("peers"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
                              "--max-restarts=3", HERE / "frameworks_torchft.py", folder],
                             {**lighthouse, "REPLICA_GROUP_ID": str(rank), "REPLICA_GROUPS": str(RANKS)})
                            for rank in range(RANKS)], folder, others_end=False)


def by_lockstep(program, folder, service, warm=False):
    spec = {"name": "bench", "framework": "pytorch", "resources": {"nodes": 1, "ranks_per_node": RANKS},
            "recovery": {"max_restarts": 3, **({"warm_standby": ["torch", "torch.distributed"]} if warm else {})},
            "capture": {"preset": "none"}, "command": [program, str(HERE / "frameworks_script.py"), str(folder)]}
    (folder / "spec").write_text(json.dumps(spec), encoding="utf-8")
    jobs = []

    def begin():
        jobs.append(service.submit(spec)["id"])

    def ready():
        return not warm or len(harness.waiting_standbys(str(folder))) == RANKS

    def end():
        done = service.wait_state(jobs[0], ("succeeded", "failed", "cancelled"), SECONDS)
        if done["state"] != "succeeded":
            raise RuntimeError(json.dumps(done, indent=1))
        started = [one["data"].get("warm", 0) for one in service.events(jobs[0]) if one["kind"] == "ranks_started"]
        if started != [0, RANKS if warm else 0]:
            raise RuntimeError(f"ranks that had waited, by generation: {started}")
    try:
        return measure_one(folder, begin, end, ready)
    finally:
        for job in jobs:  # one that has ended refuses
            service.api("POST", f"/v1/jobs/{job}/cancel")


WAYS = {"lockstep": by_lockstep, "lockstep, warm standbys": lambda *given: by_lockstep(*given, warm=True),
        "torchrun": by_torchrun, "ft_launcher": by_nvrx, "Ray Train": by_ray, "torchft": by_torchft}
OURS = ("lockstep", "lockstep, warm standbys")


def rank_of_native(job, rank):
    """The process that is this rank of a native job."""
    for pid in harness.processes_with("lockstep-train"):
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"LOCKSTEP_JOB_ID={job}".encode() in environment and f"RANK={rank}".encode() in environment:
            return pid
    raise RuntimeError(f"no process is rank {rank} of {job}")


def by_native(service, folder):
    """Seconds from the kill of a rank of the native trainer to the next step of all, by the ranks' own clocks."""
    job = service.submit({"name": "bench", "framework": "native", "resources": {"nodes": 1, "ranks_per_node": RANKS},
                          "train": {"model": "mnist_convnet", "batch_size": 16, "max_steps": 1_000_000, "epochs": 1_000_000,
                                    "train_samples": 2_000, "test_samples": 200, "checkpoint_every_steps": 20},
                          "checkpoint": {"directory": str(folder / "checkpoints")}, "recovery": {"max_restarts": 3}})["id"]

    def first_steps(generation):
        time.sleep(0.05)
        status, answer = service.api("GET", f"/v1/jobs/{job}/samples?metric=loss&generation={generation}")
        runs = answer["runs"] if status == 200 else []
        return runs if len({run["rank"] for run in runs}) == RANKS else None

    try:
        until(lambda: first_steps(1), "the first step of all ranks")
        until(lambda: list((folder / "checkpoints").glob("step-*")), "a checkpoint")
        killed = time.time()
        os.kill(rank_of_native(job, 1), signal.SIGKILL)
        runs = until(lambda: first_steps(2), "the next step of all ranks")
        if min(run["steps"][0] for run in runs) <= 1:
            raise RuntimeError("it did not begin from the checkpoint")
        return max(run["times"][0] for run in runs) - killed
    finally:
        service.api("POST", f"/v1/jobs/{job}/cancel")


def add_native(table, options, daemon):
    what = "kill of a rank to the next step of all: native trainer"
    if not (options.bin / "lockstep-train").exists():
        table.skip(what, "SKIPPED", "lockstep-train is not built (needs LibTorch)", "≤ 2")
        return
    with daemon() as service:
        seen = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="lockstep-bench-", ignore_cleanup_errors=True) as folder:
                seen.append(by_native(service, pathlib.Path(folder)))
    table.add(what, seen, "s", 2, higher_is_better=False)


def add_targets(table, good, runs):
    """What design asks for: nothing of our own but a second beside the import of torch, and less where processes wait."""
    if "lockstep" in good:
        table.add("kill of a rank to the next step of all, without the import of torch: lockstep",
                  [run["again"] - run["torch imported"] for run in good["lockstep"]], "s", 1, higher_is_better=False)
    if "lockstep, warm standbys" in good:
        table.add("kill of a rank to the next step of all, warm: lockstep",
                  [run["again"] for run in good["lockstep, warm standbys"]], "s", 3, higher_is_better=False)
    for name in [name for name in OURS if name in good]:
        table.add(f"kill of a rank to all ranks running again: {name}",
                  [run["noticed, old ranks gone"] + run["new ranks begin"] for run in good[name]], "s", 1, higher_is_better=False)
    for key, what in (("start", "Enter to the first step"), ("again", "kill to the next step")):
        for peer in [name for name in good if name not in OURS]:
            for ours in OURS if key == "again" else OURS[:1]:
                both = [(a, b) for a, b in zip(runs[peer], runs.get(ours, ())) if a and b]
                if both:
                    table.add(f"{what}: {peer} / {ours}", [a[key] / b[key] for a, b in both], "×")


def measure(table, options, daemon):
    program = python()
    if not program:
        print("frameworks: SKIPPED: no torch 2 (deploy/install-frameworks torch, or LOCKSTEP_TORCH_PYTHON)")
        return
    runs = {name: [] for name in WAYS}
    with daemon() as service:
        for _ in range(options.rounds):
            for name in list(runs):
                with tempfile.TemporaryDirectory(prefix="lockstep-bench-", ignore_cleanup_errors=True) as folder:
                    try:
                        runs[name].append(WAYS[name](program, pathlib.Path(folder), service))
                    except (peers.CannotRun, RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
                        if isinstance(error, peers.CannotRun) and not runs[name]:
                            table.note(f"frameworks: no {name}: {error}")
                            del runs[name]
                            continue
                        runs[name].append(None)
                        table.note(f"frameworks: a round of {name} does not count: {error}")
    good = {name: [run for run in all_of_it if run] for name, all_of_it in runs.items()}
    for name in [name for name, all_of_it in good.items() if not all_of_it]:
        table.note(f"frameworks: no figures of {name}: no round of it counts")
        del good[name]
    if not good:
        raise SystemExit("frameworks: nothing to compare")
    version = subprocess.run([program, "-W", "ignore", "-c", "import torch; print(torch.__version__)"], capture_output=True,
                             text=True, check=True).stdout.strip()
    table.note(f"frameworks: torch {version}, {RANKS} ranks, {os.cpu_count()} cores; load average at the end "
               f"{os.getloadavg()[0]:.2f}")
    for key, what in (("start", "Enter to the first step of all ranks"), ("again", "kill of a rank to the next step of all")):
        for name, all_of_it in good.items():
            table.add(f"{what}: {name}", [run[key] for run in all_of_it], "s", higher_is_better=False)
    for span in SPANS:
        for name, all_of_it in good.items():
            if name == "Ray Train" and span in NOT_OF_RAY:
                continue
            table.add(f"  of it {span}: {name}", [run[span] for run in all_of_it], "s", higher_is_better=False)
    add_targets(table, good, runs)
    add_native(table, options, daemon)
