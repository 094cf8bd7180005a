"""The history part of tests/bench/run: telemetry of 10,000 ranks into a real lockstepd and out again.

Figures are of one run on one machine: the generator's processor time is printed beside lockstepd's, and the
rate is the one that was reached. Latencies count from the moment a batch was due.
"""

import json
import re
import struct
import urllib.parse

import simulated_job
import watching

GPU_SERIES = 20  # of a GPU, in a job of more than 1,024 (limits::kGpusShownInFull)
RANK_SERIES = 9
SERIES_WANTED = 200_000
QUESTIONS = 50
# Seconds: rows of the newest steps, and two rounds of chunks (a job's rows become some every 25 s at this rate).
FILLED = 180
HEATMAP_STEPS = 800  # 10,000 ranks × 800 steps are as many cells as one answer has


def address(service):
    url = urllib.parse.urlsplit(service.url)
    return url.hostname, url.port


def authorization(service):
    return {"Authorization": f"Bearer {service.token}"}


def ask(service, path):
    """(ms, body) of a GET."""
    return watching.get(*address(service), path, authorization(service))


def add_question(table, what, service, path, count=QUESTIONS, target=""):
    """Rows of p50 and p99; the last answer."""
    asked = [ask(service, path) for _ in range(count)]
    times = [took for took, _ in asked]
    table.add(f"  {what}, {len(asked[-1][1]) / 1024:,.0f} KiB: p50 of {count}", times, "ms")
    table.add("    p99", [watching.percentile(times, 0.99)], "ms", target, higher_is_better=False)
    return asked[-1][1]


# Looks at GPUs that were not their node's turn are left out on purpose.
NOT_BY_DESIGN = r'\{reason="(?!rate_limited)[^"]*"\}'


def gauge(service, name, labels=r"(?:\{[^}]*\})?"):
    """The sum over all children of a metric, or over those with these labels."""
    text = ask(service, "/metrics")[1].decode()
    return sum(float(value) for value in re.findall(rf"^{name}{labels} (\S+)$", text, re.M))


def heatmap(service, job, metric, first, last):
    """(rows, columns, ranks per row, steps per column, cells)."""
    _, data = ask(service, f"/v1/jobs/{job}/heatmap?metric={metric}&from={first}&to={last}&columns={last - first + 1}")
    magic, rows, columns, _, height, _, width = struct.unpack_from("<4s4xIIIIqq", data)
    if magic != b"LSH1" or len(data) != 56 + rows * columns:
        raise SystemExit(f"not a heatmap: {data[:56]!r}")
    return rows, columns, height, width, data[56:]


def count_stored(service, job, metrics, ranks, steps):
    """How many samples can be asked for: a cell per rank and step, of every metric."""
    found = 0
    for metric in metrics:
        for first in range(0, steps, HEATMAP_STEPS):
            last = min(first + HEATMAP_STEPS, steps) - 1
            rows, columns, height, width, cells = heatmap(service, job, metric, first, last)
            if (rows, columns, height, width) != (ranks, last - first + 1, 1, 1):
                print(f"history: heatmap of {metric} is {rows} × {columns} of {height} ranks and {width} steps")
                continue  # none of these counts as found
            found += len(cells) - cells.count(0)
    return found


def count_wrong(service, job, figures):
    """(compared, different) of the values that the generator named."""
    wanted = {name: value for name, value in figures.items() if name.startswith("value/")}
    wrong = 0
    for name, value in wanted.items():
        _, rank, metric, step = name.split("/")
        _, body = ask(service, f"/v1/jobs/{job}/series?metric={metric}&ranks={rank}&from={step}&to={step}")
        points = [item["points"] for item in json.loads(body)["series"]]
        wrong += points != [[[int(step), value, value, value]]]
    return len(wanted), wrong


def disk_mib(service):
    """(database, WAL)."""
    sizes = [(service.data / name).stat().st_size if (service.data / name).exists() else 0
             for name in ("lockstep.db", "lockstep.db-wal")]
    return [size / 2**20 for size in sizes]


