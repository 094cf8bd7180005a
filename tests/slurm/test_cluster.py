"""The test cluster keeps its promises: what tests that use it build on, and do not show themselves. Hosts with names and
addresses of their own, GPUs, users, accounting, preemption, nodes and daemons that are cut, frozen or killed: each is what
some test of Lockstep here is about (test_jobs.py, test_refusals.py, test_rest.py, test_more_states.py, test_recovery.py,
test_ends.py, test_faults.py)."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import cluster as library
import slurm_hosts
import slurm_machine
from cluster import SlurmCluster, Unavailable
from slurm_hosts import bridges, start_time, stat_of, until

COMMAND = Path(__file__).with_name("cluster")


def say(text):
    print(text, file=sys.stderr, flush=True)


def timed(begun):
    return f"{time.monotonic() - begun:.1f} s"


def started(**settings):
    begun = time.monotonic()
    cluster = SlurmCluster(**settings).start()
    say(f"started in {timed(begun)}: {settings}")
    return cluster


class Nodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = started(nodes=3, quick_loss=True)
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        self.cluster.wait_until_idle()
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        self.cluster.run("scancel", "--user=root", check=False)
        until(lambda: not self.cluster.run("squeue", "-h").stdout, 20, "end of all jobs")

    def job_on(self, node):
        """A job that has begun. RUNNING alone may mean that slurmctld is yet to send it to the
        node; if it cannot, it puts the job back into the queue, --no-requeue or not."""
        begun = Path(tempfile.mktemp(prefix="begun-", dir=self.cluster.shared))
        job = self.cluster.sbatch(f"#!/bin/sh\ntouch {begun}\nsleep 600\n", "-w", node,
                                  "--no-requeue")
        until(begun.exists, 20, f"begin of job {job}")
        self.cluster.wait_job(job, "RUNNING")
        return job

    def test_a_crashed_node_is_down_and_boots_again(self):
        job = self.job_on("n3")
        begun = time.monotonic()
        self.cluster.crash("n3")
        self.assertEqual(list(self.cluster.network.pids("n3")), [self.cluster.keepers["n3"]])
        self.cluster.wait_job(job, "NODE_FAIL")
        say(f"crash to NODE_FAIL: {timed(begun)}")
        self.cluster.start_slurmd("n3")
        self.cluster.wait_node("n3", "idle")

    def test_a_cut_controller_is_back_with_its_cable(self):
        self.cluster.cut("ctl")
        try:
            self.assertIn("Unable to contact slurm controller",
                          self.cluster.run("squeue", check=False).stderr)
        finally:
            self.cluster.join("ctl")
        self.cluster.wait_until_idle()

    def test_another_cluster_beside_it_has_jobs_of_its_own(self):
        with SlurmCluster(nodes=2) as other:
            self.assertNotEqual(other.network.index, self.cluster.network.index)
            job = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "-J", "here")
            self.cluster.wait_job(job, "RUNNING")
            names = other.run("srun", "-N2", "hostname").stdout.split()
            self.assertEqual(sorted(names), ["n1", "n2"])
            self.assertNotIn("here", other.run("squeue", "-h").stdout)
            self.assertIn("here", self.cluster.run("squeue", "-h").stdout)
        self.assertEqual(self.cluster.wait_job(job, "RUNNING")["JobName"], "here")


class Processes(unittest.TestCase):
    def test_a_process_whose_first_thread_has_ended_lives_until_the_last_one_has(self):
        code = ("import ctypes, os, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
                "print(flush=True); ctypes.CDLL(None).pthread_exit(None)")
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdout.readline()
        begun = start_time(process.pid)
        until(lambda: stat_of(f"/proc/{process.pid}")[0] == "Z", 20, "end of its first thread")
        self.assertEqual(start_time(process.pid), begun)
        process.kill()
        until(lambda: start_time(process.pid) is None, 20, "end of the others")  # not collected, so still a zombie
        process.stdout.close()


    def test_a_daemon_that_ends_before_its_start_time_is_read_has_ended(self):
        """A slurmctld that refuses its settings was killed for a minute, in vain, on a busy machine."""
        begin = subprocess.Popen

        def ended(*words, **options):
            process = begin(*words, **options)
            until(lambda: stat_of(f"/proc/{process.pid}")[0] == "Z", 20, "end of the process")
            return process

        with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder:
            cluster = SlurmCluster(Path(folder), nodes=1)
            (cluster.folder / "log").mkdir()
            with mock.patch.object(library.subprocess, "Popen", ended), mock.patch.object(cluster, "save"):
                cluster.daemon("slurmctld", ["true"])
            self.assertFalse(cluster.running("slurmctld"))
            cluster.kill_daemon("slurmctld")


class Leftovers(unittest.TestCase):
    def command(self, *arguments):
        return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True,
                              timeout=90, check=False)

    def folder(self):
        folder = tempfile.mkdtemp(prefix="slurm-", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def assert_nothing_left(self, index, folder, processes):
        with slurm_hosts.claims_lock():  # a cluster beside this one may have the number at once
            now = bridges()
            self.assertNotEqual(now.get(index), str(folder))
            if index not in now:
                self.assertEqual(slurm_hosts.Network(index).names(), [])
        for pid, begun in processes.items():
            self.assertNotEqual(start_time(pid), begun, f"process {pid} is still there")

    def test_the_command_starts_shows_and_stops_a_cluster(self):
        folder = self.folder()
        self.addCleanup(self.command, "stop", folder)
        done = self.command("start", folder, "--nodes", 2, "--set", "KillWait=7")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.command("status", folder).stdout.count(" idle"), 2)
        shown = subprocess.run(["bash", "-c", self.command("env", folder).stdout +
                                "scontrol show config"], capture_output=True, text=True,
                               check=True).stdout
        self.assertRegex(shown, r"KillWait += 7 sec")
        self.assertRegex(shown, rf"SLURM_CONF += {folder}/etc/slurm.conf")
        before = SlurmCluster.open(folder)
        # The same folder once more: the earlier one is stopped first.
        done = self.command("start", folder, "--nodes", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(start_time(before.daemons["slurmctld"][0]),
                            before.daemons["slurmctld"][1])
        self.assertEqual(self.command("stop", folder).returncode, 0)
        self.assertEqual(self.command("stop", folder).returncode, 0)
        self.assertEqual(self.command("status", folder).returncode, 3)

    def sleepers(self, cluster):
        found = []
        for pid in cluster.network.pids("n1"):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            found += [pid] if command == b"sleep\x001000\x00" else []
        return found

    def test_stop_ends_what_jobs_left_behind(self):
        cluster = SlurmCluster(nodes=1).start()
        self.addCleanup(cluster.stop)
        cluster.sbatch("#!/bin/bash\ntrap '' TERM\nsetsid sleep 1000 & sleep 1000\n")
        until(lambda: len(self.sleepers(cluster)) == 2, 20, "the job's processes")
        processes = cluster.network.pids("n1") | dict(cluster.daemons.values())
        waiting = subprocess.Popen(["srun", "-N1", "--exclusive", "true"], env=cluster.env(),
                                   stderr=subprocess.DEVNULL)
        # Not while it is still the test's own program: stop() would not know it for the cluster's.
        until(lambda: "true" in cluster.run("squeue", "-h", "-o", "%j").stdout.split(), 20, "srun waits")
        index, folder = cluster.network.index, cluster.folder
        cluster.stop()
        self.assertEqual(waiting.wait(60), -signal.SIGKILL)
        self.assert_nothing_left(index, folder, processes)
        self.assertFalse(folder.exists())

    def test_a_cluster_whose_owner_was_killed_is_removed_by_the_next_start(self):
        folder = self.folder()
        owner = subprocess.Popen(
            [sys.executable, "-B", "-c", "import sys; from cluster import SlurmCluster; "
             "SlurmCluster(sys.argv[1], nodes=1).start(); print('ready', flush=True); input()",
             str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(COMMAND.parent)})
        self.assertEqual(owner.stdout.readline(), "ready\n")
        orphan = SlurmCluster.open(folder)
        owner.kill()
        owner.communicate()
        library.sweep()
        self.assert_nothing_left(orphan.network.index, folder, dict(orphan.daemons.values()))

    def test_a_cluster_whose_folder_is_gone_is_removed_by_the_next_start(self):
        folder = self.folder()
        self.assertEqual(self.command("start", folder, "--nodes", 1, "--slurmrestd").returncode, 0)
        orphan = SlurmCluster.open(folder)
        def gone():
            shutil.rmtree(folder, ignore_errors=True)  # slurmctld saves into it meanwhile
            return not folder.exists()
        until(gone, 20, "end of the folder")
        library.sweep()
        self.assert_nothing_left(orphan.network.index, folder, dict(orphan.daemons.values()))

    def test_a_failed_start_leaves_nothing_but_logs(self):
        cluster = SlurmCluster(self.folder(), nodes=1, options={"SelectType": "select/none-such"})
        with self.assertRaisesRegex(RuntimeError, r"slurmctld ended; see .*/log/slurmctld.out"):
            cluster.start()
        self.assertIn("none-such", (cluster.folder / "log/slurmctld.out").read_text())
        self.assertNotIn(str(cluster.folder), bridges().values())
        self.assertEqual(sorted(p.name for p in cluster.folder.iterdir()), ["etc", "log", "shared"])

    def test_what_is_missing_is_named(self):
        with mock.patch.object(slurm_machine, "SEARCH_PATH", "/nonexistent"):
            with self.assertRaisesRegex(Unavailable, "not installed.*slurmctld"):
                SlurmCluster(self.folder()).start()
        with mock.patch.object(os, "geteuid", return_value=1000):
            with self.assertRaisesRegex(Unavailable, "needs root"):
                SlurmCluster(self.folder()).start()
        without_rights = subprocess.run(
            ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin",
             str(COMMAND), "start", str(self.folder())],
            capture_output=True, text=True, check=False)
        self.assertEqual(without_rights.returncode, 77, without_rights.stderr)
        self.assertTrue(re.search("cannot run here: .*bridge.*not permitted",
                                  without_rights.stderr), without_rights.stderr)


def setUpModule():
    try:
        with SlurmCluster(nodes=1):
            pass
    except Unavailable as reason:
        say(f"SKIPPED: {reason}")
        # unittest would call it a failure; ctest knows 77.
        os._exit(77)


if __name__ == "__main__":
    unittest.main(verbosity=2)
