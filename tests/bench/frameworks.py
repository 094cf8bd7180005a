"""From Enter to the first step of all ranks, and from the kill of a rank to the next step of all: a DDP script under
Lockstep (recovery, local scheduler) beside torchrun --max-restarts, the same torch, script and machine, in turns. Most of
it is the import of torch: on a machine that does something else as well the ratios say little.

The torch is LOCKSTEP_FRAMEWORKS/torch's (deploy/install-frameworks torch), else that of LOCKSTEP_TORCH_PYTHON. Every
rank notes its own moments (frameworks_script.py); when the killed rank's peers are gone is looked for every 2 ms.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
RANKS = 2
SECONDS = 120
SPANS = ("old ranks gone", "new ranks begin", "torch imported", "process group met", "first step")


def python():
    environments = pathlib.Path(os.environ.get("LOCKSTEP_FRAMEWORKS", SOURCE / "build" / "frameworks"))
    found = environments / "torch" / "bin" / "python"
    return str(found) if found.exists() else os.environ.get("LOCKSTEP_TORCH_PYTHON")


def until(ask, what):
    deadline = time.monotonic() + SECONDS
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {SECONDS} s: {what}")
        time.sleep(0.002)


def starts(folder):
    """[{rank: moments of it}] of each time that all ranks have made a step: {"pid", "begin", "imported", "met", "step"}."""
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


def measure_one(folder, begin, end):
    """{"start": seconds, span: seconds …} of one job that begin() starts; end() waits for it."""
    clock = time.time()
    begin()
    first = until(lambda: starts(folder), "the first step of all ranks")[0]
    out = {"start": max(one["step"] for one in first.values()) - clock}
    pids = [one["pid"] for one in first.values()]
    killed = time.time()
    os.kill(first[1]["pid"], signal.SIGKILL)
    until(lambda: all(map(gone, pids)), "the old ranks are gone")
    moments = [time.time()]
    again = until(lambda: starts(folder)[1:], "the next step of all ranks")[0]
    (folder / "stop").touch()
    end()
    moments += [max(one[name] for one in again.values()) for name in ("begin", "imported", "met", "step")]
    out["again"] = moments[-1] - killed
    for span, before, after in zip(SPANS, [killed, *moments], moments):
        out[span] = after - before
    return out


def environment():
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "SLURM", "PYTHON"))}
    return {**own, "OMP_NUM_THREADS": "1"}


def by_torchrun(program, folder):
    command = [program, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=3",
               str(HERE / "frameworks_script.py"), str(folder)]
    started = []
    with open(folder / "log", "wb") as log:
        def begin():
            # A session of its own, as Lockstep's ranks have: Linux shares the cores out by sessions.
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True))

        def end():
            if started[0].wait(SECONDS) != 0:
                raise RuntimeError((folder / "log").read_text(errors="replace")[-2000:])

        try:
            return measure_one(folder, begin, end)
        except RuntimeError as error:
            words = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{error}; it said last: {' '.join(words)[:200]}") from None
        finally:
            if started and started[0].poll() is None:
                started[0].terminate()
                started[0].wait(SECONDS)


def by_lockstep(program, folder, service):
    spec = {"name": "bench", "framework": "pytorch", "resources": {"nodes": 1, "ranks_per_node": RANKS},
            "recovery": {"max_restarts": 3}, "command": [program, str(HERE / "frameworks_script.py"), str(folder)]}
    (folder / "spec").write_text(json.dumps(spec), encoding="utf-8")

    def begin():
        service.cli("submit", folder / "spec")

    def end():
        job = service.get("/v1/jobs?limit=1")["items"][0]["id"]
        done = service.wait_state(job, ("succeeded", "failed", "cancelled"), SECONDS)
        if done["state"] != "succeeded":
            raise RuntimeError(json.dumps(done, indent=1))
    return measure_one(folder, begin, end)


def measure(table, options, daemon):
    program = python()
    if not program:
        print("frameworks: SKIPPED: no torch 2 (deploy/install-frameworks torch, or LOCKSTEP_TORCH_PYTHON)")
        return
    runs = {"lockstep": [], "torchrun": []}
    with daemon() as service:
        for _ in range(options.rounds):
            for name, run in (("lockstep", lambda to: by_lockstep(program, to, service)),
                              ("torchrun", lambda to: by_torchrun(program, to))):
                with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
                    try:
                        runs[name].append(run(pathlib.Path(folder)))
                    except RuntimeError as error:
                        runs[name].append(None)
                        table.note(f"frameworks: a round of {name} does not count: {error}")
    both = [pair for pair in zip(*runs.values()) if None not in pair]
    if not both:
        raise SystemExit("frameworks: nothing to compare")
    ours, peers = zip(*both)
    version = subprocess.run([program, "-W", "ignore", "-c", "import torch; print(torch.__version__)"], capture_output=True,
                             text=True, check=True).stdout.strip()
    table.note(f"frameworks: torch {version}, {RANKS} ranks, {os.cpu_count()} cores; load average at the end "
               f"{os.getloadavg()[0]:.2f}")
    for key, what in (("start", "Enter to the first step of all ranks"), ("again", "kill of a rank to the next step of all")):
        table.add(f"{what}: lockstep", [run[key] for run in ours], "s", higher_is_better=False)
        table.add("  torchrun", [run[key] for run in peers], "s", higher_is_better=False)
        table.add("  torchrun / lockstep", [b[key] / a[key] for a, b in zip(ours, peers)], "×")
    for span in SPANS:
        table.add(f"  of it {span}: lockstep", [run[span] for run in ours], "s", higher_is_better=False)
        table.add("    torchrun", [run[span] for run in peers], "s", higher_is_better=False)
