"""The file system of the ranks' logs hangs, as a file server does: really frozen (fsfreeze), an ext4 of its own. Needs root and a
loop device; without them it is skipped and says so."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import harness

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
import chaos  # noqa: E402

SILENCE = 4  # seconds, limits::kAgentSilence: where a spare waits a node is lost then
PRINTS = 'i=0; until [ -e "$0" ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done; echo "line $i, the last"'


class FrozenLogs(harness.TestCase):
    def setUp(self):
        if os.geteuid() != 0 or not all(map(shutil.which, ("mkfs.ext4", "fsfreeze", "mount"))):
            raise unittest.SkipTest("needs root, mkfs.ext4 and fsfreeze")
        self.place = tempfile.mkdtemp(prefix="lockstep-test-frozen-")
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        image, self.mounted = f"{self.place}/image", f"{self.place}/runs"
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        os.mkdir(self.mounted)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        done = subprocess.run(["mount", "-o", "loop", image, self.mounted], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise unittest.SkipTest(f"needs a loop device: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.mounted], check=False)
        self.DAEMON_ARGUMENTS = ("--runs-dir", f"{self.mounted}/runs")
        super().setUp()
        self.addCleanup(self.thaw)

    def thaw(self):
        subprocess.run(["fsfreeze", "--unfreeze", self.mounted], capture_output=True, check=False)

    def cut_agents(self, job):
        """The agents have something to log, which goes to that file system, too."""
        port = int(self.daemon.url.rpartition(":")[2])
        for claim in [one for one in self.daemon.events(job) if one["kind"] == "agent_claimed"]:
            self.assertTrue(chaos.cut(claim["data"]["pid"], lambda peer: peer[1] == port if isinstance(peer, tuple)
                                      else os.path.basename(peer) in chaos.SOCKETS), claim)

    def test_no_node_is_lost_and_no_line(self):
        # The agent wrote them on its only thread, its own log, too: it fell silent, and the spare took the ranks of a healthy
        # node.
        why_not = chaos.why_not()
        if why_not:
            self.skipTest(f"no connection can be cut here: {why_not}")
        end = self.root / "end"
        job = self.daemon.submit(harness.command_job("prints", "/bin/sh", "-c", PRINTS, end, recovery={},
                                                     resources={"nodes": 2, "spares": 1}))["id"]
        self.daemon.wait_state(job, "running")
        for rank in (0, 1):
            harness.wait_until(lambda rank=rank: "line 20\n" in self.daemon.rank_log(job, rank), 60, "it prints")
        subprocess.run(["fsfreeze", "--freeze", self.mounted], check=True)
        self.cut_agents(job)
        time.sleep(SILENCE + 3)  # what is waited for is that nothing happens in this time
        self.assertEqual(self.daemon.job(job)["state"], "running")
        self.thaw()
        end.touch()
        done = self.daemon.wait_state(job, harness.FINAL)
        self.assertEqual((done["state"], len(done["attempts"]), len(done["attempts"][0]["generations"])), ("succeeded", 1, 1), done)
        self.assertNotIn("lost_nodes", done["attempts"][0])
        for log in pathlib.Path(self.mounted).rglob("agent-*.log"):
            self.assertIn("connection to the daemon lost", log.read_text())
        for rank in (0, 1):
            log = self.daemon.rank_log(job, rank)
            numbers = [int(number) for number in re.findall(r"^line (\d+)", log, re.MULTILINE)]
            self.assertEqual(numbers, list(range(len(numbers))), log)
            self.assertIn("the last", log)
            self.assertGreater(len(numbers), 20 + SILENCE * 10)  # it printed all the time


if __name__ == "__main__":
    harness.main()
