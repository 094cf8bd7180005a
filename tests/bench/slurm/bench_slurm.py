"""What Lockstep adds to submitting to Slurm, and what its one poller costs: on a real Slurm of four
hosts of this machine (tests/slurm), beside plain sbatch and slurmrestd on the same cluster.

All that is compared is taken in turns, one of each at a time, so that it meets the same machine. Times
are of the client: from the start of its request. Between the parts slurmctld starts anew without jobs,
for it keeps finished ones in its answers for minutes.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "slurm")]

from bench_site import SCRIPT, SETTINGS, SPEC, SUBMIT, Site, percentile, until  # noqa: E402

JOBS = 200          # of each kind in a round
CLIENTS = 8
LAUNCHES = 30
WINDOWS = 3         # of 20 s: a minute


class Bench(Site):
    # --- 1, 2: one submission after the other

    def submissions(self):
        rows = {}
        for _ in range(self.options.rounds):
            self.fresh()
            self.block()
            with self.lockstep() as daemon:
                for name, values in self.one_round(daemon).items():
                    rows.setdefault(name, []).append(values)
        for name, rounds in rows.items():
            self.add_latency(name, rounds)
        self.ratio("ratio, medians: Lockstep's acceptance / plain sbatch",
                   rows["Lockstep: accepted, durable"], rows["plain sbatch: its id"])
        self.ratio("ratio, medians: acknowledged by Slurm through Lockstep / plain sbatch",
                   rows["Lockstep: acknowledged by Slurm"], rows["plain sbatch: its id"])
        self.ratio("ratio, means: sbatch of the same script, by lockstepd / plain",
                   rows["sbatch within Lockstep (mean)"], rows["sbatch of the same script (mean)"],
                   statistics.mean)

    def add_latency(self, name, rounds):
        if name.endswith("(mean)"):
            self.table.add(name, [1000 * statistics.mean(values) for values in rounds], "ms")
            return
        self.table.add(f"{name}, p50", [1000 * statistics.median(values) for values in rounds], "ms")
        self.table.add("  p99", [1000 * percentile(values, 99) for values in rounds], "ms")

    def ratio(self, name, over, under, middle=statistics.median):
        self.table.add(name, [middle(a) / middle(b) for a, b in zip(over, under)], "×")

    def one_round(self, daemon):
        client, rest = self.client(daemon), self.rest_client()
        document, plain, same = self.rest_document(), self.plain_script(), None
        posted, seen = {}, {}
        accepted, sbatches, rests, versions, sames = [], [], [], [], []
        for _ in range(JOBS):
            begun, wall = time.monotonic(), time.time()
            job = client.request("POST", "/v1/jobs", SPEC)["id"]
            accepted.append(time.monotonic() - begun)
            posted[job] = wall
            self.until_submitted(client, job)
            same = same or self.same_script(daemon, job)
            sames.append(self.sbatch(same))
            sbatches.append(self.sbatch(plain))
            begun = time.monotonic()
            if not rest.request("POST", SUBMIT, document)["job_id"]:
                raise RuntimeError("slurmrestd gave no id")
            rests.append(time.monotonic() - begun)
            begun = time.monotonic()
            subprocess.run(["sbatch", "--version"], env=self.cluster.env(), check=True,
                           capture_output=True)
            versions.append(time.monotonic() - begun)
            self.note_seen(client, posted, seen)
            # Slower than the default of 20 a second, or it would be that which is measured.
            time.sleep(max(0.0, wall + 0.06 - time.time()))
        until(lambda: self.note_seen(client, posted, seen), 120, "all jobs are seen in squeue", 0.05)
        acknowledged = [self.events(client, job)["attempt_submitted"] - posted[job] for job in posted]
        return {"Lockstep: accepted, durable": accepted,
                "Lockstep: acknowledged by Slurm": acknowledged,
                "Lockstep: seen by its poll of squeue (5 s)": list(seen.values()),
                "plain sbatch: its id": sbatches,
                "sbatch --version: the process alone": versions,
                "slurmrestd: POST job/submit": rests,
                "sbatch within Lockstep (mean)": [self.histogram(daemon, "sbatch")],
                "sbatch of the same script (mean)": sames}

    @staticmethod
    def until_submitted(client, job):
        def submitted():
            attempts = client.request("GET", f"/v1/jobs/{job}").get("attempts")
            return attempts and attempts[-1].get("scheduler_id")
        until(submitted, 30, f"{job} is in Slurm", 0.01)

    @staticmethod
    def note_seen(client, posted, seen):
        """When a job first shows squeue's reason; looked at once a turn, about every 100 ms. True when
        all do."""
        items = client.request("GET", "/v1/jobs?limit=1000")["items"]
        now = time.time()
        for item in items:
            reason = item.get("pending_reason", "")
            if "higher priority" in reason or "enough nodes are free" in reason:
                seen.setdefault(item["id"], now - posted[item["id"]])
        return len(seen) == len(posted)

    # --- 1, 3: many at once

    def throughput(self):
        kinds = {"Lockstep: accepted, durable": self.lockstep_rate,
                 "slurmrestd: POST job/submit": self.rest_rate, "plain sbatch": self.sbatch_rate,
                 "Lockstep: reaching Slurm, submit rate 1000": lambda: self.reach_rate(300, 1000),
                 "Lockstep: reaching Slurm, the default of 20": lambda: self.reach_rate(60, 20)}
        rates = {}
        for _ in range(self.options.rounds):
            for name, measure in kinds.items():
                self.fresh()
                self.block()
                rates.setdefault(name, []).append(measure())
        for name, values in rates.items():
            clients = "" if "reaching" in name else f" ({CLIENTS} clients)"
            self.table.add(name + clients, values, "/s")
        accepted, posted = (rates[name] for name in list(kinds)[:2])
        self.table.add(f"ratio: Lockstep accepts / slurmrestd ({CLIENTS} clients)",
                       [a / b for a, b in zip(accepted, posted)], "×")

    def wrk(self, url, headers, document, seconds):
        """(good answers, the seconds it took)."""
        command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", "-s", TESTS / "bench" / "post_jobs.lua",
                   "-H", "Content-Type: application/json"]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        out = subprocess.run([*command, url, "--", json.dumps(document)], capture_output=True,
                             text=True, check=True).stdout
        total, took = re.search(r"(\d+) requests in ([\d.]+)s", out).groups()
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
        if bad:
            raise RuntimeError(f"{url}: {out}")
        return int(total), float(took)

    def lockstep_rate(self):
        with self.lockstep() as daemon:
            total, took = self.wrk(f"{daemon.url}/v1/jobs", {"Authorization": f"Bearer {daemon.token}"},
                                   SPEC, 1)
            until(lambda: daemon.metric("lockstep_jobs_submitted_total") >= total, 20, "all are counted")
        return total / took

    def queued(self):
        return len(self.cluster.run("squeue", "-h", "-r").stdout.splitlines())

    def rest_rate(self):
        before = self.queued()
        total, took = self.wrk(self.cluster.rest_url + SUBMIT, self.rest_headers(),
                               self.rest_document(), 3)
        new = self.queued() - before  # answers in the air at the end count on Slurm's side alone
        if not total <= new <= total + CLIENTS:
            raise RuntimeError(f"slurmrestd answered {total} times 200, but {new} jobs are new")
        return total / took

    def sbatch_rate(self):
        plain = self.plain_script()
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self.sbatch, [plain] * JOBS))
        return JOBS / (time.monotonic() - begun)

    def reach_rate(self, count, limit):
        """Jobs a second that Slurm acknowledges, of jobs that were all accepted before."""
        with self.lockstep("--slurm-submit-rate", str(limit)) as daemon:
            client = self.client(daemon)
            jobs = [client.request("POST", "/v1/jobs", SPEC)["id"] for _ in range(count)]
            until(lambda: self.slurm_has(client) == count, 120, "all are in Slurm", 0.2)
            times = sorted(self.events(client, job)["attempt_submitted"] for job in jobs)
            return (count - 1) / (times[-1] - times[0])

    @staticmethod
    def slurm_has(client):
        items = client.request("GET", "/v1/jobs?limit=1000")["items"]
        return sum(1 for job in items if (job.get("attempts") or [{}])[-1].get("scheduler_id"))

    # --- 4: what following costs

    def polling(self):
        self.fresh()
        self.block()
        with self.lockstep() as daemon:
            accepted = 0
            for own, others in ((1, 0), (1000, 0), (1000, 9000)):
                client = self.client(daemon)  # the one before was idle for a minute
                begun, before = time.monotonic(), self.reading(daemon)
                for _ in range(own - accepted):
                    client.request("POST", "/v1/jobs", SPEC)
                until(lambda own=own, client=client: self.slurm_has(client) == own, 300,
                      f"{own} in Slurm", 0.5)
                if own - accepted > 1:
                    reads = self.reading(daemon)[-1] - before[-1]
                    self.table.add(f"reads of Slurm a second while {own - accepted} are handed over",
                                   [reads / (time.monotonic() - begun)], "/s", 0.5,
                                   higher_is_better=False)
                accepted = own
                for _ in range(others // 1000):
                    self.held_jobs(1000)
                if self.queued() != own + others + 1:
                    raise RuntimeError(f"{self.queued()} jobs are in the queue")
                self.watch(daemon, own + others)

    def held_jobs(self, count):
        """Jobs of the same user as an array that is split at once: a record and a line each, as 1,000
        sbatches would make, in 50 ms."""
        number = self.cluster.sbatch(SCRIPT, "--hold", f"--array=0-{count - 1}")
        self.cluster.run("scontrol", "update", f"JobId={number}_[0-{count - 2}]", "Nice=1")

    def watch(self, daemon, jobs):
        """A minute beside a quiet queue."""
        walls, own, total = [], [], None
        begun = time.monotonic()
        for _ in range(WINDOWS):
            first = self.reading(daemon)
            end = time.monotonic() + 60 / WINDOWS
            until(lambda end=end: time.monotonic() > end, 60, "a window", 0.1)
            last = self.reading(daemon)
            window = [b - a for a, b in zip(first, last)]
            polls, seconds, cpu = window[:3]
            if polls < 1:
                raise RuntimeError("no poll in a window")
            walls.append(1000 * seconds / polls)
            own.append(1000 * cpu / polls)
            total = [a + b for a, b in zip(total or [0] * len(window), window)]
        name = f"queue of {jobs:,}: "
        self.table.add(name + "one poll, wall time of squeue", walls, "ms")
        self.table.add("  lockstepd's CPU per poll, all it does", own, "ms")
        self.table.add("  CPU of the squeue processes per poll", [1000 * total[3] / total[0]], "ms")
        self.table.add("  lockstepd's CPU, all it does, of one core",
                       [100 * total[2] / (time.monotonic() - begun)], "%")
        self.table.add("  reads of Slurm a second, over a minute", [total[4] / (time.monotonic() - begun)],
                       "/s", 0.5, higher_is_better=False)

    def reading(self, daemon):
        """(polls, their seconds, CPU seconds of lockstepd, of its programs, reads of Slurm)."""
        text = daemon.text("/metrics")
        def value(name, program):
            found = re.findall(rf'lockstep_slurm_{name}{{program="{program}"[^}}]*}} (\S+)', text)
            return sum(map(float, found))
        process = pathlib.Path(f"/proc/{daemon.process.pid}")
        stat = (process / "stat").read_text().rpartition(")")[2].split()
        own = sum(int(task.read_text().split()[0]) for task in process.glob("task/*/schedstat"))
        return (value("call_duration_seconds_count", "squeue"),
                value("call_duration_seconds_sum", "squeue"),
                own / 1e9, (int(stat[13]) + int(stat[14])) / os.sysconf("SC_CLK_TCK"),
                sum(value("calls_total", name) for name in ("squeue", "sacct", "scontrol", "sinfo")))

    # --- 5: from acceptance to running ranks

    def launches(self):
        self.fresh()
        with self.lockstep() as daemon:
            client = self.client(daemon)
            rows = {"Lockstep": [], "plain sbatch and srun": []}
            for number in range(LAUNCHES):
                folder = self.cluster.shared / f"launch-{number}"
                for kind in rows:
                    (folder / kind.split()[0]).mkdir(parents=True)
                rows["Lockstep"].append(self.launch(daemon, client, folder / "Lockstep"))
                rows["plain sbatch and srun"].append(self.plain_launch(folder / "plain"))
        for name, values in rows.items():
            self.table.add(f"{name}: submission to both ranks running, p50",
                           [1000 * value for value in values], "ms")
            self.table.add("  p99", [1000 * percentile(values, 99)], "ms")
        self.table.add("ratio, medians: Lockstep / plain",
                       [statistics.median(rows["Lockstep"]) /
                        statistics.median(rows["plain sbatch and srun"])], "×")

    def both(self, folder, wall):
        def there():
            texts = [path.read_text() for path in folder.glob("[01]")]
            return len(texts) == 2 and all(text.endswith("\n") for text in texts) and texts
        return max(int(text) for text in until(there, 60, "both ranks run")) / 1e9 - wall

    def launch(self, daemon, client, folder):
        spec = {**SPEC, "command": ["/bin/sh", "-c", f"date +%s%N > {folder}/$RANK"],
                "resources": {**SPEC["resources"], "nodes": 2}}
        wall = time.time()
        job = client.request("POST", "/v1/jobs", spec)["id"]
        took = self.both(folder, wall)
        daemon.wait_state(job, "succeeded")
        self.idle()
        return took

    def plain_launch(self, folder):
        step = f"srun -N2 -n2 sh -c 'date +%s%N > {folder}/$SLURM_PROCID'"
        script = self.plain_script(f"#!/bin/sh\n#SBATCH -N2 -t10\n{step}\n", "launch.sh")
        wall = time.time()
        self.sbatch(script)
        took = self.both(folder, wall)
        self.idle()
        return took

    def idle(self):
        until(lambda: not self.cluster.run("squeue", "-h").stdout, 60, "no jobs", 0.1)
        self.cluster.wait_until_idle()


def measure(table, options):
    """Called by tests/bench/run."""
    from cluster import SlurmCluster, Unavailable
    try:
        with SlurmCluster(**SETTINGS) as cluster:
            bench = Bench(table, options, cluster)
            load = os.getloadavg()[0]
            print(f"slurm: {cluster.run('sbatch', '--version').stdout.strip()}, {os.cpu_count()} cores, "
                  f"load before it {load:.2f}", flush=True)
            for part in (bench.launches, bench.submissions, bench.throughput, bench.polling):
                part()
                print(f"slurm: load {os.getloadavg()[0]:.2f}", flush=True)
    except Unavailable as why:
        print(f"slurm: SKIPPED: no Slurm here: {why}")
