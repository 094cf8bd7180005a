"""`tests/fault/run writes`: the disk fails or is full at one write or read of the store, for each of them.

A point is an error, a system call and k. strace makes the k-th such call of the thread that writes the event log fail,
between a job's POST and its end; with ENOSPC, or EDQUOT as a quota says it, all calls from that one on, until there is
room again. An undisturbed run says how many there are.
  EIO     what was answered 201 is there after a restart, once; lockstepd has ended with 70, or gone on as if nothing
          had been
  ENOSPC, EDQUOT
          lockstepd goes on, or has ended with 70 where a sync failed; what it did not take it refused; once there is
          room it takes the same job and runs it
"""

import collections
import contextlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import harness
from harness import FINAL, wait_until

CALLS = ("pread64", "pwrite64", "write", "fdatasync", "fsync", "ftruncate", "openat", "unlink", "mmap")
READS = ("pread64",)
NO_ROOM = ("ENOSPC", "EDQUOT")
KEY = {"Idempotency-Key": "the-one"}
STORE_BROKEN = 70
STORE_BROKEN_LOG = "the store can no longer be trusted"
STORE_THREAD = 1  # of the threads, by their numbers


class Point:
    def __init__(self, error, call="", k=0):
        self.error, self.call, self.k = error, call, k
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-writes-"))
        self.trace = self.root / "trace"
        self.starts = self.root / "starts"
        self.daemon = harness.Daemon(self.root)
        self.tracer = None
        self.reached = False
        self.problems = []

    def attach(self):
        tasks = pathlib.Path(f"/proc/{self.daemon.process.pid}/task")
        thread = sorted(int(entry.name) for entry in tasks.iterdir())[STORE_THREAD]
        when = f"{self.k}+" if self.error in NO_ROOM else str(self.k)
        inject = ["-e", f"inject={self.call}:error={self.error}:when={when}"] if self.k else []
        self.tracer = subprocess.Popen(
            ["strace", "-qq", "-o", str(self.trace), "-e", f"trace={','.join(CALLS)}", *inject, "-p", str(thread)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        status = tasks / str(thread) / "status"
        wait_until(lambda: "TracerPid:\t0\n" not in status.read_text(), 10, "strace is attached")

    def detach(self):
        if self.tracer:
            self.tracer.terminate()
            self.tracer.wait()
            self.tracer = None

    def post(self):
        """(status, id); (0, None) if lockstepd went before it answered."""
        job = harness.command_job("point", "sh", "-c", f"echo start >> {self.starts}")
        with contextlib.suppress(harness.Unreachable):
            status, answer = self.daemon.api("POST", "/v1/jobs", job, KEY)
            return status, answer["id"] if status == 201 else None
        return 0, None

    def job_is_over(self, job):
        with contextlib.suppress(harness.Unreachable, AssertionError):
            return self.daemon.process.poll() is not None or self.daemon.job(job)["state"] in FINAL
        return self.daemon.process.poll() is not None

    def run(self):
        try:
            self.daemon.start()
            self.attach()
            status, first = self.post()
            if status not in (0, 201) and status < 500:
                self.problems.append(f"answered {status}")
            if first and self.error == "EIO":
                wait_until(lambda: self.job_is_over(first), 20, "the job or lockstepd ends")
            elif first:  # with a full disk it waits: for as long as the tracer is there
                with contextlib.suppress(AssertionError):
                    wait_until(lambda: self.job_is_over(first), 2, "the job ends", patience=1)
            self.reached = not self.k or "INJECTED" in self.trace.read_text(errors="replace")
            self.detach()
            if self.k:
                self.recover(first)
        except Exception as error:
            self.problems.append(f"{error!r}\n{self.daemon.log_tail(2000)}")
        finally:
            self.detach()
            self.daemon.clean_up()
        return self

    def recover(self, first):
        if STORE_BROKEN_LOG in self.daemon.log_tail():
            self.daemon.process.wait(20 * harness.PATIENCE)  # its clients have two seconds
        code = self.daemon.process.poll()
        if code is None and self.error == "EIO":
            self.daemon.kill9()
        elif code is not None and (code != STORE_BROKEN or not self.may_end()):
            self.problems.append(f"lockstepd ended with {code}")
        if self.daemon.process.poll() is not None:
            self.daemon.start()

        def accepted():
            status, job = self.post()
            return job if status == 201 else None

        again = wait_until(accepted, 20, "the same key is accepted")
        if first and again != first:
            self.problems.append(f"answered with {first}, then with {again}")
        self.daemon.wait_for(again, lambda job: job["state"] in FINAL, 30)
        jobs = [job["id"] for job in self.daemon.get("/v1/jobs")["items"]]
        state, starts = self.daemon.job(again)["state"], self.starts.read_text().count("start")
        if (jobs, state, starts) != ([again], "succeeded", 1):
            self.problems.append(f"jobs {jobs}, {state}, started {starts} times")

    def may_end(self):
        """A sync that fails leaves nobody knowing what is on the disk, whatever the error is called."""
        return self.error == "EIO" or "sync" in self.call

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)


def plan(options):
    calm = Point("EIO").run()
    if calm.problems:
        raise AssertionError(f"undisturbed: {calm.problems}")
    counts = collections.Counter(re.match(r"(\w+)\(", line).group(1)
                                 for line in calm.trace.read_text().splitlines() if re.match(r"\w+\(", line))
    calm.remove()
    print("calls of the store thread: " + ", ".join(f"{name} {number}" for name, number in counts.items()), flush=True)
    points = [(error, call, k) for error in options.errors for call, number in counts.items()
              if call not in READS or error not in NO_ROOM for k in range(1, number + 1)][::options.stride]
    if options.limit and len(points) > options.limit:
        points = [points[i * len(points) // options.limit] for i in range(options.limit)]
    return points


def main(options):
    if not shutil.which("strace"):
        print("SKIPPED: no strace (deploy/install-deps --test)")
        return 77
    points, begun = plan(options), time.monotonic()
    done, failed, reached = collections.Counter(), collections.Counter(), collections.Counter()
    for where in points:
        point = Point(*where).run()
        done[where[0]] += 1
        reached[where[0]] += point.reached
        failed[where[0]] += bool(point.problems)
        for problem in point.problems:
            print(f"FAILED {' '.join(map(str, where))}: {problem}", flush=True)
        point.remove()
    for error in options.errors:
        print(f"{error:7} {done[error]:4} points, {reached[error]} reached, {failed[error]} FAILED")
    print(f"{len(points)} points in {time.monotonic() - begun:.0f} s")
    return 1 if sum(failed.values()) or sum(reached.values()) < len(points) / 2 else 0
