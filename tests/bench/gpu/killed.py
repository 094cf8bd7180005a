"""One of four ranks that NCCL joins is killed: how soon the next optimizer step of all is done, in five spans.

detect    until the launcher knows: Lockstep's event of the rank's end, torchrun's first line about it
stop      until the last of the old ranks is gone
meet      until the new ranks have been started, have imported torch and have met (of the native trainer: until all are started)
init      until NCCL has joined them, its first all-reduce included (of the native trainer: until rank 0, which it has joined, has read
          the checkpoint; LibTorch's start is in it)
reload    until each has the checkpoint again and has made its first step

Lockstep: the native trainer, and a DDP script cold and with warm standbys; torchrun --max-restarts with the same script. torchrun is
given BOUND seconds to come back; if it does not, that is what its row says."""

import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import tempfile
import time

import frameworks
import harness
import meeting
import peers

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 150
BOUND = 45
RANKS = 4
VICTIM = 2
SPANS = ("detect", "stop", "meet", "init", "reload")
CHECKPOINT = "checkpoint.pt"
AGAIN = f"kill of 1 of {RANKS} ranks to the next step of all: "
NATIVE, SCRIPT, WARM = "native trainer", "DDP script", "DDP script, warm standbys"
RATIO = AGAIN + "torchrun's time ÷ a DDP script's under Lockstep"
# Seconds; a script's import of torch is its own.
COLD = AGAIN + SCRIPT + ", without the import of torch"
FIGURES = ((RATIO, "≥", 1), (AGAIN + NATIVE, "≤", 2), (COLD, "≤", 1), (AGAIN + WARM, "≤", 3))
# torchrun's own words, a second's fraction in them: E1129 09:13:24.123000 12345 torch/…
RESUMED = re.compile(r"^ts=(\S+) .*msg=\"?resumed", re.MULTILINE)
STAMP = re.compile(r"^[EWI](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+) .*(?:failed \(exitcode: -9\)|closing signal)", re.MULTILINE)


class TooLate(RuntimeError):
    """They have not gone on within the bound."""


class GaveUp(RuntimeError):
    """The launcher has. That is no time, so there is no ratio of it."""


def until(ask, seconds, what):
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.002)
    return answer


def starts(folder):
    """[{rank: moments of it}] of each time that all ranks have made a step."""
    by_round = {}
    for path in folder.glob("*.json"):
        with contextlib.suppress(ValueError):  # it is being written
            one = json.loads(path.read_text(encoding="utf-8"))
            by_round.setdefault(one["round"], {})[one["rank"]] = one
    return [ranks for _, ranks in sorted(by_round.items()) if len(ranks) == RANKS]


def kill_one(found, folder, ready, detected, ended=lambda: False):
    """{span: seconds}, of a script that runs in `folder`; `detected`: the moment when its launcher knew, None if it does not
    say; `ended`: whether the launcher has."""
    def started_again():
        if ended():
            raise GaveUp(f"its launcher ended {time.time() - killed:.0f} s after the kill, and nobody has gone on")
        return starts(folder)[1:]
    first = until(lambda: starts(folder), found.within(90), "the first step of all ranks")[0]
    until(lambda: (folder / CHECKPOINT).exists() and ready(), found.within(60), "a checkpoint, and whoever is to wait")
    killed = time.time()
    os.kill(first[VICTIM]["pid"], signal.SIGKILL)
    bound = found.within(BOUND)
    try:
        until(lambda: all(frameworks.gone(one["pid"]) for one in first.values()), bound, "the old ranks are gone")
        gone = time.time()
        again = until(started_again, max(1, killed + bound - gone), "the next step of all ranks")[0]
    except GaveUp:
        raise
    except RuntimeError as error:
        raise TooLate(f"{time.time() - killed:.0f} s after the kill, of {bound:.0f}: {error}") from None
    if any(one["step"] < killed or one["resumed"] < 1 for one in again.values()):
        raise RuntimeError("it did not begin again from the checkpoint")
    known = detected(killed)
    last = {name: max(one[name] for one in again.values()) for name in ("begin", "imported", "met", "joined", "step")}
    moments = [killed, min(max(known, killed), gone) if known else gone, gone, last["met"], last["joined"], last["step"]]
    out = {span: after - before for span, before, after in zip(SPANS, moments, moments[1:])}
    if not known:
        out["detect"] = None
    return {**out, "again": last["step"] - killed,
            # A warm standby has imported it long before.
            "import": max(max(0.0, one["imported"] - max(one["begin"], killed)) for one in again.values())}


