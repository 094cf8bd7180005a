"""What a process costs while a load runs against it: processor time and memory from /proc, scrapes."""

import contextlib
import http.client
import os
import pathlib
import re
import subprocess
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
SCRAPE_EVERY = 0.5
IDLE_SCRAPES = 20
IDLE = 0.15  # of a core: what a server that is not asked anything may still take
SCRAPE_TIMEOUT = 30


def cpu_seconds(pid):
    """User and system time of all its threads, those that have ended too."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory_mib(pid, key):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+)", text).group(1)) / 1024


def percentile(values, share):
    """Nearest rank; of few values p99 is the largest. 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def per_minute(points):
    """Slope of the line through (seconds, value) that fits best, per minute."""
    if len(points) < 3:
        return 0.0
    middle = sum(t for t, _ in points) / len(points)
    spread = sum((t - middle) ** 2 for t, _ in points)
    return sum((t - middle) * value for t, value in points) / spread * 60


def get(host, port, path, headers=None, timeout=120):
    """(ms until the whole body was there, body) over a connection of its own."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    began = time.monotonic()
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    took = (time.monotonic() - began) * 1000
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"GET {path}: {answer.status} {body[:500]}")
    return took, body


class Repeated(threading.Thread):
    """Calls `work` every `seconds` until stop(); what it raised is raised there."""

    def __init__(self, work, seconds):
        super().__init__(daemon=True)
        self.work, self.seconds = work, seconds
        self.over = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.over.is_set():
                began = time.monotonic()
                self.work()
                self.over.wait(max(0.0, self.seconds - (time.monotonic() - began)))
        except Exception as error:  # told by stop(), in the thread that can do something about it
            self.error = error

    def stop(self):
        self.over.set()
        if self.is_alive():
            self.join()
        if self.error:
            raise self.error


class Run:
    """What was seen of one load; index 0: by itself, 1: while /metrics is scraped."""

    def __init__(self, pid, host, port, headers=None):
        self.pid, self.target = pid, (host, port, "/metrics", headers)
        self.figures = {}
        self.marks = []  # (time, processor seconds of the server, of the generator)
        self.resident = []  # (time, MiB)
        self.resident_after = []  # of each part, MiB
        self.scrapes = []  # ms
        self.timed_out = 0
        self.idle_scrapes = []
        self.body = b""

    def mark(self, generator):
        self.marks.append((time.monotonic(), cpu_seconds(self.pid), cpu_seconds(generator)))
        if len(self.marks) > 1:
            self.resident_after.append(memory_mib(self.pid, "VmRSS"))

    def look(self):
        self.resident.append((time.monotonic(), memory_mib(self.pid, "VmRSS")))

    def scrape(self):
        try:
            took, self.body = get(*self.target, SCRAPE_TIMEOUT)
            self.scrapes.append(took)
        except TimeoutError:
            self.timed_out += 1

    def scrape_idle(self, patience):
        """Once what the load has left to do is done; not at all if that takes longer than `patience` seconds."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            before, began = cpu_seconds(self.pid), time.monotonic()
            time.sleep(0.5)
            if (cpu_seconds(self.pid) - before) / (time.monotonic() - began) < IDLE:
                answers = [get(*self.target) for _ in range(IDLE_SCRAPES)]
                self.idle_scrapes, self.body = [took for took, _ in answers], answers[-1][1]
                return

    def cores(self, part, who=1):
        """Processor seconds per second of the server (1) or the generator (2)."""
        before, after = self.marks[part], self.marks[part + 1]
        return (after[who] - before[who]) / max(after[0] - before[0], 0.001)

    def growth(self):
        """MiB per minute in the second half of the first part."""
        begin, end = self.marks[0][0], self.marks[1][0]
        return per_minute([(t, mib) for t, mib in self.resident if (begin + end) / 2 <= t <= end])

    def series(self):
        return sum(1 for line in self.body.split(b"\n") if line and not line.startswith(b"#"))

    def add_scrapes(self, table):
        table.add(f"  /metrics of {self.series():,} series, {len(self.body) / 2**20:.1f} MiB, twice a second under "
                  f"load: p50 of {len(self.scrapes)}", [percentile(self.scrapes, 0.5)], "ms")
        table.add("    p99", [percentile(self.scrapes, 0.99)], "ms")
        if self.timed_out:
            table.add(f"    not answered in {SCRAPE_TIMEOUT} s", [self.timed_out], "scrapes")
        table.add("    the server meanwhile, all threads", [self.cores(1)], "cores")
        if self.idle_scrapes:
            table.add(f"    idle: p50 of {len(self.idle_scrapes)}", [percentile(self.idle_scrapes, 0.5)], "ms")
            table.add("    idle: p99", [percentile(self.idle_scrapes, 0.99)], "ms")
        else:
            table.note("/metrics: no idle rows: the server went on working long after the load")


@contextlib.contextmanager
def under_load(command, run, patience=10):
    """Runs a generator to the end of its load. It stays until the block ends, with what it has connected.
    `patience`: for scrape_idle(); lockstepd shows a rank for 30 s after its last report."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    watch, scraper = Repeated(run.look, 1), Repeated(run.scrape, SCRAPE_EVERY)
    done = False
    try:
        for line in process.stdout:
            name, value, _ = line.split()
            if name in ("begin", "scraped", "end"):
                run.mark(process.pid)
            else:
                run.figures[name] = float(value)
            if name == "begin":
                watch.start()
            elif name == "scraped":
                scraper.start()
            elif name == "end":
                scraper.stop()
                watch.stop()
                run.scrape_idle(patience)
            elif name == "done":
                done = True
                break
        if not done:
            raise SystemExit(f"{pathlib.Path(command[0]).name} ended early")
        yield process
    finally:
        watch.over.set()
        scraper.over.set()
        process.kill()
        process.wait()
