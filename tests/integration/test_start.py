"""Starting lockstepd: one per data directory, and only with settings that it knows."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import harness

BAD_SETTINGS = 2  # lockstepd(8), exit status


class DataDirectory(harness.TestCase):
    DAEMON_ARGUMENTS = ("--local-cores", "4")  # room for a job beside the one that runs

    def start_second(self):
        return subprocess.run(self.daemon.command(), env=self.daemon.environment(), capture_output=True, text=True,
                              timeout=60, check=False)

    def running_job(self):
        """A job of two nodes whose ranks run until the file `go` is there."""
        job = self.daemon.submit(harness.command_job(
            "holder", "/bin/sh", "-c", f"until [ -e {self.root}/go ]; do sleep 0.05; done",
            resources={"nodes": 2, "ranks_per_node": 1}))
        self.daemon.wait_state(job["id"], "running")
        return job["id"]

    def finish(self, job_id):
        (self.root / "go").touch()
        done = self.daemon.wait_state(job_id, harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(len(done["attempts"]), 1)

    def agents_of(self, job_id):
        """Ids of the agents, both alive."""
        claims = (self.daemon.data / "runs" / job_id / "a1").glob("*.claim")
        agents = {json.loads(claim.read_text())["pid"] for claim in claims}
        self.assertEqual(len(agents), 2)
        self.assertLessEqual(agents, set(harness.processes_with(f"runs/{job_id}")))
        return agents

    def test_a_second_daemon_is_refused_and_harms_nothing_of_the_first(self):
        job_id = self.running_job()
        agents = self.agents_of(job_id)
        files = {name: (self.daemon.data / name).read_bytes() for name in ("url", "token")}
        for _ in range(2):  # the end of the first that was refused frees nothing
            second = self.start_second()
            self.assertEqual(second.returncode, 1, second.stderr)
            self.assertIn(f"another lockstepd is using {self.daemon.data}", second.stderr)
        self.assertIsNone(self.daemon.process.poll(), "the first lives")
        for name, content in files.items():
            self.assertEqual((self.daemon.data / name).read_bytes(), content, name)
        self.assertTrue(self.daemon.reachable("/readyz"))
        self.assertEqual(self.daemon.job(job_id)["state"], "running")
        self.assertEqual(self.agents_of(job_id), agents)
        later = self.daemon.submit(harness.command_job("later", "/bin/true"))
        self.assertEqual(self.daemon.wait_state(later["id"], harness.FINAL)["state"], "succeeded")
        self.finish(job_id)

    def test_after_a_kill_the_next_starts_at_once_although_agents_live(self):
        job_id = self.running_job()
        agents = self.agents_of(job_id)
        self.daemon.kill9()
        self.daemon.start()  # one try; start() fails if it ends
        self.assertEqual(self.agents_of(job_id), agents, "the agents of the killed one go on")
        second = self.start_second()
        self.assertEqual(second.returncode, 1, "the new one holds the directory as the old one did")
        self.finish(job_id)


class Store(unittest.TestCase):
    def test_one_that_cannot_be_opened_is_named_with_the_reason(self):
        """A store that somebody had touched as root was "unable to open database file"."""
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            daemon = harness.Daemon(pathlib.Path(folder))
            (daemon.data / "lockstep.db").mkdir(parents=True)
            daemon.data.chmod(0o700)
            done = subprocess.run(daemon.command(), env=daemon.environment(), capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f'what="open {daemon.data}/lockstep.db: Is a directory"', done.stderr)


class RunsDirectory(harness.TestCase):
    def test_one_that_cannot_be_written_is_told_once_and_is_not_ready_until_it_is_well(self):
        runs = self.daemon.data / "runs"
        self.assertTrue(self.daemon.reachable("/readyz"))
        runs.rename(self.root / "away")
        runs.write_text("a file")
        job = self.daemon.submit(harness.command_job("waits", "/bin/true"))["id"]
        harness.wait_until(lambda: not self.daemon.reachable("/readyz"), 30, "it is not ready")
        harness.wait_until(lambda: self.daemon.api("GET", "/readyz")[1].get("detail") ==
                           f"runs directory: write into {runs}: Not a directory", 30, "it says why")
        self.daemon.wait_for(job, lambda seen: "Not a directory" in seen.get("pending_reason", ""), 30, "the job says why")
        runs.unlink()  # the next try makes it anew
        harness.wait_until(lambda: self.daemon.reachable("/readyz"), 30, "it is ready again")
        self.assertEqual(self.daemon.wait_state(job, harness.FINAL)["state"], "succeeded")
        told = self.daemon.log.read_text()
        self.assertEqual(len(re.findall("no files can be made in the runs directory.*Not a directory", told)), 1, told)
        self.assertLessEqual(told.count("cannot prepare an attempt"), 1, told)


class SomebodyElsesFolder(unittest.TestCase):
    """Who else may write to the data folder, or put another in its place, could hand lockstepd a token of their own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.addCleanup(folder.cleanup)
        self.above = pathlib.Path(folder.name) / "above"
        self.above.mkdir(mode=0o755)
        self.daemon = harness.Daemon(self.above)
        self.daemon.data.mkdir(mode=0o700, parents=True)

    def refused(self, *words):
        done = subprocess.run(self.daemon.command(), env=self.daemon.environment(), capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in ("cannot use the data directory", str(self.daemon.data), *words):
            self.assertIn(word, done.stderr)
        self.assertEqual(list(self.daemon.data.iterdir()), [], "nothing is made")

    def accepted(self):
        self.daemon.start()
        self.daemon.stop()

    def test_a_folder_that_others_may_write_to_is_refused(self):
        for mode in (0o777, 0o770, 0o1777):
            self.daemon.data.chmod(mode)
            self.refused(f"has mode {mode:04o}", "chmod 700")
        self.daemon.arguments = ("--any-data-dir",)
        self.accepted()
        self.assertIn("the data directory is others' too", self.daemon.log_tail())
        self.daemon.arguments = ()
        self.daemon.data.chmod(0o755)
        self.accepted()

    def test_a_folder_that_others_may_replace_is_refused(self):
        self.above.chmod(0o777)
        self.refused(str(self.above), "another folder in its place")
        self.above.chmod(0o1777)  # as /tmp
        self.accepted()

    @unittest.skipUnless(os.geteuid() == 0, "only root gives folders away")
    def test_another_users_folder_is_refused(self):
        os.chown(self.daemon.data, 4711, -1)
        self.refused("belongs to uid 4711")
        os.chown(self.daemon.data, 0, -1)
        os.chown(self.above, 4711, -1)
        self.refused(str(self.above), "belongs to uid 4711")
        os.chown(self.above, 0, -1)
        self.accepted()

    def test_a_link_is_followed_to_the_folder_that_counts(self):
        real = self.above / "real"
        real.mkdir(mode=0o777)
        real.chmod(0o777)
        self.daemon.data.rmdir()
        self.daemon.data.symlink_to(real)
        done = subprocess.run(self.daemon.command(), env=self.daemon.environment(), capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{real} has mode 0777", done.stderr)
        real.chmod(0o700)
        self.accepted()


class Settings(unittest.TestCase):
    """What is wrong in a setting stops the start before anything is made."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-test-", dir="/tmp")  # also for another user
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def refused(self, *arguments, config=None, environment=None):
        """What lockstepd prints when it does not start."""
        if config is not None:
            (self.root / "lockstepd.conf").write_text(config)
            arguments = ("--config", self.root / "lockstepd.conf", *arguments)
        daemon = harness.Daemon(self.root, *arguments)
        done = subprocess.run(daemon.command(), env={**daemon.environment(), **(environment or {})},
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, BAD_SETTINGS, done.stderr)
        self.assertFalse(daemon.data.exists(), "nothing is made")
        return done.stdout + done.stderr

    def test_an_unknown_key_of_the_file_is_named(self):
        self.assertEqual(self.refused(config="metrics-auth = true\nlistne = 127.0.0.1:0\n"),
                         f"lockstepd: {self.root}/lockstepd.conf: listne: unknown setting; each line is: name = value, "
                         "with a name of lockstepd --help\n")

    def test_an_unknown_section_of_the_file_is_named(self):
        self.assertIn("lockstepd.conf: [slurm]: there are no sections", self.refused(config="[slurm]\nqueue = 3\n"))

    def test_a_line_that_is_no_setting_is_named(self):
        self.assertIn("no setting at all", self.refused(config="no setting at all\n"))

    def test_a_file_that_is_not_there_is_named(self):
        missing = self.root / "missing.conf"
        self.assertEqual(self.refused("--config", missing), f"lockstepd: open {missing}: No such file or directory\n")

    @unittest.skipIf(os.geteuid(), "another user's file: needs root")
    def test_a_file_that_lockstepd_may_not_read_is_named_with_the_reason(self):
        closed = self.root / "closed.conf"
        closed.write_text("metrics-auth = true\n")
        closed.chmod(0o600)
        self.root.chmod(0o755)
        program = shutil.copy(harness.BIN / "lockstepd", self.root)  # where the build is, that user may not go
        done = subprocess.run([program, "--config", closed], user=65534, group=65534, extra_groups=[], cwd="/",
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (BAD_SETTINGS, f"lockstepd: open {closed}: Permission denied\n"))

    def test_a_wrong_value_is_named_wherever_it_comes_from(self):
        for output in (self.refused(config="slurm-queue = many\n"), self.refused("--slurm-queue", "many"),
                       self.refused(environment={"LOCKSTEP_SLURM_QUEUE": "many"})):
            self.assertIn("--slurm-queue", output)
            self.assertIn("many", output)

    def test_an_unknown_flag_is_named(self):
        self.assertIn("--bogus", self.refused("--bogus"))

    def test_an_address_that_cannot_be_served_is_named(self):
        for address in ("127.0.0.1", "nowhere:80", "127.0.0.1:99999"):
            self.assertIn(address, self.refused("--metrics-listen", address))

    def test_an_identity_that_the_scheduler_cannot_have_is_named(self):
        for scheduler in ((), ("--scheduler", "slurmrestd")):
            self.assertIn("--slurm-identity lockstep-exec needs --scheduler slurm",
                          self.refused(*scheduler, "--slurm-identity", "lockstep-exec"))

    def test_a_path_that_no_batch_script_can_have_is_named(self):
        runs = self.root / "my runs"
        self.assertIn(f"--runs-dir: {runs} stands in batch scripts",
                      self.refused("--scheduler", "slurm", "--runs-dir", runs))
        self.assertIn("--agent-path: agents/lockstep-agent stands in batch scripts",
                      self.refused("--scheduler", "slurmrestd", "--agent-path", "agents/lockstep-agent"))


class Precedence(harness.TestCase):
    """Default, then the file, then LOCKSTEP_*, then the flag: the later one is obeyed."""

    def start_with(self, config, *arguments, **environment):
        self.daemon.stop()
        file = self.root / "lockstepd.conf"
        file.write_text(config)
        merged = {**self.daemon.environment(), **environment}
        self.daemon.environment = lambda: merged
        self.daemon.arguments = ("--config", file, *arguments)
        self.daemon.start()

    def check_memory(self, megabytes):
        too_large = harness.command_job("large", "/bin/true", resources={"memory_mb_per_node": megabytes + 1})
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", too_large), 400, "/resources/memory_mb_per_node",
                            f"there are {megabytes} MiB")

    def test_the_file_is_obeyed(self):
        self.start_with("local-memory-mb = 1000\nmetrics-auth = true\n")
        self.check_memory(1000)
        self.assertEqual(self.daemon.api("GET", "/metrics", headers={"Authorization": None})[0], 401)

    def test_a_flag_goes_before_the_file(self):
        self.start_with("local-memory-mb = 1000\n", "--local-memory-mb", "3000")
        self.check_memory(3000)

    def test_a_flag_goes_before_the_environment(self):
        self.start_with("", "--local-memory-mb", "3000", LOCKSTEP_LOCAL_MEMORY_MB="2000")
        self.check_memory(3000)

    def test_the_environment_goes_before_the_file(self):
        self.start_with("local-memory-mb = 1000\n", LOCKSTEP_LOCAL_MEMORY_MB="2000")
        self.check_memory(2000)

    def test_an_empty_variable_leaves_what_the_file_says(self):
        # As `LOCKSTEP_LOCAL_MEMORY_MB=${MEMORY}` of a compose file without that variable: the default was used.
        self.start_with("local-memory-mb = 1000\n", LOCKSTEP_LOCAL_MEMORY_MB="")
        self.check_memory(1000)


if __name__ == "__main__":
    harness.main()
