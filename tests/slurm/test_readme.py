"""README's line for Slurm, submitted as it stands there to a Slurm with a partition `gpu` of four nodes with eight GPUs
each, which are only counted. Its other lines run on one machine: tests/integration/test_documents.py."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import harness
from cluster import SlurmCluster
from harness import BIN
from lockstep_slurm import SlurmDaemon, main

README = (harness.SOURCE / "README.md").read_text()


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster(nodes=4, cpus=8, gpus=8).start()
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.run("scontrol", "create", "PartitionName=gpu", "Nodes=ALL", "State=UP")

    def test_the_line_for_slurm_runs_32_ranks(self):
        lines = re.findall(r"^(lockstep run .*? -p .*?)\s+#.*", README, re.MULTILINE)
        self.assertEqual(len(lines), 1, lines)
        root = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=self.cluster.shared))
        daemon = SlurmDaemon(root, self.cluster)
        self.addCleanup(daemon.clean_up)
        self.addCleanup(self.cluster.run, "scancel", "--user=root", check=False)
        daemon.start()
        work = root / "run"
        work.mkdir()
        (work / "python").symlink_to(harness.PYTHON)
        # 32 torches are too much for one machine: the script only says where it is.
        (work / "train.py").write_text("import os\n"
                                       "print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'],"
                                       " os.environ['CUDA_VISIBLE_DEVICES'])\n"
                                       "print('step=1 loss=0.5', flush=True)\n")
        environment = {**daemon.environment(), "LOCKSTEP_URL": daemon.url, "LOCKSTEP_TOKEN": daemon.token}
        environment["PATH"] = os.pathsep.join((str(BIN), str(work), environment["PATH"]))
        done = subprocess.run(["/bin/sh", "-c", lines[0]], cwd=work, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60 * harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        job = done.stdout.split()[0]
        daemon.wait_state(job, "succeeded", 120)
        spec = daemon.text(f"/v1/jobs/{job}/script")
        self.assertRegex(spec, r"#SBATCH --partition=.?gpu")
        self.assertIn("#SBATCH --gpus-per-node=8", spec)
        self.assertEqual(len(daemon.series(job)), 32, json.dumps(daemon.job(job), indent=1))
        gpus = ",".join(map(str, range(8)))
        for rank in (0, 9, 31):
            self.assertIn(f"{rank} 32 {rank % 8} {gpus}\n", daemon.rank_log(job, rank))


if __name__ == "__main__":
    main()
