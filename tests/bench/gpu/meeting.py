"""How soon eight ranks have met by NCCL, the first all-reduce included: with Lockstep's ids, and with torch's init_process_group, in
turns. Of both from the moment when the last rank's program is ready (libraries loaded, torch imported; nothing done yet on the
GPU) to the moment when the last rank has the sum."""

import contextlib
import json
import pathlib
import re
import subprocess
import tempfile

import harness
import peers

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 90
RANKS = 8
RATIO = f"NCCL init of {RANKS} ranks and the first all-reduce: torch's time ÷ ours"
FIGURES = ((RATIO, "≥", 1),)
MOMENTS = re.compile(r"moments: began ([\d.]+) joined ([\d.]+) summed ([\d.]+)")


def spans(texts):
    """{"joined", "summed": seconds from when the last rank was ready to when the last one had come so far}."""
    moments = [MOMENTS.search(text) for text in texts]
    if not all(moments):
        raise RuntimeError("a rank has not met the others: " + texts[moments.index(None)].strip()[-300:])
    began, joined, summed = (max(float(one[number]) for one in moments) for number in (1, 2, 3))
    return {"joined": joined - began, "summed": summed - began}


def cancel(service, job):
    """One that has ended refuses. A lockstepd that is gone has been ended as this bench is, whose exception goes on."""
    with contextlib.suppress(harness.Unreachable):
        service.api("POST", f"/v1/jobs/{job}/cancel")


def run_ranks(found, service, ranks, *arguments, environment=None):
    """The log of each rank of a job of nccl_rank."""
    spec = harness.command_job("nccl", found.nccl_rank, *found.libraries(), *arguments, resources=found.resources(ranks),
                               environment={**found.variables(ranks), **(environment or {})})
    job = service.submit(spec)["id"]
    try:
        done = harness.wait_until(lambda: one if (one := service.job(job))["state"] in harness.FINAL else None,
                                  found.within(SECONDS), "nccl_rank has ended", patience=1)
    finally:
        cancel(service, job)
    logs = [service.rank_log(job, rank) for rank in range(ranks)]
    if done["state"] != "succeeded":
        raise RuntimeError(f"{done.get('cause', {}).get('message', done['state'])}; rank 0: {logs[0].strip()[-300:]}")
    if ("DOUBLE" in logs[0]) != found.rehearse:
        raise RuntimeError("the library is not the one that was meant: " + logs[0][:200])
    return job, logs


def ours(found, daemon):
    with daemon(*found.cores(RANKS)) as service:
        return spans(run_ranks(found, service, RANKS)[1])


def run_peer(found, ranks, *arguments):
    """What each of torch's ranks has printed."""
    started = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        port = harness.quiet_port()
        files = [folder / f"{rank}.log" for rank in range(ranks)]
        try:
            for rank, path in enumerate(files):
                with open(path, "wb") as log:
                    started.append(peers.launched(
                        [found.python, HERE / "meeting_peer.py", found.backend, *arguments], folder, log, RANK=str(rank),
                        LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                        GLOO_SOCKET_IFNAME="lo", **found.variables(ranks)))
            for one in started:
                one.wait(found.within(SECONDS))
        except subprocess.TimeoutExpired:
            raise RuntimeError("torch's ranks: not done in time: " + files[0].read_text(errors="replace")[-300:]) from None
        finally:
            peers.end(started, folder)
        return [path.read_text(errors="replace") for path in files]


def measure(figures, found, daemon):
    problem = None
    mine, theirs = [], []
    found.needs_nccl_rank(RANKS)
    for _ in range(found.rounds):
        mine.append(ours(found, daemon))
        try:
            found.needs_torch(RANKS)
            theirs.append(spans(run_peer(found, RANKS)))
        except Exception as error:  # ours counts without it
            problem = error
            break
    if theirs:
        figures.add(RATIO, [b["summed"] / a["summed"] for a, b in zip(mine, theirs)], "×")
    for name, rows in (("ours" + found.of_nccl(), mine), (f"torch's ({found.backend})", theirs)):
        if rows:
            figures.add(f"  {RANKS} ranks have met and summed: {name}", [one["summed"] for one in rows], "s")
            figures.add(f"    of it until init has returned: {name}", [one["joined"] for one in rows], "s")
    if problem:
        raise problem


def peer_numbers(text, key):
    """Of a line of JSON that meeting_peer.py prints."""
    return [row[key] for line in text.splitlines() if line.startswith("{") and key in (row := json.loads(line))]
