"""What the tests of real frameworks share: the environments of deploy/install-frameworks, ordinary programs of each
framework (programs/), and what every one of them is asked: does it train, is each rank's loss seen, who is named for
an exception, does it go on after a rank is killed.

A test says what it saw with self.saw(); tests/frameworks/run makes the table of it. With LOCKSTEP_FRAMEWORKS_SLURM=1
those marked with @on_slurm, the framework's main ways, are asked on a real Slurm of two hosts (tests/slurm) instead of
the local scheduler: what would be two ranks on one node is one on each there. With LOCKSTEP_FRAMEWORKS_FEW=1, as
`tests/run` has it, those marked with @in_every_run are asked and no other.
"""

import atexit
import gzip
import importlib.metadata
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest

import harness

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
ENVIRONMENTS = pathlib.Path(os.environ.get("LOCKSTEP_FRAMEWORKS", harness.SOURCE / "build" / "frameworks"))
LISTS = harness.SOURCE / "deploy" / "frameworks"
MEASURED = {"LOCKSTEP_PYTHON_HOOKS": "measure"}
SECONDS = 300  # for a job; most take 10 to 30 of them on two cores
SLURM = os.environ.get("LOCKSTEP_FRAMEWORKS_SLURM") == "1"
FEW = os.environ.get("LOCKSTEP_FRAMEWORKS_FEW") == "1"
HOSTS = 2


def on_slurm(test):
    """Marks one of a framework's main ways: it is asked on a real Slurm as well."""
    test.on_slurm = True
    return test


def in_every_run(test):
    """Marks the few of a framework that `tests/run` has time for."""
    test.in_every_run = True
    return test


def is_installed(name):
    """As its list is now, and whole: not what an installation left that was ended."""
    try:
        return (ENVIRONMENTS / name / "installed.txt").read_bytes() == (LISTS / f"{name}.txt").read_bytes()
    except FileNotFoundError:
        return False


def start_cluster():
    """One for all tests of the process; SystemExit 77 where there is no Slurm."""
    from cluster import SlurmCluster, Unavailable  # tests/slurm, which is on the path of this run alone
    try:
        cluster = SlurmCluster(nodes=HOSTS).start()
    except Unavailable as why:
        print(f"SKIPPED: no Slurm here: {why}", file=sys.stderr)
        sys.exit(77)
    atexit.register(cluster.stop)
    return cluster


