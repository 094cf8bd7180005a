"""A Slurm with its factory settings to the last line, its waits included: what a job is given by
Lockstep is what the same user's own sbatch gives, and whatever sbatch says, its job runs once, soon."""

import json
import resource
import time

from harness import wait_until
from lockstep_slurm import SlurmTestCase, command_spec, main
from lying_sbatch import MODES, LyingSbatch

FACTORY = {"nodes": 2, "options": {"SchedulerParameters": None}}

# What a process has of its parents: all limits, soft and hard, and the rest of what travels so.
LOOK = """
import json, os, resource, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
seen = {f"limit {number}": resource.prlimit(0, number) for number in range(16)}  # RLIM_NLIMITS of Linux
seen |= {name: status[name].strip() for name in ("SigBlk", "Umask", "NoNewPrivs", "Seccomp",
                                                 "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Groups")}
# Python itself ignores SIGPIPE and SIGXFSZ. Handlers do not travel: a rank's Python has those of faulthandler.
ignored = int(status["SigIgn"], 16) & ~(1 << signal.SIGPIPE - 1) & ~(1 << signal.SIGXFSZ - 1)
seen |= {"SigIgn": ignored, "nice": os.nice(0), "scheduler": os.sched_getscheduler(0),
         "affinity": sorted(os.sched_getaffinity(0)),
         "oom_score_adj": open("/proc/self/oom_score_adj").read().strip()}
with open(sys.argv[1] + "." + (os.environ.get("LOCKSTEP_NODE_RANK") or os.environ["SLURM_PROCID"]), "w") as out:
    json.dump(seen, out)
"""


class Given(SlurmTestCase):
    settings = FACTORY

    def setUp(self):
        super().setUp()
        self.look = self.daemon.root / "look.py"
        self.look.write_text(LOOK)

    def read(self, name):
        return {number: json.loads((self.daemon.root / f"{name}.{number}").read_text()) for number in "01"}

    def own(self, *before):
        """What the tests' user gets of an sbatch and srun of his own."""
        path = self.daemon.root / "own.sh"
        path.write_text(f"#!/bin/sh\nsrun --ntasks-per-node=1 /usr/bin/python3 {self.look} "
                        f"{self.daemon.root}/own\n")
        number = self.cluster.run(*before, "sbatch", "--parsable", "-N2", str(path)).stdout.strip()
        self.cluster.wait_job(number, "COMPLETED", seconds=60)
        return self.read("own")

    def ours(self, launch):
        name = f"ours-{launch}"
        job = self.daemon.submit({**command_spec("", 2), "launch": launch,
                                  "command": ["/usr/bin/python3", str(self.look), str(self.daemon.root / name)]})
        self.daemon.wait_state(job["id"], "succeeded", 90)
        return self.read(name)

    def same(self, ours, own):
        other = {f"{key} of {rank}": (ours[rank][key], value) for rank, seen in own.items()
                 for key, value in seen.items() if ours[rank][key] != value}
        self.assertEqual(other, {}, "ours, and of the user's own sbatch")

    def test_a_ranks_limits_masks_and_priority_are_those_of_the_users_own_sbatch(self):
        own = self.own()
        self.assertEqual(len([name for name in own["0"] if name.startswith("limit ")]), 16)
        for launch in ("rank", "node", "task"):
            with self.subTest(launch=launch):
                self.same(self.ours(launch), own)

    def test_limits_and_umask_that_lockstepd_was_started_with_are_the_jobs_as_with_sbatch(self):
        before = ("prlimit", "--nofile=700:", "--core=0:", "--stack=4194304:", "--fsize=99000000:",
                  "sh", "-c", 'umask 027; exec "$@"', "sh")
        own = self.own(*before)
        self.assertEqual((own["0"][f"limit {resource.RLIMIT_NOFILE}"][0], own["0"]["Umask"]), (700, "0027"))
        plain = self.daemon.command
        self.daemon.command = lambda: [*before, *plain()]
        self.daemon.restart()
        self.same(self.ours("rank"), own)

    def test_a_rank_writes_64_mebibytes(self):
        path = self.daemon.root / "large"
        job = self.daemon.submit(command_spec(f"head -c 67108864 /dev/zero > {path}"))["id"]
        done = self.daemon.wait_state(job, ("succeeded", "failed"), 60)
        self.assertEqual((done["state"], done.get("cause")), ("succeeded", None))
        self.assertEqual(path.stat().st_size, 64 << 20)


class Lies(SlurmTestCase):
    """With the credential's lifetime as Slurm has it: three minutes that nobody must wait for."""
    settings = FACTORY
    arguments = ("--slurm-submit-rate", "200")

    def test_whatever_sbatch_says_the_job_is_taken_up_within_seconds_and_runs_once(self):
        lie = LyingSbatch(self.daemon.root / "bin")
        self.daemon.bin_dir = lie.folder
        self.daemon.restart()
        starts = self.daemon.root / "starts"
        took, jobs = {}, {}
        for mode in MODES:
            lie.mode = mode
            begun = time.monotonic()
            job = self.daemon.submit({**command_spec(f"echo {mode} >> {starts}"), "name": mode})["id"]
            jobs[mode] = job
            self.slurm_id(job)
            wait_until(lambda: starts.exists() and mode in starts.read_text().split(), 60, f"{mode} runs")
            took[mode] = round(time.monotonic() - begun, 1)
        print("seconds from POST to the rank's first line:", took, flush=True)
        for mode, job in jobs.items():
            self.daemon.wait_state(job, "succeeded", 60)
            self.assertEqual(len(self.slurm_states(job)), 1, mode)
        self.assertEqual(sorted(starts.read_text().split()), sorted(MODES))
        self.assertLess(max(took.values()), 25, took)


if __name__ == "__main__":
    main()
