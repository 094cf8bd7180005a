"""What it costs to draw a metric of a million points 800 columns wide: out of memory, and from what is on disk."""

import contextlib
import json
import os
import subprocess

import history
import simulated_job
import watching

COLUMNS = 800
SPIKE = 1000.0  # bench_history's
QUESTIONS = 100
# The most reports of a rank that memory keeps one by one in a job of so many ranks: 64 MiB of 304 bytes each.
MEMORY_NODES, MEMORY_RANKS, MEMORY_STEPS = 7, 8, 3900


@contextlib.contextmanager
def filled_job(daemon, program, nodes, ranks, steps):
    """(daemon, job, end) of a running job with `steps` losses of every rank. end() ends its ranks well."""
    with simulated_job.waiting_job(daemon, nodes, ranks) as (service, job, ticket):
        process = subprocess.Popen([program, "fill", service.url, ticket, str(nodes), str(ranks), str(steps)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def end():
            process.stdin.write("end\n")
            process.stdin.flush()
            service.wait_state(job, "succeeded", seconds=60)

        try:
            if not any(line.startswith("done") for line in process.stdout):
                raise SystemExit(f"history: the job was not filled\n{service.log_tail()}")
            stored = history.gauge(service, "lockstep_ingest_samples_total")
            if stored != nodes * ranks * steps:
                raise SystemExit(f"history: {stored:,.0f} of {nodes * ranks * steps:,} losses were stored")
            yield service, job, end
        finally:
            process.kill()
            process.wait()


def path_of(job, ranks):
    return f"/v1/jobs/{job}/series?metric=loss&points={COLUMNS}&ranks={ranks}"


def check(body, ranks):
    """One line per rank, no wider than asked, and the one spike of each is in it."""
    series = json.loads(body)["series"]
    tops = [[point[2] for point in item["points"] if point[2] == SPIKE] for item in series]
    if len(series) != ranks or any(len(item["points"]) > COLUMNS for item in series) or tops != [[SPIKE]] * ranks:
        raise SystemExit(f"history: wrong answer: {len(series)} lines of {len(series[0]['points'])} points, "
                         f"spikes {tops}")


def forget_pages(folder):
    """What the kernel has of these files in memory, as far as it is on disk."""
    for path in folder.glob("lockstep.db*"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(table, daemon, program, points, rounds):
    ranks = MEMORY_NODES * MEMORY_RANKS
    steps = min(MEMORY_STEPS, points // ranks)
    with filled_job(daemon, program, MEMORY_NODES, MEMORY_RANKS, steps) as (service, job, _):
        check(history.add_question(table, f"series of {ranks * steps:,} points, {ranks} ranks × {steps:,} steps from "
                                   f"memory, {COLUMNS} columns each", service, path_of(job, f"0-{ranks - 1}"),
                                   QUESTIONS), ranks)
        check(history.add_question(table, f"series of {steps:,} points, 1 rank, from memory, {COLUMNS} columns", service,
                                   path_of(job, "0"), QUESTIONS), 1)
    with filled_job(daemon, program, 1, 1, points) as (service, job, end):
        path = path_of(job, "0")
        what = f"series of {points:,} points, 1 rank, {COLUMNS} columns"
        check(history.add_question(table, f"{what}, the job runs", service, path, QUESTIONS, 20), 1)
        end()
        cold = []
        for _ in range(rounds):
            service.stop()
            forget_pages(service.data)
            service.start(seconds=120)
            took, body = history.ask(service, path)
            check(body, 1)
            cold.append(took)
        table.add(f"  {what}, finished, from chunks: the first after a restart, pages forgotten", cold, "ms", 20,
                  higher_is_better=False)
        table.add("    the slowest of these", [watching.percentile(cold, 1)], "ms")
        check(history.add_question(table, f"{what}, finished, from chunks, warm", service, path, QUESTIONS, 20), 1)