def end_time(service, job, killed):
    """When the agent noticed the end of the killed rank."""
    at = [one["data"]["at"] / 1000 for one in service.events(job) if one["kind"] == "rank_exited" and one["rank"] == VICTIM]
    return min((one for one in at if one > killed - 0.01), default=None)


def torchrun_time(text, killed):
    year = time.localtime(killed).tm_year
    for month, day, hour, minute, second, part in STAMP.findall(text):
        at = time.mktime((year, int(month), int(day), int(hour), int(minute), int(second), 0, 0, -1)) + float("0." + part)
        if at > killed - 0.01:
            return at
    return None


def of_script(found, folder, service, warm=False):
    spec = {"name": "bench", "framework": "pytorch", "resources": found.resources(RANKS), "capture": {"preset": "none"},
            "environment": found.variables(RANKS) | {"PYTHONPATH": str(HERE.parent)},
            "recovery": {"max_restarts": 3, **({"warm_standby": ["torch", "torch.distributed"]} if warm else {})},
            "command": [found.python, str(HERE / "killed_script.py"), str(folder), found.backend]}
    job = service.submit(spec)["id"]

    def ready():
        return not warm or len(harness.waiting_standbys(str(folder))) == RANKS
    try:
        return kill_one(found, folder, ready, lambda killed: end_time(service, job, killed))
    except RuntimeError as error:
        raise type(error)(f"{error}; {service.rank_log(job, 0).strip()[-300:]}") from None
    finally:
        cancel(service, job)


def cancel(service, job):
    meeting.cancel(service, job)
    with contextlib.suppress(harness.Unreachable):
        harness.wait_until(lambda: service.job(job)["state"] in harness.FINAL, 30, "the job has ended")


def of_torchrun(found, folder, _service):
    started = []
    try:
        with open(folder / "log", "wb") as log:
            started.append(peers.launched(
                [found.python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=3",
                 HERE / "killed_script.py", folder, found.backend], folder, log, PYTHONPATH=str(HERE.parent),
                **found.variables(RANKS)))
        return kill_one(found, folder, lambda: True,
                        lambda killed: torchrun_time((folder / "log").read_text(errors="replace"), killed),
                        lambda: started[0].poll() is not None)
    except RuntimeError as error:
        lines = (folder / "log").read_text(errors="replace").strip().splitlines()
        words = [line for line in lines if re.search(r"Error: \S", line)] or lines
        raise type(error)(f"{error}; it said last: {' '.join(words[-1:])[:300]}") from None
    finally:
        (folder / "stop").touch()
        peers.end(started, folder)


