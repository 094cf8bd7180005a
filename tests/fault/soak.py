"""Hours of a lockstepd at work: does its memory, its descriptors or its answers' time grow?

Two daemons, each with its own matter. "ranks" has one job of thousands of simulated ranks that report every second
(tests/bench/telemetry/bench_history), is scraped, asked for series and heatmaps, and its streams are opened and left.
"churn" has the local scheduler, on which real jobs succeed, fail, are restarted or cancelled, one after the other, and are
removed once they have ended: what it knows must not grow. Tokens come and go, jobs that wait are cancelled, bad requests
are refused, at both.

Slopes are least squares over the medians of blocks of a few minutes, after the warm-up; beside each is its standard
error, without which the slope of an hour says little.
"""

import contextlib
import http.client
import itertools
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import harness

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(SOURCE / "tests/bench/telemetry"))
import simulated_job  # noqa: E402
import watching  # noqa: E402

BOUND = 1.0  # MiB an hour
BLOCKS = 12  # at least, of the time after the warm-up
BLOCK_MOST = 300  # seconds
DESCRIPTORS_MOST = 16  # more than at first
KEPT, MISSED, UNCLEAR = 0, 1, 2  # also the exit status
WORDS = {KEPT: "kept", MISSED: "missed", UNCLEAR: "not to be told in this time"}
STEADY = 60 * 60 * 24 * 30


def slope(points):
    """(change per hour, its standard error) of (seconds, value); (nan, inf) of fewer than three."""
    if len(points) < 3:
        return math.nan, math.inf
    middle = statistics.mean(t for t, _ in points)
    level = statistics.mean(value for _, value in points)
    spread = sum((t - middle) ** 2 for t, _ in points)
    per_second = sum((t - middle) * (value - level) for t, value in points) / spread
    rest = sum((value - level - per_second * (t - middle)) ** 2 for t, value in points)
    return per_second * 3600, math.sqrt(rest / (len(points) - 2) / spread) * 3600


