#!/usr/bin/env python3
"""What answering costs lockstepd: processor time a request, of several builds in turns.

    tests/bench/answers.py BEFORE/bin AFTER/bin … [--rounds 7] [--seconds 2] [--only health,job,openapi,metrics,events]

health and job: small answers. openapi: a large one. metrics: 10,000 ranks, in pieces; needs bench_history
(`cmake -DLOCKSTEP_BENCH=ON`) in the first folder. events: an event to each of 100 streams. wrk is needed. Each round
starts a daemon of each build, one after the other. The load generator has the same cores, but what it takes is not counted.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import re
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tests/support", "tests/bench/telemetry"):
    sys.path.insert(0, str(SOURCE / folder))

import harness  # noqa: E402
import history_queries  # noqa: E402

STREAMS = 100
SUBMISSIONS = 100


@contextlib.contextmanager
def daemon(programs, *arguments):
    root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
    harness.BIN = programs
    service = harness.Daemon(root, "--log-level", "warn", *arguments)
    try:
        yield service.start(seconds=120)
    finally:
        service.clean_up()
        shutil.rmtree(root, ignore_errors=True)


def cpu_us(service):
    """Of all its threads so far; CLOCK_PROCESS_CPUTIME_ID of another process (clock_getcpuclockid(3))."""
    return time.clock_gettime((~service.process.pid << 3) | 2) * 1e6


def requests(service, path, seconds, connections):
    """µs of lockstepd's processor time a request."""
    def load(duration):
        out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{duration}s", "-H",
                              f"Authorization: Bearer {service.token}", service.url + path],
                             capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in out or re.search(r"connect [1-9]|read [1-9]|write [1-9]", out):
            raise SystemExit(f"{path}: {out}")
        return int(re.search(r"(\d+) requests in", out).group(1))

    load(1)
    began = cpu_us(service)
    done = load(seconds)
    return (cpu_us(service) - began) / done


def job_of(service):
    job = service.submit({"name": "bench", "framework": "command", "command": ["/bin/true"]})["id"]
    service.wait_state(job, "succeeded")
    return job


def health(options, programs):
    with daemon(programs) as service:
        return requests(service, "/healthz", options.seconds, 64)


def job(options, programs):
    with daemon(programs) as service:
        return requests(service, f"/v1/jobs/{job_of(service)}", options.seconds, 64)


def openapi(options, programs):
    with daemon(programs) as service:
        return requests(service, "/openapi.json", options.seconds, 16)


def metrics(options, programs):
    with history_queries.filled_job(functools.partial(daemon, programs), options.programs[0] / "bench_history",
                                    1250, 8, 4) as (service, _, _):
        return requests(service, "/metrics", options.seconds, 1)


class Readers(threading.Thread):
    """Counts the bytes that come on all connections, until there have been none for a while."""

    def __init__(self, sockets):
        super().__init__(daemon=True)
        self.bytes, self.chooser = 0, selectors.DefaultSelector()
        for each in sockets:
            self.chooser.register(each, selectors.EVENT_READ)

    def run(self):
        while ready := self.chooser.select(timeout=1):
            for key, _ in ready:
                self.bytes += len(key.fileobj.recv(1 << 20))


def events(options, programs):
    """µs an event and stream. The submissions themselves are in it, for both."""
    spec = {"name": "bench", "framework": "command", "command": ["/bin/sleep", "600"],
            "resources": {"memory_mb_per_node": 1000}}
    with daemon(programs, "--local-memory-mb", "1000", "--user-jobs", "0", "--user-submissions", "0") as service:
        service.wait_state(service.submit(spec)["id"], "running")
        streams = [service.stream("/v1/events?topics=jobs") for _ in range(STREAMS)]
        readers = Readers([stream.answer.fp.raw._sock for stream in streams])
        readers.start()
        began = cpu_us(service)
        for _ in range(SUBMISSIONS):
            service.submit(spec)
        readers.join()
        if readers.bytes < STREAMS * SUBMISSIONS * 100:
            raise SystemExit(f"events: only {readers.bytes} bytes came")
        return (cpu_us(service) - began) / STREAMS / SUBMISSIONS


def main():
    kinds = {work.__name__: work for work in (health, job, openapi, metrics, events)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, nargs="+")
    parser.add_argument("--only", default=",".join(kinds))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    options.programs = [folder.resolve() for folder in options.programs]
    print(f"load average {os.getloadavg()[0]:.2f}; µs of lockstepd's processor time: median (lowest … highest) of each "
          "build × median of its ratio to the first")
    for name in options.only.split(","):
        rounds = [[kinds[name](options, programs) for programs in options.programs] for _ in range(options.rounds)]
        print(f"{name:8}" + "".join(
            f"  {statistics.median(side):,.2f} ({min(side):,.2f} … {max(side):,.2f}) "
            f"× {statistics.median(b / each[0] for b, each in zip(side, rounds)):.3f}" for side in zip(*rounds)), flush=True)


if __name__ == "__main__":
    main()