def of_native(found, _folder, service):
    train = {"model": "mnist_convnet", "train_samples": 6400, "test_samples": 200, "batch_size": 32, "epochs": 9999,
             "checkpoint_every_steps": 20, "max_steps": 1_000_000, "loader_workers": 0, "devices": "cpu" if found.rehearse else "gpu"}
    job = service.submit({"name": "bench", "framework": "native", "resources": found.resources(RANKS), "train": train,
                          "environment": found.variables(RANKS), "recovery": {"max_restarts": 3}})["id"]

    def steps(after):
        """The first step of each rank after that moment; nothing while one has none."""
        first = [next((point[0] for point in points if point[0] > after), None)
                 for points in service.series(job, x="time").values()]
        return first if len(first) == RANKS and all(first) else None
    try:
        until(lambda: service.job(job).get("step", 0) > 60, found.within(90), "60 steps")
        pids = [one["pid"] for one in service.get(f"/v1/jobs/{job}/ranks")["items"]]
        killed = time.time()
        os.kill(pids[VICTIM], signal.SIGKILL)
        until(lambda: all(map(frameworks.gone, pids)), found.within(BOUND), "the old ranks are gone")
        gone = time.time()
        until(lambda: sum(one["kind"] == "ranks_started" for one in service.events(job)) > 1, found.within(BOUND), "ranks again")
        started = service.job(job)["attempts"][0]["generations"][1]["running_at"]
        step = max(until(lambda: steps(gone), found.within(BOUND), "the next step of all ranks"))
        known = end_time(service, job, killed) or gone
        resumed = [of_iso(one) for one in RESUMED.findall(service.rank_log(job, 0))]
        if not resumed or resumed[-1] < killed:
            raise RuntimeError("it did not begin again from the checkpoint")
        moments = [killed, min(max(known, killed), gone), gone, max(gone, of_iso(started)), resumed[-1], step]
        return {**{span: after - before for span, before, after in zip(SPANS, moments, moments[1:])}, "again": step - killed}
    except RuntimeError as error:
        raise type(error)(f"{error}; {service.rank_log(job, 0).strip()[-300:]}") from None
    finally:
        cancel(service, job)


def of_iso(text):
    return datetime.datetime.fromisoformat(text).timestamp()


WAYS = {NATIVE: of_native, SCRIPT: of_script, WARM: lambda *given: of_script(*given, warm=True), "torchrun": of_torchrun}


def measure(figures, found, daemon):
    runs, problems = {name: [] for name in WAYS}, {}
    with daemon(*found.cores(RANKS)) as service:
        for _ in range(found.rounds):
            for name, way in WAYS.items():
                if name in problems:
                    continue
                with tempfile.TemporaryDirectory(prefix="lockstep-bench-", ignore_cleanup_errors=True) as folder:
                    try:
                        found.needs_trainer(RANKS) if name == NATIVE else found.needs_torch(RANKS)
                        runs[name].append(way(found, pathlib.Path(folder), service))
                    except Exception as error:  # the others count without it
                        problems[name] = error
                        figures.note(f"kill: {name}: {str(error).strip()[-400:]}")
    tell(figures, runs, problems)


def tell(figures, runs, problems):
    cold = [run["again"] for run in runs[SCRIPT]]
    if cold and runs["torchrun"]:
        figures.add(RATIO, [b["again"] / a for a, b in zip(cold, runs["torchrun"])], "×")
    elif cold and isinstance(problems.get("torchrun"), TooLate):
        # A lower bound: it was not waited for longer.
        bound = BOUND * figures.setup.patience
        figures.note(f"kill: torchrun did not come back: the ratio counts {bound} s for it and is a lower bound")
        figures.add(RATIO, [bound / statistics.median(cold)], "×")
    for name, all_of_it in runs.items():
        reason = str(problems.get(name, "no round of it counts")).strip()[-300:]
        if not all_of_it:
            for figure in {NATIVE: (AGAIN + NATIVE,), SCRIPT: (COLD, RATIO), WARM: (AGAIN + WARM,), "torchrun": (RATIO,)}[name]:
                figures.skip(figure, reason)
            continue
        figures.add(AGAIN + name, [run["again"] for run in all_of_it], "s")
        if name == SCRIPT:
            figures.add(COLD, [run["again"] - run["import"] for run in all_of_it], "s")
        for span in SPANS:
            values = [run[span] for run in all_of_it if run[span] is not None]
            if values:
                figures.add(f"    {span}: {name}", values, "s")
