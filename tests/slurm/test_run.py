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

    def test_render_says_when_it_would_start(self):
        (self.work / "job.yaml").write_text("name: later\nframework: command\ncommand: [\"true\"]\n"
                                            "resources: {nodes: 4, time_limit: 10}\n")
        self.assertEqual(self.lockstep("run", "--wait", "true").returncode, 0)
        shown = self.lockstep("render", "job.yaml")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r"start_estimate\n  start=\d{4}-\d\d-\d\dT[\d:.]+Z\n  nodes=\"n\[1-4\]\"\n")


if __name__ == "__main__":
    main()
