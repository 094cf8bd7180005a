"""`tests/fault/run syscalls`: one kill at each system call between a job's POST and its end.

A point is a lane, a system call and k: strace counts the calls of each thread and name by themselves.
An undisturbed run says how many there are. Lanes:
  main     the control thread: HTTP, the event loop, the start of sbatch and squeue
  store    the thread that writes the event log
  files    the threads that make attempts' folders and scripts
  sbatch   sbatch dies at the call and lockstepd at once after it
  restart  Slurm has the job, lockstepd died before it heard; the next one dies at the call, of its
           control thread and from the first on that looks at the data directory
"""

import collections
import concurrent.futures
import contextlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import harness
from cluster import SlurmCluster
from evidence import FINAL, job_spec, judge, listed_jobs, read_starts, show, slurm_rows
from lockstep_slurm import SlurmDaemon
from lying_sbatch import programs_with_sbatch

CLUSTER = {"nodes": 2, "cpus": 1000, "memory_mb": 1_000_000, "gpus": 0, "min_job_age": 7200, "quick_loss": True,
           "options": {"MaxJobCount": "50000"}}
ARGUMENTS = ("--slurm-quarantine-seconds", "1", "--slurm-submit-rate", "200",
             "--slurm-poll-seconds", "0.5")
THREADS = {"main": slice(0, 1), "store": slice(1, 2), "files": slice(2, None)}
KEY = {"Idempotency-Key": "the-one"}
JOB_ENDED = 'msg="job finished"'

# $PPID is lockstepd.
TRACED_SBATCH = """#!/bin/bash
[ "$1" != --version ] || exec /usr/bin/sbatch --version
strace -qq -o {trace} -e trace=all {inject} /usr/bin/sbatch "$@"
{after}
"""

UNHEARD_SBATCH = """#!/bin/bash
[ "$1" != --version ] || exec /usr/bin/sbatch --version
/usr/bin/sbatch "$@" > /dev/null
kill -9 $PPID
"""


@dataclass
class Outcome:
    where: tuple               # lane, system call, which of them
    reached: bool = False      # the kill came
    answered: bool = False     # the first POST had its answer before it
    submissions: int = 0       # intents of the job
    lost: bool = False
    doubled: bool = False
    left: bool = False         # an agent still holds its allocation 10 s after the job's end
    seconds: float = 0.0
    problems: list = field(default_factory=list)