class Framework(harness.TestCase):
    """Jobs of the programs of one environment."""

    ENVIRONMENT = ""
    cluster = None

    @classmethod
    def python(cls):
        return ENVIRONMENTS / cls.ENVIRONMENT / "bin" / "python"

    def setUp(self):
        if not is_installed(self.ENVIRONMENT):
            self.skipTest(f"{self.ENVIRONMENT} is not installed: deploy/install-frameworks {self.ENVIRONMENT}")
        if not SLURM:
            super().setUp()
            return
        from lockstep_slurm import SlurmDaemon
        if Framework.cluster is None:
            Framework.cluster = start_cluster()
        self.cluster.wait_until_idle()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=self.cluster.shared))
        self.daemon = SlurmDaemon(self.root, self.cluster)
        self.addCleanup(self.end_slurm_jobs)
        self.addCleanup(self._finish)
        self.daemon.start()

    def end_slurm_jobs(self):
        def none():
            self.cluster.run("scancel", "--user=root", check=False)
            return not self.cluster.run("squeue", "-h").stdout
        harness.wait_until(none, 60, "no jobs")

    @classmethod
    def version(cls, *packages):
        """'torch 2.15.0 lightning 2.6.6'"""
        path = [str(folder) for folder in (ENVIRONMENTS / cls.ENVIRONMENT / "lib").glob("python3*/site-packages")]
        found = []
        for package in packages:
            distribution = next(iter(importlib.metadata.distributions(name=package, path=path)))
            found.append(f"{package} {distribution.version}")
        return " ".join(found)

    def saw(self, packages, mode, what):
        """A row of the table: 'torch', 'DDP', '2 × 2 ranks: …'."""
        table = os.environ.get("LOCKSTEP_FRAMEWORKS_TABLE")
        if table:
            with open(table, "a", encoding="utf-8") as file:
                file.write(json.dumps([self.version(*packages.split()), mode, SLURM, what]) + "\n")

    def assert_callback(self, which, *arguments, ranks=2, steps=8, metrics=(), framework="command", **fields):
        """programs/with_callbacks.py: every rank reports `steps` losses and these metrics."""
        job = self.trains(framework, "with_callbacks.py", which, *arguments, ranks=ranks, **fields)
        for metric in ("loss", *metrics):
            series = self.daemon.series(job, metric)
            self.assertEqual(sorted(series), list(range(ranks)), metric)
            for points in series.values():
                # Of the first step nobody knows when it began.
                self.assertIn(len(points), (steps, steps - 1) if metric.endswith("_seconds") else (steps,), (metric, points))
        return job

    # --- jobs -------------------------------------------------------------------------------
    def submit(self, framework, program, *arguments, nodes=1, ranks=2, **fields):
        """A job of programs/<program>, or of a list of words for the environment's Python."""
        resources = {"nodes": nodes, "ranks_per_node": ranks}
        if SLURM:
            resources = {**self.shape(nodes, ranks), "time_limit": "00:20:00"}
        words = [str(PROGRAMS / program)] if isinstance(program, str) else [str(word) for word in program]
        return self.daemon.submit({
            "name": "real", "framework": framework, "resources": resources,
            "command": [str(self.python()), *words, *map(str, arguments)], **fields})["id"]

    @staticmethod
    def shape(nodes, ranks):
        """The nodes and ranks a node of a job that has `nodes` × `ranks` without Slurm."""
        if SLURM and nodes == 1 and ranks % HOSTS == 0:
            nodes, ranks = HOSTS, ranks // HOSTS
        return {"nodes": nodes, "ranks_per_node": ranks}

    def ends(self, job, state="succeeded"):
        done = self.daemon.wait_state(job, harness.FINAL, SECONDS)
        self.assertEqual(done["state"], state, json.dumps(done.get("cause"), indent=1))
        return done

    def trains(self, framework, program, *arguments, **fields):
        """The job's id once it has succeeded and no warning says that its ranks trained by themselves."""
        job = self.submit(framework, program, *arguments, **fields)
        done = self.ends(job)
        self.assertEqual([text for text in done.get("warnings", []) if "share cores" not in text], [])
        return job

    def assert_run(self, program, ranks):
        """`lockstep run -n 2 -- python program`, without a specification."""
        self.daemon.cli("run", "-n", len(ranks), "--", self.python(), PROGRAMS / program, seconds=SECONDS)
        job = self.daemon.get("/v1/jobs?limit=1")["items"][0]["id"]
        self.ends(job)
        self.assert_losses(job, ranks)

    def assert_losses(self, job, ranks, least=2):
        """These ranks, and no others, have a loss, and it falls."""
        series = self.daemon.series(job)
        self.assertEqual(sorted(series), list(ranks))
        for rank, points in series.items():
            self.assertGreaterEqual(len(points), least, (rank, points))
            self.assertLess(points[-1][3], points[0][3], (rank, points))
        return series

    def assert_logs(self, job, *lines, ranks=2):
        """Line number r is in the log of rank r."""
        for rank, line in zip(range(ranks), lines):
            self.assertIn(line, self.daemon.rank_log(job, rank))

    def assert_culprit(self, framework, program, *arguments, rank=1, text="", **fields):
        """An exception of one rank: that rank is the cause, with its words, whatever the others said."""
        job = self.submit(framework, program, *arguments, **fields)
        cause = self.ends(job, "failed")["cause"]
        self.assertEqual(cause.get("rank"), rank, json.dumps(cause, indent=1))
        self.assertIn(text, cause["message"])
        return cause

    def assert_stuck(self, framework, program, *arguments, rank=1, **fields):
        """A rank that waits for something else than the others: it is named, with the line it is at."""
        job = self.submit(framework, program, "--stuck", rank, *arguments, watch={"hang_seconds": 8},
                          recovery={"max_restarts": 0, "on": ["hang"]}, **fields)
        cause = self.ends(job, "failed")["cause"]
        self.assertEqual((cause["class"], cause.get("rank")), ("hang", rank), json.dumps(cause, indent=1))
        self.assertRegex(cause["message"], rf"rank {rank} alone is in {program}:\d+ read_forever")

    def profile(self, job, ranks=2):
        """What lockstep profile says of these ranks, and of each: the names in its trace, its table and its stacks, or ""."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        done = self.daemon.cli("profile", job, "--ranks", f"0-{ranks - 1}", "--seconds", "2", "--output", folder, seconds=200)

        def read(rank, name):
            path = folder / f"rank-{rank:05d}.{name}"
            return path.read_bytes() if path.exists() else b""

        out = []
        for rank in range(ranks):
            packed = read(rank, "trace.json.gz")
            trace = json.loads(gzip.decompress(packed)) if packed else {"traceEvents": []}
            names = {event.get("name", "") for event in trace["traceEvents"]}
            out.append((names, read(rank, "operations.txt").decode(), read(rank, "stacks.txt").decode()))
        return done.stderr, out

    def assert_trains_on(self, job):
        step = self.daemon.get(f"/v1/jobs/{job}").get("step", 0)
        self.daemon.wait_for(job, lambda one: one.get("step", 0) > step + 10, 60, "it goes on")

    def assert_own_profile(self, framework, program):
        """A script that profiles itself, until the file `first` is there, and then again and again until `stop` is: ours is
        not begun, or ends, and every recording of its own is whole, as it writes itself."""
        work = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        (work / "train.py").write_text(program)
        job = self.submit(framework, [work / "train.py"], working_directory=str(work))
        self.daemon.wait_state(job, "running")
        harness.wait_until(lambda: all((work / f"begun.{rank}").exists() for rank in range(2)), SECONDS,
                           "it profiles itself")
        said, recorded = self.profile(job)
        self.assertIn(f"no trace: the script's own {framework} profiler is on", said)
        for names, table, stacks in recorded:
            self.assertEqual((names, table), (set(), ""), said)
            self.assertIn("train.py:", stacks)
        (work / "first").touch()
        harness.wait_until(lambda: len(list(work.glob("own.*"))) == 2, 60, "its recording is whole")
        said, recorded = self.profile(job)
        for rank in range(2):
            before = (work / f"own.{rank}").stat().st_size
            harness.wait_until(lambda: (work / f"own.{rank}").stat().st_size > before, 60, f"rank {rank} goes on")
        (work / "stop").touch()
        self.ends(job)

    def assert_goes_on(self, framework, program, *arguments, rank=1, after=8, checkpoint=None, **fields):
        """Rank `rank` is killed once the job has a checkpoint: a second generation resumes and succeeds."""
        job = self.submit(framework, program, *arguments, recovery={"max_restarts": 1}, environment=self.held(), **fields)

        def is_on_its_way():
            steps = max((points[-1][0] for points in self.daemon.series(job).values() if points), default=0)
            return steps >= after and (checkpoint is None or checkpoint())

        harness.wait_until(is_on_its_way, SECONDS, "the job is on its way")
        self.kill_rank(job, rank)
        return self.assert_restarted(job, rank)

    def held(self):
        """The environment of a job whose ranks stay, trained, until kill_rank() has killed one."""
        return {"HELD_UNTIL": str(self.root / "released")}

    def kill_rank(self, job, rank):
        ranks = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]
        os.kill(next(item["pid"] for item in ranks if item["rank"] == rank), signal.SIGKILL)
        (self.root / "released").touch()

    def assert_restarted(self, job, rank):
        generations = self.ends(job)["attempts"][-1]["generations"]
        self.assertEqual(len(generations), 2, generations)
        cause = generations[0]["cause"]
        self.assertEqual((cause["rank"], cause["signal"]), (rank, signal.SIGKILL), cause)
        return job


class Marked(unittest.TestLoader):
    """Only what has this mark; a test that is named is run in any case."""

    def __init__(self, mark):
        super().__init__()
        self.mark = mark
        self.left_out = 0

    def getTestCaseNames(self, testCaseClass):
        names = super().getTestCaseNames(testCaseClass)
        marked = [name for name in names if hasattr(getattr(testCaseClass, name), self.mark)]
        self.left_out += len(names) - len(marked)
        return marked


def main():
    """77, which ctest shows as skipped, where nothing was asked, say because no environment is installed."""
    wanted = {one.ENVIRONMENT: one for one in vars(sys.modules["__main__"]).values()
              if isinstance(one, type) and issubclass(one, Framework) and one.ENVIRONMENT}
    missing = [name for name in wanted if not is_installed(name)]
    if missing:
        print(f"SKIPPED: not installed (deploy/install-frameworks {' '.join(missing)})", file=sys.stderr)
    if len(missing) == len(wanted):
        sys.exit(77)
    marked = Marked("on_slurm" if SLURM else "in_every_run") if SLURM or FEW else None
    result = unittest.main(verbosity=2, exit=False, testLoader=marked or unittest.defaultTestLoader).result
    if marked and marked.left_out and not SLURM:
        name = pathlib.Path(sys.argv[0]).stem.removeprefix("test_")
        print(f"{marked.left_out} more: tests/frameworks/run {name}", file=sys.stderr)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == len(result.skipped):
        print("SKIPPED: no test was run", file=sys.stderr)
        sys.exit(77)