def blocks(points, seconds):
    """The medians of blocks of so many seconds, each at the middle of its times."""
    out = []
    for _, group in itertools.groupby(points, key=lambda point: point[0] // seconds):
        found = list(group)
        out.append((statistics.mean(t for t, _ in found), statistics.median(value for _, value in found)))
    return out


class Watched:
    """A daemon, what it takes over time, and how long it takes to answer."""

    def __init__(self, name, daemon):
        self.name, self.daemon = name, daemon
        self.begun = time.monotonic()
        self.memory, self.descriptors, self.times = [], [], []
        self.failed = []

    def sample(self):
        pid = self.daemon.process.pid
        at = time.monotonic() - self.begun
        self.memory.append((at, watching.memory_mib(pid, "VmRSS")))
        self.descriptors.append((at, len(os.listdir(f"/proc/{pid}/fd"))))

    def ask(self):
        began = time.monotonic()
        self.expect(200, "GET", "/v1/jobs?limit=1")
        self.times.append((time.monotonic() - began) * 1000)

    def expect(self, status, method, path, body=None):
        """The answer's body."""
        found, answer = self.daemon.api(method, path, body)[:2]
        if found != status:
            raise AssertionError(f"{method} {path}: {found} {str(answer)[:300]}")
        return answer

    def remove(self, job):
        """Of a job that has ended; its agents may still be leaving."""
        def removed():
            status, answer = self.daemon.api("DELETE", f"/v1/jobs/{job}")[:2]
            if status not in (200, 503):
                raise AssertionError(f"DELETE of {job}: {status} {answer}")
            return status == 200
        harness.wait_until(removed, 30, f"{job} can be removed")

    def guarded(self, work):
        """What fails is noted, and the hours go on."""
        def guard():
            try:
                work()
            except Exception as error:  # whatever it is: hours are not thrown away for one answer
                self.failed.append(f"after {time.monotonic() - self.begun:.0f} s, {work.__name__}: {error!r}"[:600])
        return guard

    def come_and_go(self, after):
        """What a user does beside training: a token, a job that waits and is cancelled, a mistake, a stream."""
        token = self.expect(201, "POST", "/v1/tokens", {"name": "soak", "role": "viewer"})
        self.expect(204, "DELETE", f"/v1/tokens/{token['id']}")
        waiting = self.expect(201, "POST", "/v1/jobs", harness.command_job("waits", "/bin/true", after=[after]))["id"]
        self.expect(400, "POST", "/v1/jobs", {"name": "bad", "resources": {"nodes": -1}})
        with contextlib.closing(self.daemon.stream("/v1/events")) as stream:
            self.daemon.api("POST", f"/v1/jobs/{waiting}/cancel")
            next(iter(stream))
        self.daemon.wait_state(waiting, "cancelled")
        self.remove(waiting)

    def report(self, warm_up):
        """Prints its rows; the exit status that it asks for."""
        late = [point for point in self.memory if point[0] >= warm_up]
        if not late:
            print(f"{self.name}: nothing was measured after the warm-up; failed {len(self.failed)}: {self.failed[:3]}")
            return MISSED
        length = min(BLOCK_MOST, max(1.0, (late[-1][0] - warm_up) / BLOCKS))
        grows, error = slope(blocks(late, length))
        descriptors = [statistics.median(value for _, value in part)
                       for part in (self.descriptors[:len(self.descriptors) // 4 + 1], self.descriptors[-20:])]
        verdict = (KEPT if grows + 2 * error <= BOUND else MISSED if grows - 2 * error > BOUND else UNCLEAR)
        print(f"{self.name}: resident {late[0][1]:.1f} MiB after the warm-up of {warm_up / 60:.0f} min, {late[-1][1]:.1f} at "
              f"the end, most {max(value for _, value in self.memory):.1f}; {grows:+.2f} ± {error:.2f} MiB/h over "
              f"{(late[-1][0] - warm_up) / 3600:.2f} h (bound {BOUND:g}: {WORDS[verdict]})")
        print(f"  descriptors {descriptors[0]:.0f} at first, {descriptors[1]:.0f} at the end; an answer takes p50 "
              f"{watching.percentile(self.times, 0.5):.1f}, p99 {watching.percentile(self.times, 0.99):.1f} ms of "
              f"{len(self.times)}; failed {len(self.failed)}")
        for text in self.failed[:10]:
            print("  " + text)
        few = descriptors[1] <= descriptors[0] + DESCRIPTORS_MOST
        return verdict if few and not self.failed else MISSED


class Ranks(Watched):
    """The job of simulated ranks: what is asked of it while they report."""

    def __init__(self, daemon, job, ranks):
        super().__init__("ranks", daemon)
        self.job, self.ranks = job, ranks
        self.scraped = []

    def scrape(self):
        began = time.monotonic()
        self.daemon.text("/metrics")
        self.scraped.append((time.monotonic() - began) * 1000)

    def look(self):
        first = random.randrange(max(1, self.ranks - 16))
        self.expect(200, "GET", f"/v1/jobs/{self.job}/series?metric=loss&ranks={first}-{first + 7}")
        self.expect(200, "GET", f"/v1/jobs/{self.job}/ranks?limit=100")
        status = self.daemon.request("GET", f"/v1/jobs/{self.job}/heatmap?metric=busy_seconds&columns=400")[0]
        if status != 200:
            raise AssertionError(f"heatmap: {status}")
        self.come_and_go(self.job)


class Churn(Watched):
    """Real jobs on the local scheduler, each removed once it has ended."""

    ENDS = ("succeeds", "fails", "restarts", "is cancelled")

    def __init__(self, daemon):
        super().__init__("churn", daemon)
        self.ended = dict.fromkeys(self.ENDS, 0)
        self.turn = itertools.cycle(self.ENDS)
        self.holds = daemon.submit(harness.command_job("holds", "/bin/sleep", "100000000"))["id"]
        daemon.wait_state(self.holds, "running")

    def one(self):
        how = next(self.turn)
        script = {"succeeds": "echo loss=1; exit 0", "fails": "echo no; exit 3", "is cancelled": "exec sleep 100000",
                  "restarts": "test -e again || { touch again; exit 1; }"}[how]
        fields = {"recovery": {"max_restarts": 1}} if how == "restarts" else {}
        fields["resources"] = {"nodes": 2, "ranks_per_node": 2 if how != "restarts" else 1}
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            spec = harness.command_job("comes-and-goes", "/bin/sh", "-c", script, working_directory=folder, **fields)
            job = self.daemon.submit(spec)["id"]
            if how == "is cancelled":
                self.daemon.wait_state(job, "running")
                self.expect(200, "POST", f"/v1/jobs/{job}/cancel")
            wanted = {"fails": "failed", "is cancelled": "cancelled"}.get(how, "succeeded")
            self.daemon.wait_state(job, wanted)
            self.daemon.rank_log(job)
            self.remove(job)
        self.ended[how] += 1
        if self.ended[how] % 5 == 0:
            self.come_and_go(self.holds)

    def report(self, warm_up):
        status = super().report(warm_up)
        print("  jobs that came and went: " + ", ".join(f"{count} {how}" for how, count in self.ended.items()))
        return status if all(self.ended.values()) else MISSED


@contextlib.contextmanager
def new_daemon(*arguments):
    root = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    daemon = harness.Daemon(root, "--log-level", "warn", "--shared-account", *arguments)
    try:
        yield daemon.start(seconds=120)
    finally:
        daemon.clean_up()
        subprocess.run(["rm", "-rf", root], check=False)


@contextlib.contextmanager
def reporting(program, daemon, ticket, options):
    """The simulated agents, once all of them report."""
    process = subprocess.Popen([program, "steady", daemon.url, ticket, *map(str, (
        options.nodes, options.ranks, options.metrics, STEADY, 0, 0))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if line.startswith("begin "):
                break
        else:
            raise SystemExit("bench_history ended early")
        yield process
    finally:
        process.kill()
        process.wait()


def main(options):
    program = harness.BIN / "bench_history"
    if not program.exists():
        print(f"SKIPPED: {program} is not built (cmake -DLOCKSTEP_BENCH=ON)", file=sys.stderr)
        return 77
    with contextlib.ExitStack() as stack:
        service, job, ticket = stack.enter_context(simulated_job.waiting_job(new_daemon, options.nodes, options.ranks))
        agents = stack.enter_context(reporting(program, service, ticket, options))
        ranks = Ranks(service, job, options.nodes * options.ranks)
        churn = Churn(stack.enter_context(new_daemon("--local-cores", "64")))
        often = min(5, options.minutes)
        works = [watching.Repeated(watched.guarded(work), seconds) for watched, work, seconds in (
            (ranks, ranks.sample, often), (churn, churn.sample, often), (ranks, ranks.ask, 0.5), (churn, churn.ask, 0.5),
            (ranks, ranks.scrape, 15), (ranks, ranks.look, 20), (churn, churn.one, options.every))]
        return run(options, ranks, churn, works, agents)


def run(options, ranks, churn, works, agents):
    for work in works:
        work.start()
    begun = told = time.monotonic()
    while time.monotonic() - begun < options.minutes * 60 and all(work.is_alive() for work in works):
        if agents.poll() is not None:
            print("the simulated agents have ended")
            break
        works[0].over.wait(1)
        if time.monotonic() - told >= options.tell:
            told = time.monotonic()
            print(f"{(told - begun) / 60:6.1f} min  ranks {ranks.memory[-1][1]:.1f} MiB, churn {churn.memory[-1][1]:.1f} MiB, "
                  f"{sum(churn.ended.values())} jobs came and went", flush=True)
    gone = agents.poll() is not None
    for work in works:
        work.over.set()
    for work in works:
        work.stop()
    taken = []
    ranks.guarded(lambda: taken.append(ranks.daemon.text("/metrics")))()
    samples = sum(float(line.split()[1]) for line in "".join(taken).splitlines()
                  if line.startswith("lockstep_ingest_samples_total"))
    wall = time.monotonic() - ranks.begun
    print(f"cores {os.cpu_count()}, load {os.getloadavg()[0]:.1f}, {wall / 3600:.2f} h; {samples:,.0f} samples taken, "
          f"{samples / wall:,.0f} a second of {options.nodes * options.ranks:,} ranks; /metrics p50 "
          f"{watching.percentile(ranks.scraped, 0.5):.0f}, p99 {watching.percentile(ranks.scraped, 0.99):.0f} ms of {len(ranks.scraped)}")
    warm_up = min(options.warm_up * 60, wall / 2)
    statuses = [one.report(warm_up) for one in (ranks, churn)]
    return MISSED if gone or not samples or MISSED in statuses else max(statuses)