class Point:
    """One lockstepd, killed once at the k-th such call of a lane. k 0: not killed, only traced."""

    def __init__(self, cluster, lane, call="all", k=0):
        self.cluster = cluster
        self.lane = lane
        self.call = call
        self.k = k
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=cluster.shared))
        self.trace = self.root / "trace"
        self.starts = self.root / "starts"
        self.daemon = SlurmDaemon(self.root, cluster, *ARGUMENTS)
        self.out = Outcome((lane, call, k))
        self.tracer = None

    def inject(self):
        return ["-e", f"inject={self.call}:signal=KILL:when={self.k}"] if self.k else []

    def run(self):
        begun = time.monotonic()
        try:
            first = {"sbatch": self.die_with_sbatch,
                     "restart": self.die_at_restart}.get(self.lane, self.die_in_thread)()
            self.out.answered = first is not None
            if self.daemon.process.poll() is None:
                self.daemon.kill9()
            else:
                self.out.reached = True
            if self.k:
                self.recover(first)
        except Exception as error:
            self.out.problems.append(f"{error!r}\n{self.daemon.log_tail(3000)}")
        finally:
            if self.tracer:
                self.tracer.kill()
                self.tracer.wait()
            self.daemon.clean_up()
        self.out.seconds = time.monotonic() - begun
        return self.out

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)

    # --- up to the kill ---------------------------------------------------------------------
    def post(self):
        """The job's id; None if lockstepd died before it answered."""
        try:
            status, job = self.daemon.api("POST", "/v1/jobs", job_spec("point", self.starts), KEY)
        except (harness.Unreachable, OSError):
            return None
        if status not in (200, 201):
            raise AssertionError(f"submit: {status} {job}")
        return job["id"]

    def ended_or_dead(self):
        """Asks the log: a request would be more system calls."""
        harness.wait_until(lambda: self.daemon.process.poll() is not None or
                           JOB_ENDED in self.daemon.log.read_text(errors="replace"), 25,
                           "the job has ended or lockstepd is dead")

    def die_in_thread(self):
        self.daemon.start()
        tasks = pathlib.Path(f"/proc/{self.daemon.process.pid}/task")
        threads = sorted(int(entry.name) for entry in tasks.iterdir())[THREADS[self.lane]]
        with open(self.root / "strace.err", "wb") as errors:
            self.tracer = subprocess.Popen(
                ["strace", "-qq", "-o", str(self.trace), "-e", "trace=all", *self.inject(),
                 *(word for thread in threads for word in ("-p", str(thread)))],
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

        def traced():
            with contextlib.suppress(OSError):
                return self.daemon.process.poll() is not None or all(
                    "TracerPid:\t0\n" not in (tasks / str(thread) / "status").read_text()
                    for thread in threads)
            return self.daemon.process.poll() is not None

        harness.wait_until(traced, 10, "strace is attached")
        first = self.post()
        self.ended_or_dead()
        return first

    def sbatch_with(self, after):
        return TRACED_SBATCH.format(trace=self.trace, inject=" ".join(self.inject()),
                                    after=after)

    def die_with_sbatch(self):
        after = "kill -9 $PPID" if self.k else "true"
        self.daemon.bin_dir = programs_with_sbatch(self.root / "bin", self.sbatch_with(after))
        self.daemon.start()
        first = self.post()
        self.ended_or_dead()
        self.daemon.bin_dir = None
        return first

    def die_at_restart(self):
        self.daemon.bin_dir = programs_with_sbatch(self.root / "bin", UNHEARD_SBATCH)
        self.daemon.start()
        first = self.post()
        harness.wait_until(lambda: self.daemon.process.poll() is not None, 20, "it dies with sbatch")
        self.daemon.bin_dir = None
        command = self.daemon.command
        # -D: lockstepd stays our child, strace is its grandchild.
        tracer = ["strace", "-D", "-qq", "-o", str(self.trace), "-e", "trace=all", *self.inject()]
        self.daemon.command = lambda: [*tracer, *command()]
        with contextlib.suppress(AssertionError, harness.Unreachable, OSError):
            self.daemon.start(15)  # it may die meanwhile
        self.ended_or_dead()
        self.daemon.command = command
        return first

    # --- after it ---------------------------------------------------------------------------
    def recover(self, first):
        self.daemon.start()
        job_id = harness.wait_until(self.post, 20, "the same key is answered")
        if first and job_id != first:
            self.out.problems.append(f"the key was answered with {first}, then with {job_id}")
        jobs = harness.wait_until(self.all_ended, 45, "the job ends")
        job, events = self.daemon.job(job_id), self.daemon.events(job_id)
        self.out.submissions = sum(event["kind"] == "attempt_submitting" for event in events)
        if [one["id"] for one in jobs] != [job_id]:
            self.out.problems.append(f"jobs {[one['id'] for one in jobs]}, accepted: {job_id}")
        name = f"point-{job_id.removeprefix('ls-').lower()}-a1"

        def verdict():
            return judge(job, events, read_starts(self.starts)["point"],
                         slurm_rows(self.cluster, name))

        with contextlib.suppress(AssertionError):  # the agent may still be leaving
            harness.wait_until(lambda: not verdict().bad, 10, "all is as promised")
        last = verdict()
        self.out.problems += last.bad
        self.out.lost, self.out.doubled, self.out.left = map(bool, (last.lost, last.doubled, last.left))
        if last.bad:
            show(f"{self.lane} {self.call} {self.k}", job_id, last, events)

    def all_ended(self):
        jobs = listed_jobs(self.daemon)
        return jobs if jobs and all(job["state"] in FINAL for job in jobs) else None


def calls(trace, several):
    """(name, line) of the calls by thread; unfinished ones count where they begin."""
    found = collections.defaultdict(list)
    for line in trace.read_text(errors="replace").splitlines():
        thread, rest = line.split(None, 1) if several else ("", line)
        match = re.match(r"(\w+)\(", rest)
        if match:
            found[thread].append((match.group(1), rest))
    return found


def count(cluster, lane):
    """The points of a lane, [(lane, call, k), …]: of an undisturbed run, in its order."""
    point = Point(cluster, lane)
    point.run()
    if point.out.problems:
        raise AssertionError(f"{lane}, undisturbed: {point.out.problems}")
    found = calls(point.trace, lane == "files")
    point.remove()
    longest = max(found.values(), key=len)
    seen, points, counts = collections.Counter(), [], lane != "restart"
    for name, line in longest:
        seen[name] += 1
        counts = counts or str(point.daemon.data) in line and name != "execve"
        if counts:
            points.append((lane, name, seen[name]))
    names = collections.Counter(name for _, name, _ in points)
    print(f"{lane}: {len(points)} calls, "
          + ", ".join(f"{name} {number}" for name, number in names.most_common(8)) + ", …",
          flush=True)
    return points


def plan(cluster, options):
    points = []
    for lane in options.lanes.split(","):
        points += count(cluster, lane)[::options.stride]
    if options.limit and len(points) > options.limit:
        points = [points[i * len(points) // options.limit] for i in range(options.limit)]
    return points


def sweep(cluster, points, workers):
    outcomes, told, begun = [], time.monotonic(), time.monotonic()

    def one(where):
        point = Point(cluster, *where)
        out = point.run()
        if not out.problems:
            point.remove()
        return out

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, where) for where in points]):
            out = done.result()
            outcomes.append(out)
            for problem in out.problems:
                print(f"FAILED {' '.join(map(str, out.where))}: {problem}", flush=True)
            if time.monotonic() - told >= 10:
                told = time.monotonic()
                print(f"{told - begun:6.0f} s  {len(outcomes)} of {len(points)} points, "
                      f"{sum(bool(o.problems) for o in outcomes)} failed", flush=True)
    return outcomes, time.monotonic() - begun


