"""lockstep run on a real Slurm of four hosts, as somebody who knows torchrun and has a virtual environment:
one command, no specification, no lockstepd that runs already."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import harness
from cluster import SlurmCluster
from harness import BIN
from lockstep_slurm import main


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster(nodes=4).start()
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="home-", dir=self.cluster.shared))
        self.work = self.home / "run"
        self.work.mkdir()
        self.addCleanup(self.end)

    def end(self):
        self.cluster.run("scancel", "--user=root", check=False)
        for pid in harness.processes_with(str(self.home)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            log = self.home / ".local/share/lockstep/lockstepd.log"
            print(log.read_text()[-6000:] if log.exists() else "no log")

    def environment(self, **more):
        """A shell on the login node: Slurm's programs are on PATH, nothing of Lockstep is set."""
        own = {name: value for name, value in os.environ.items()
               if not name.startswith(("LOCKSTEP_", "XDG_", "PYTHON", "SLURM"))}
        return {**own, **self.cluster.env(), "HOME": str(self.home), **more}

    def lockstep(self, *arguments, env=None, seconds=180):
        return subprocess.run([BIN / "lockstep", *arguments], capture_output=True, text=True, check=False,
                              timeout=seconds, cwd=self.work, env=env or self.environment())

    @unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
    def test_a_torchrun_user_with_a_virtual_environment_trains_on_four_hosts_in_one_command(self):
        venv = self.home / "venv"
        subprocess.run([harness.PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", venv], check=True)
        packages = next((venv / "lib").glob("python3*")) / "site-packages"
        (packages / "only_in_the_venv.py").write_text("")
        script = (harness.FIXTURES / "ddp_digits.py").read_text()
        (self.work / "train.py").write_text(script.replace("import os\n", "import os\nimport only_in_the_venv\n", 1))
        env = self.environment(VIRTUAL_ENV=str(venv), PATH=f"{venv}/bin:{self.environment()['PATH']}",
                               WANDB_API_KEY="hush-hush")
        done = self.lockstep("run", "-N", "4", "-t", "10:00", "--wait", "--", "python", "train.py", env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("scheduler slurm", done.stderr)
        self.assertIn("pytorch: train.py imports torch.distributed", done.stderr)
        job = done.stdout.split()[0]
        ranks = json.loads(self.lockstep("ranks", job, "--json").stdout)["items"]
        self.assertEqual([rank["node"] for rank in ranks], ["n1", "n2", "n3", "n4"])
        for rank in range(4):
            log = self.lockstep("logs", job, "--rank", str(rank)).stdout
            self.assertIn(f"rank {rank} of 4, local 0", log)
        series = json.loads(self.lockstep("series", job, "loss", "--json").stdout)["series"]
        self.assertEqual(len(series), 4)
        for one in series:
            self.assertLess(one["points"][-1][3], one["points"][0][3])
        script = self.lockstep("script", job).stdout
        self.assertNotIn("train.py", script)
        self.assertNotIn("hush-hush", script)

    def test_setup_runs_on_every_host_and_never_stands_in_the_script(self):
        (self.home / ".bash_profile").write_text("module() { export LOADED=\"$2 on $SLURMD_NODENAME\"; }\n")
        (self.work / "show.sh").write_text('echo "$LOADED, $WORD"\n')
        done = self.lockstep("run", "-N", "2", "--setup", "module load cuda/12", "--wait", "sh", "show.sh",
                             env=self.environment(WORD="carried"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        job = done.stdout.split()[0]
        self.assertEqual(self.lockstep("logs", job, "--rank", "1").stdout, "cuda/12 on n2, carried\n")
        self.assertNotIn("module", self.lockstep("script", job).stdout)

    def test_a_sweep_is_a_slurm_job_a_point_of_which_no_more_run_than_may(self):
        (self.work / "train.sh").write_text(
            'echo "begin $SLURM_JOB_ID" >>points\necho "loss=$1 step=$2"\n'
            'until [ "$(grep -c begin points)" -ge 2 ]; do sleep 0.05; done\n'
            'echo "end $SLURM_JOB_ID" >>points\n')
        done = self.lockstep("run", "--wait", "-t", "10:00", "--sweep", "lr=0.5,0.25,0.125", "--sweep", "seed=1..2",
                             "--max-parallel", "2", "--", "sh", "train.sh", "{lr}", "{seed}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("the first of 6 jobs", done.stderr)
        lines = (self.work / "points").read_text().splitlines()
        running, most = set(), 0
        for what, number in (line.split() for line in lines):
            (running.add if what == "begin" else running.remove)(number)
            most = max(most, len(running))
        self.assertEqual(most, 2)  # the first two wait for each other
        self.assertEqual(len({line.split()[1] for line in lines}), 6)

        sweep = done.stdout.split()[0]
        table = json.loads(self.lockstep("jobs", "--sweep", sweep, "--json").stdout)["items"]
        self.assertEqual({(job["sweep"]["parameters"]["lr"], job["sweep"]["parameters"]["seed"], job["state"])
                          for job in table}, {(lr, seed, "succeeded") for lr in (0.5, 0.25, 0.125) for seed in (1, 2)})
        shown = [line.split() for line in done.stdout.splitlines()[-6:]]
        self.assertEqual([words[1] for words in shown], ["0.125", "0.125", "0.25", "0.25", "0.5", "0.5"])

    def test_what_runs_and_waits_of_a_sweep_is_gone_from_slurm_when_it_is_cancelled(self):
        begun = self.lockstep("run", "--detach", "-N", "2", "-c", "8", "-t", "10:00", "--sweep", "lr=1,2,3,4",
                              "--max-parallel", "3", "--", "sh", "-c", "touch started-{lr}; exec sleep 600")
        self.assertEqual(begun.returncode, 0, begun.stderr)
        sweep = begun.stdout.split()[0]

        def in_slurm():
            return self.cluster.run("squeue", "--noheader", "--format=%T").stdout.split()

        harness.wait_until(lambda: in_slurm().count("RUNNING") == 2 and "PENDING" in in_slurm(), 60,
                           "two points run and the third waits in Slurm")
        harness.wait_until(lambda: len(list(self.work.glob("started-*"))) == 2, 60, "and their ranks do")
        ended = self.lockstep("cancel", "--sweep", sweep)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        harness.wait_until(lambda: not [state for state in in_slurm() if state != "COMPLETING"], 60, "Slurm has none")

        def states():
            return [job["state"] for job in json.loads(self.lockstep("jobs", "--sweep", sweep, "--json").stdout)["items"]]

        harness.wait_until(lambda: states() == ["cancelled"] * 4, 30, "all of them are cancelled")
        self.assertEqual(len(list(self.work.glob("started-*"))), 2)

    def test_what_a_site_wants_of_every_job_needs_no_specification(self):
        # Where a feature or a reservation must be named, or the default memory is too little, nothing started without JSON.
        self.cluster.run("scontrol", "update", "NodeName=n[2-4]", "AvailableFeatures=fast", "ActiveFeatures=fast")
        self.cluster.run("scontrol", "create", "reservation", "ReservationName=course", "StartTime=now", "Duration=60",
                         "Users=root", "Nodes=n[2-3]")
        self.addCleanup(self.cluster.run, "scontrol", "delete", "ReservationName=course")
        site = ("-C", "fast", "--reservation", "course")
        done = self.lockstep("run", "--wait", *site, "--nodelist", "n3", "-x", "n[1,4]", "--exclusive", "--mem", "1G", "-t", "5", "--sbatch", "comment=thesis",
                             "--sbatch", "--nice=7", "--", "sh", "-c", 'scontrol show job "$SLURM_JOB_ID"')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        shown = dict(word.partition("=")[::2] for word in self.lockstep("logs", done.stdout.split()[0]).stdout.split())
        self.assertEqual({name: shown.get(name) for name in ("Features", "Reservation", "ReqNodeList", "ExcNodeList", "OverSubscribe",
                                                             "MinMemoryNode", "TimeLimit", "Comment", "Nice", "NodeList")},
                         {"Features": "fast", "Reservation": "course", "ReqNodeList": "n3", "ExcNodeList": "n[1,4]", "OverSubscribe": "NO",
                          "MinMemoryNode": "1G", "TimeLimit": "00:05:00", "Comment": "thesis", "Nice": "7", "NodeList": "n3"})

        checked = self.lockstep("nodes", "check", "--nodes", "2", *site)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn("2 nodes checked", checked.stdout)
        newest = json.loads(self.lockstep("jobs", "--json").stdout)["items"][0]["id"]
        spec = json.loads(self.lockstep("spec", newest, "--json").stdout)
        self.assertEqual((spec["slurm"], spec["resources"]["time_limit"]), ({"constraint": "fast", "reservation": "course"}, "00:15:00"))

        for words, said in ((("-C", "nix"), "Invalid feature specification"), (("--sbatch", "nodes=3"), "--sbatch nodes=3: "),
                            (("--mem", "64GB"), "--mem 64GB: must be memory as in 64G"), (("--mem", "900T"), "--mem "),
                            (("--nodelist", "n 1"), "--nodelist n 1: "), (("--gpu-type", "h100"), "--gpu-type h100: ")):
            with self.subTest(words):
                bad = self.lockstep("run", "--wait", *words, "--", "true")
                self.assertNotEqual(bad.returncode, 0)
                self.assertIn(said, bad.stdout + bad.stderr)

    def test_render_says_when_it_would_start(self):
        (self.work / "job.yaml").write_text("name: later\nframework: command\ncommand: [\"true\"]\n"
                                            "resources: {nodes: 4, time_limit: 10}\n")
        self.assertEqual(self.lockstep("run", "--wait", "true").returncode, 0)
        shown = self.lockstep("render", "job.yaml")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r"start_estimate\n  start=\d{4}-\d\d-\d\dT[\d:.]+Z\n  nodes=\"n\[1-4\]\"\n")


if __name__ == "__main__":
    main()
