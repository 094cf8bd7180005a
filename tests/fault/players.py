"""Who plays a part in `tests/fault/run kills`, each on threads of its own: those that submit, what
becomes of slurmctld, and the person who looks after the nodes."""

import collections
import contextlib
import datetime
import queue
import random
import subprocess
import threading
import time

import harness
from evidence import job_spec

QUARANTINE = 15  # seconds; munge's requests live for 300, so long freezes leave it to the claim
# From slurmctld's death on: slurmd comes back to it and ends what it does not know.
ORPHANS_END = 60


def utc_now(more=0):
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=more)
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Submitters:
    """Threads that submit each name under its own key until lockstepd has answered."""

    def __init__(self, daemon, starts, seed, threads=6):
        self.daemon = daemon
        self.starts = starts
        self.names = queue.Queue()
        self.accepted = {}  # name -> id
        self.problems = []
        self.broken = 0     # requests that a kill cut off, or that met no daemon
        self.replayed = 0   # keys that were sent again after the answer
        self.in_flight = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(random.Random(f"{seed}/{number}"),),
                                         daemon=True) for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def work(self, rng):
        while (name := self.names.get()) is not None:
            try:
                answer = self.submit(name, 120)
                with self.lock:
                    self.accepted[name] = answer
                if rng.random() < 0.1:
                    self.replayed += 1
                    again = self.submit(name, 120)
                    if again != answer:
                        self.problems.append(f"key {name}: {answer}, then {again}")
            except Exception as error:  # a thread that dies would leave the campaign waiting
                self.problems.append(f"{name}: {error!r}")

    def submit(self, name, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            asked, url = self.daemon.process, self.daemon.url
            try:
                with self.lock:
                    self.in_flight += 1
                status, answer = self.daemon.api("POST", "/v1/jobs", job_spec(name, self.starts),
                                                 {"Idempotency-Key": name})
            except (harness.Unreachable, OSError):
                self.broken += 1
                time.sleep(0.01)
                continue
            finally:
                with self.lock:
                    self.in_flight -= 1
            if status in (200, 201):
                return answer["id"]
            stranger = status == 401 and not self.is_ours(asked, url)
            if not stranger and status not in (409, 429, 503):
                raise AssertionError(f"submit: {status} {answer}")
            time.sleep(0.05)
        raise AssertionError(f"not accepted within {seconds} s")

    def is_ours(self, asked, url):
        """Whether it was this lockstepd that answered at this address: the port of one that was killed may be another
        campaign's by now, which does not know the token, also while the next of ours is still starting."""
        try:
            return asked.poll() is None and (self.daemon.data / "url").read_text().strip() == url
        except FileNotFoundError:
            return False

    def finish(self, seconds=300):
        for _ in self.threads:
            self.names.put(None)
        for thread in self.threads:
            thread.join(seconds)
        if any(thread.is_alive() for thread in self.threads):
            self.problems.append("a submitter has not ended")


class Controller(threading.Thread):
    """Kills and freezes slurmctld at random moments; `due` says how far the campaign is, 0 to 1."""

    def __init__(self, cluster, kills, freezes, seed, due):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.rng = random.Random(f"{seed}/slurmctld")
        self.due = due
        whats = ["kill"] * kills + ["freeze"] * freezes
        self.rng.shuffle(whats)
        self.plan = sorted((self.rng.uniform(0.02, 0.98), what) for what in whats)
        self.done = collections.Counter()
        self.longest = 0.0
        self.outages = []  # (from, to)
        self.problem = None

    def run(self):
        try:
            for moment, what in self.plan:
                while self.due() < moment:
                    time.sleep(0.02)
                self.kill() if what == "kill" else self.freeze()
                self.done[what] += 1
        except Exception as error:
            self.problem = error

    def kill(self):
        begin = utc_now(-1)
        self.cluster.kill_slurmctld()
        time.sleep(self.rng.uniform(0, 3))
        self.cluster.start_slurmctld()
        self.outages.append((begin, utc_now(ORPHANS_END)))

    def freeze(self):
        long = self.rng.random() < 0.3
        seconds = self.rng.uniform(QUARANTINE + 1, QUARANTINE + 8) if long else self.rng.uniform(1, 8)
        self.cluster.stop_slurmctld()
        try:
            time.sleep(seconds)
        finally:
            self.cluster.cont_slurmctld()
        self.longest = max(self.longest, seconds)


class Operator(threading.Thread):
    """What a person would do: a slurmctld that was killed gives out numbers anew, finds two jobs of
    one number on a node and drains it. Such a node is resumed."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.over = threading.Event()
        self.resumed = 0

    def run(self):
        while not self.over.wait(1):
            with contextlib.suppress(subprocess.TimeoutExpired):
                drained = self.cluster.run("sinfo", "-h", "-R", "-o", "%N", check=False).stdout.split()
                for node in drained:
                    done = self.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME",
                                            check=False)
                    self.resumed += done.returncode == 0