def print_table(outcomes, seconds):
    head = ("lane   ", "points", "killed there", "answered before", "handed in twice+", "slowest s",
            "LOST", "TWICE", "left in Slurm", "all that FAILED")
    rows = []
    for lane in list(dict.fromkeys(out.where[0] for out in outcomes)) + ["all"]:
        mine = [out for out in outcomes if lane in (out.where[0], "all")]
        rows.append((lane, len(mine), sum(out.reached for out in mine),
                     sum(out.reached and out.answered for out in mine),
                     sum(out.submissions > 1 for out in mine),
                     f"{max(out.seconds for out in mine):.1f}", sum(out.lost for out in mine),
                     sum(out.doubled for out in mine), sum(out.left for out in mine),
                     sum(bool(out.problems) for out in mine)))
    print()
    for row in [head, *rows]:
        print("  ".join(str(cell).ljust(len(word)) for cell, word in zip(row, head)).rstrip())
    print(f"\n{len(outcomes)} points in {seconds:.0f} s, {seconds / len(outcomes):.2f} s each")


def main(options):
    with SlurmCluster(**CLUSTER) as cluster:
        points = plan(cluster, options)
        outcomes, seconds = sweep(cluster, points, options.workers)
        print_table(outcomes, seconds)
        reached = sum(out.reached for out in outcomes)
        if reached < len(outcomes) / 2:
            print("fewer than half of the points were reached: this run shows little")
            return 1
        return 1 if any(out.problems for out in outcomes) else 0
