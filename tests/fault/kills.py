"""`tests/fault/run kills`: jobs come in while lockstepd and slurmctld are killed, and sbatch and squeue lie."""

import collections
import contextlib
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

from cluster import SlurmCluster
from evidence import FINAL, judge, listed_jobs, read_starts, show, slurm_rows
from lockstep_slurm import SlurmDaemon
from lying_sbatch import MODES, SQUEUE_MODES, LyingSbatch, LyingSqueue
from players import QUARANTINE, Controller, Operator, Submitters

CLUSTER = {"nodes": 2, "cpus": 1000, "memory_mb": 1_000_000, "gpus": 0, "min_job_age": 7200, "quick_loss": True,
           "options": {"MaxJobCount": "50000"}}
ARGUMENTS = ("--slurm-quarantine-seconds", str(QUARANTINE), "--slurm-submit-rate", "200")
KILLS_BETWEEN_RESTS = 25
LEAVE_SECONDS = 75  # after a job's end lockstepd gives its agents 60 to leave, then cancels them


class Campaign:
    def __init__(self, cluster, options):
        self.options = options
        self.cluster = cluster
        self.rng = random.Random(f"{options.seed}/lockstepd")
        root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=cluster.shared))
        self.starts = root / "starts"
        self.daemon = SlurmDaemon(root, cluster, *ARGUMENTS)
        self.sbatch = LyingSbatch(root / "bin")
        self.squeue = LyingSqueue(self.sbatch.folder)
        self.counts = collections.Counter()
        self.lies = collections.Counter()
        self.squeue_lies = collections.Counter()
        self.kills = 0
        self.begun = time.monotonic()
        self.told = self.begun
        self.submitters = None
        self.operator = Operator(cluster)

    # --- kills of lockstepd -----------------------------------------------------------------
    def sbatch_runs(self):
        """Whether lockstepd has an sbatch among its children now."""
        pid = self.daemon.process.pid
        with contextlib.suppress(OSError):
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for child in children:
                with contextlib.suppress(OSError):
                    if b"sbatch" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                        return True
        return False

    def kill(self, kind):
        posting, handing = self.submitters.in_flight > 0, self.sbatch_runs()
        self.daemon.kill9()
        self.kills += 1
        self.counts[kind] += 1
        self.counts["posting"] += posting
        self.counts["handing"] += handing
        self.counts["in flight"] += posting or handing

    def new_period(self, last):
        """How sbatch will be until the next kill: itself, behind a wrapper, or behind one that lies; and squeue, where
        it is not itself."""
        choice = self.rng.random()
        self.daemon.bin_dir = None if choice < 0.5 or last else self.sbatch.folder
        mode = "honest"
        if self.daemon.bin_dir and choice >= 0.7:
            mode = self.rng.choice(MODES)
            self.lies[mode] += 1
        self.sbatch.mode = mode
        mode = "honest"
        if self.daemon.bin_dir and self.rng.random() < 0.4:
            mode = self.rng.choice(SQUEUE_MODES)
            self.squeue_lies[mode] += 1
        self.squeue.mode = mode

    def kill_while_starting(self):
        with open(self.daemon.log, "ab") as log:
            self.daemon.process = subprocess.Popen(
                self.daemon.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.daemon.environment())
        time.sleep(self.rng.uniform(0, 0.1))
        self.kill("while it starts")

    def end_early(self):
        """SIGUSR1: no kill after the next, so that a campaign that takes too long has its verdict all the same."""
        if self.kills + 1 < self.options.kills:
            self.options.jobs = self.options.jobs * (self.kills + 1) // self.options.kills
            self.options.kills = self.kills + 1

    def run(self):
        options, released = self.options, 0
        signal.signal(signal.SIGUSR1, lambda *_: self.end_early())
        self.daemon.start(60)
        self.submitters = Submitters(self.daemon, self.starts, options.seed)
        controller = Controller(self.cluster, options.slurmctld_kills, options.freezes, options.seed,
                                lambda: self.kills / max(options.kills, 1))
        controller.start()
        self.operator.start()
        next_rest = KILLS_BETWEEN_RESTS
        while self.kills < options.kills:
            share = (self.kills + 1) / options.kills
            for number in range(released, int(share * options.jobs)):
                self.submitters.names.put(f"f{number}")
                released += 1
            if self.rng.random() < 0.85:
                # Accepting one takes 3 ms, an sbatch 20, four at a time.
                time.sleep(self.rng.uniform(0, 0.03))
                self.kill("just after submissions")
            else:
                time.sleep(self.rng.uniform(0.1, 3))
                self.kill("at any time")
            self.new_period(last=self.kills >= options.kills)
            if self.rng.random() < 0.1 and self.kills < options.kills:
                self.kill_while_starting()
            self.daemon.start(90)
            if next_rest <= self.kills < options.kills:
                # Long enough for what is in doubt to be settled, and what was forgotten found.
                next_rest += KILLS_BETWEEN_RESTS
                self.rest(self.rng.uniform(4, QUARANTINE + 10))
            self.tell()
        for number in range(released, options.jobs):
            self.submitters.names.put(f"f{number}")
        controller.join(120)
        self.submitters.finish()
        loaded = time.monotonic() - self.begun
        self.settle(300)
        self.operator.over.set()
        return controller, loaded

    def rest(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tell()
            time.sleep(0.2)

    def tell(self):
        now = time.monotonic()
        if now - self.told >= 10:
            self.told = now
            print(f"{now - self.begun:6.0f} s  {len(self.submitters.accepted)} accepted, "
                  f"{len(read_starts(self.starts))} started, {self.kills} kills, sbatch: "
                  f"{self.sbatch.mode if self.daemon.bin_dir else 'itself'}, squeue: "
                  f"{self.squeue.mode if self.daemon.bin_dir else 'itself'}", flush=True)

    def settle(self, seconds):
        """Until every job has ended and none waits or runs in Slurm, or the time is up. COMPLETING
        may stay: a slurmd that was asked to end what another slurmctld had started."""
        until, ended = time.monotonic() + seconds, None
        while time.monotonic() < until:
            self.tell()
            if ended is None and all(job["state"] in FINAL for job in listed_jobs(self.daemon)):
                ended = time.monotonic()
                until = ended + LEAVE_SECONDS
            if ended is not None:
                queued = self.cluster.run("squeue", "-h", "-t", "PD,CF,R,S", check=False)
                if queued.returncode == 0 and not queued.stdout:
                    return
            time.sleep(0.5)

    # --- the end ----------------------------------------------------------------------------
    def check(self, outages):
        """Counts by what went wrong; prints the story of each job that is not as promised."""
        totals, accepted = collections.Counter(), self.submitters.accepted
        listed = listed_jobs(self.daemon)
        names = {job_id: name for name, job_id in accepted.items()}
        counted = collections.Counter(job["id"] for job in listed)
        for job_id, name in names.items():
            if counted[job_id] != 1:
                totals["lost" if not counted[job_id] else "doubled"] += 1
                print(f"\n### {job_id} ({name}): {counted[job_id]} times in GET /v1/jobs")
        for job_id in set(counted) - set(names):
            totals["unknown"] += 1
            print(f"\n### {job_id}: nobody was told of this job")
        if len(names) != self.options.jobs:
            totals["lost"] += self.options.jobs - len(names)
            print(f"\n### {len(accepted)} names accepted with {len(names)} ids of {self.options.jobs}")
        starts, rows = read_starts(self.starts), slurm_rows(self.cluster)
        for name in set(starts) - set(accepted):
            totals["unknown"] += 1
            print(f"\n### {name}: started, and nobody was told that it was accepted")
        shown = 0
        for job in listed:
            name = names.get(job["id"], job["name"])
            events = self.daemon.events(job["id"])
            verdict = judge(self.daemon.job(job["id"]), events, starts.get(name, []), rows, outages)
            totals["lost"] += bool(verdict.lost)
            totals["doubled"] += bool(verdict.doubled)
            totals["left"] += bool(verdict.left)
            totals["disorder"] += bool(verdict.disorder)
            totals["never claimed"] += verdict.never_claimed
            totals["outage"] += bool(verdict.outage)
            totals["outage, ran"] += verdict.ran
            totals["copies"] += verdict.copies
            totals["sent again"] += verdict.sent_again
            if verdict.bad and shown < 20:
                shown += 1
                show(name, job["id"], verdict, events)
            elif verdict.outage:
                print(f"  {job['id']} ({name}) ended by slurmctld's death: {verdict.outage}")
        return totals

    def told_in_log(self, words, more=""):
        """How many jobs (every new lockstepd finds the same once more), or how many lines."""
        lines = [line for line in self.daemon.log.read_text(errors="replace").splitlines()
                 if words in line and more in line]
        names = {match.group(1) for line in lines if (match := re.search(r" name=(\S+)", line))}
        return len(names) or len(lines)


def print_table(campaign, controller, totals, loaded, whole):
    counts, submitters, log = campaign.counts, campaign.submitters, campaign.told_in_log
    share = 100 * counts["in flight"] / max(campaign.kills, 1)
    rows = [
        ("jobs accepted", len(submitters.accepted)),
        ("kill -9 of lockstepd", campaign.kills),
        ("  while a submission was in flight", f"{counts['in flight']} ({share:.0f} %)"),
        ("  of these with a request unanswered / an sbatch running",
         f"{counts['posting']} / {counts['handing']}"),
        ("  just after submissions / at any time / while it started",
         f"{counts['just after submissions']} / {counts['at any time']} / {counts['while it starts']}"),
        ("kill -9 of slurmctld", controller.done["kill"]),
        ("freezes of slurmctld", f"{controller.done['freeze']} (longest {controller.longest:.0f} s)"),
        ("times a node that slurmctld drained was resumed", campaign.operator.resumed),
        ("periods with an sbatch that lies", f"{sum(campaign.lies.values())} {dict(campaign.lies)}"),
        ("periods with a squeue that lies", f"{sum(campaign.squeue_lies.values())} {dict(campaign.squeue_lies)}"),
        ("requests cut off or refused / keys sent again", f"{submitters.broken} / {submitters.replayed}"),
        ("submissions of unknown outcome, told", log("a submission of unknown outcome")),
        ("found in Slurm by name and taken up", log("found in Slurm and taken up")),
        ("acknowledged and forgotten by slurmctld / not claimed, so sent again",
         f"{log('Slurm has forgotten a job')} / {log('Slurm has forgotten a job', 'claimed=0')}"),
        ("handed to Slurm a second time and more", totals["sent again"]),
        ("copies in Slurm besides the one that ran", totals["copies"]),
        ("surplus copies that were cancelled / agents fenced",
         f"{log('ending a surplus copy')} / {log('agent fenced')}"),
        ("claimed jobs that slurmctld's death ended, and Lockstep said so / with a rank that had run",
         f"{totals['outage']} / {totals['outage, ran']}"),
        ("LOST", totals["lost"]), ("STARTED TWICE", totals["doubled"]),
        ("jobs that have ended and whose allocation is still held", totals["left"]),
        ("jobs that nobody was told of", totals["unknown"]),
        ("jobs whose events break a rule", totals["disorder"]),
        ("keys answered in two ways, other problems", len(submitters.problems)),
        ("jobs that nobody had claimed and that still did not run, in LOST", totals["never claimed"]),
        ("wall time", f"{whole:.0f} s, {loaded:.0f} s of it with kills"),
        ("jobs per second", f"{len(submitters.accepted) / whole:.1f}"),
    ]
    width = max(len(what) for what, _ in rows)
    print()
    for what, value in rows:
        print(f"{what.ljust(width)}  {value}")


def main(options):
    with SlurmCluster(**CLUSTER) as cluster:
        campaign = Campaign(cluster, options)
        try:
            controller, loaded = campaign.run()
            whole = time.monotonic() - campaign.begun
            totals = campaign.check(controller.outages)
            for problem in [*campaign.submitters.problems, *filter(None, [controller.problem])]:
                print(f"\n### {problem}")
            print_table(campaign, controller, totals, loaded, whole)
            bad = (sum(totals[what] for what in ("lost", "doubled", "left", "unknown", "disorder"))
                   + len(campaign.submitters.problems) + (controller.problem is not None))
            if bad or options.keep:
                keep(campaign, options.keep)
            return 1 if bad else 0
        finally:
            with contextlib.suppress(Exception):
                cluster.cont_slurmctld()
            campaign.daemon.clean_up()


def keep(campaign, folder):
    """Logs of a run that failed outlive its cluster."""
    folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="lockstep-fault-"))
    folder.mkdir(parents=True, exist_ok=True)
    for log in (campaign.daemon.log, campaign.starts, campaign.cluster.controller_log):
        if log.exists():
            (folder / log.name).write_bytes(log.read_bytes())
    with contextlib.suppress(OSError):
        campaign.daemon.process.send_signal(signal.SIGTERM)
        campaign.daemon.process.wait(15)
        for part in campaign.daemon.data.glob("lockstep.db*"):
            (folder / part.name).write_bytes(part.read_bytes())
    print(f"logs: {folder}")