def measure(table, daemon, program, seconds, nodes=1250, ranks=8, metrics=20):
    """Returns (samples/s, cores) of the first part."""
    scraped = max(1, min(30, seconds // 2))
    gpu_nodes = min(nodes, max(0, -(-(SERIES_WANTED - nodes * ranks * RANK_SERIES) // (8 * GPU_SERIES))))
    with simulated_job.waiting_job(daemon, nodes, ranks) as (service, job, ticket):
        run = watching.Run(service.process.pid, *address(service), authorization(service))
        command = [program, "steady", service.url, ticket, *map(str, (nodes, ranks, metrics, seconds, scraped,
                                                                      gpu_nodes))]
        with watching.under_load(command, run):
            peak = watching.memory_mib(service.process.pid, "VmHWM")
            add_ingest(table, run, seconds, nodes * ranks, metrics, peak)
            add_stored(table, service, job, run, (seconds + scraped) * nodes * ranks * metrics)
            add_checks(table, service, job, run, ranks * nodes, seconds + scraped)
            run.add_scrapes(table)
            add_rendering(table, service)
            few = min(256, nodes * ranks)  # as many as one answer has
            for what, path in (("series of 1 rank", "series?metric=loss&ranks=7"),
                               (f"series of {few} ranks", f"series?metric=loss&ranks=0-{few - 1}"),
                               (f"heatmap of {nodes * ranks:,} ranks", "heatmap?metric=busy_seconds")):
                add_question(table, what, service, f"/v1/jobs/{job}/{path}")
            if run.figures["broken"]:
                table.note(f"history: {run.figures['broken']:.0f} connections broke\n{service.log_tail()}")
    return run.figures["rate"], run.cores(0)


def add_ingest(table, run, seconds, ranks, metrics, peak):
    due = ranks * metrics
    figures = run.figures
    table.add(f"history, {ranks:,} ranks × {metrics} metrics at 1 Hz for {seconds} s: acknowledged", [figures["rate"]],
              "samples/s", 0.99 * due)
    table.add("  lockstepd, all threads", [run.cores(0)], "cores", 1, higher_is_better=False)
    table.add("  the load generator", [run.cores(0, 2)], "cores")
    table.add("  the generator was late by, p99", [figures["late_p99"]], "ms")
    table.add("  due to acknowledged, p50", [figures["ack_p50"]], "ms")
    table.add("    p99", [figures["ack_p99"]], "ms")
    table.add("    p99 while /metrics is scraped", [figures["scraped_ack_p99"]], "ms")
    if figures["late_p99"] > 1000 or figures["sent"] < 0.99 * due * seconds:
        table.note(f"history: the generator could NOT keep its rate (late by up to {figures['late_most']:,.0f} ms): "
                   f"what was measured is {figures['rate']:,.0f} samples/s, not {due:,}")
    table.add(f"  resident after {seconds} s", [run.resident_after[0]], "MiB", 300, higher_is_better=False)
    filling = ", in which memory still fills: ask for 300 s" if seconds < FILLED else ""
    table.add(f"    growth in the second half{filling}", [run.growth()], "MiB/min")
    table.add("    most, the scraped part included", [peak], "MiB")


def add_stored(table, service, job, run, due):
    sent = run.figures["sent"] + run.figures["scraped_sent"]
    acknowledged = run.figures["acknowledged"] + run.figures["scraped_acknowledged"]
    table.add("  samples sent, the scraped part included", [sent], "samples", due)
    table.add("    not acknowledged", [sent - acknowledged], "samples", 0, False)
    table.add("    not in lockstepd's count", [sent - gauge(service, "lockstep_ingest_samples_total")], "samples", 0,
              False)
    table.add("    dropped, by lockstepd's count", [gauge(service, "lockstep_ingest_dropped_samples_total", NOT_BY_DESIGN)], "samples",
              0, False)
    database, wal = disk_mib(service)
    table.add("  on disk: database + WAL", [(database + wal) * 2**20 / max(sent, 1)], "bytes/sample")
    table.add("    database", [database], "MiB")
    table.add("    WAL", [wal], "MiB")
    packed = gauge(service, "lockstep_store_samples", r'\{tier="disk"\}')
    if packed:
        table.add(f"    chunks, of {packed:,.0f} samples",
                  [gauge(service, "lockstep_store_bytes", r'\{tier="disk"\}') / packed], "bytes/sample")


def add_checks(table, service, job, run, ranks, steps):
    names = [name.removeprefix("metric/") for name in run.figures if name.startswith("metric/")]
    sent = run.figures["sent"] + run.figures["scraped_sent"]
    found = count_stored(service, job, names, ranks, steps)
    table.add(f"  found again, asking for every rank and step of {len(names)} metrics", [found], "samples", sent)
    compared, wrong = count_wrong(service, job, run.figures)
    table.add(f"    of {compared} at random, other than sent", [wrong], "samples", 0, False)


def add_rendering(table, service):
    total = gauge(service, "lockstep_exposition_duration_seconds_sum", r"(?:\{[^}]*\})?")
    count = gauge(service, "lockstep_exposition_duration_seconds_count", r"(?:\{[^}]*\})?")
    table.add("    of which making the body, mean by lockstepd's count", [total / max(count, 1) * 1000], "ms")
