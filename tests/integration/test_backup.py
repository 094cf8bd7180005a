"""Copies of a data directory: one that is made by `cp -a` is noticed, `lockstepd backup` makes one beside a
lockstepd that runs, `lockstepd restore` puts it to use. None of them touches what another lockstepd runs."""

import json
import shutil
import signal
import sqlite3
import subprocess

import harness
from harness import BIN, wait_until

LOCKSTEPD = BIN / "lockstepd"


class Backup(harness.TestCase):
    def second(self, name, data, *arguments):
        other = harness.Daemon(self.root / name, *arguments)
        other.root.mkdir(exist_ok=True)
        other.data = data
        self.addCleanup(other.clean_up)
        return other

    def run_lockstepd(self, *arguments, seconds=120):
        return subprocess.run([LOCKSTEPD, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=seconds, check=False, env=self.daemon.environment())

    def backup(self, folder, *arguments):
        return self.run_lockstepd("--data-dir", self.daemon.data, "backup", folder, *arguments)

    def live_job(self, name="live"):
        """A job that runs until go(job): the file that it waits for."""
        gate = self.root / f"gate-{name}"
        code = f"import pathlib, time\nprint('begun', flush=True)\nwhile not pathlib.Path({str(gate)!r}).exists():\n" \
               "    time.sleep(0.05)\nprint('the end', flush=True)"
        job = self.daemon.submit(harness.command_job(name, harness.PYTHON, "-c", code))["id"]
        self.daemon.wait_state(job, "running")
        wait_until(lambda: "begun" in self.daemon.rank_log(job), 20, "the rank has begun")
        return job, gate

    def ended_job(self):
        job = self.daemon.submit(harness.command_job("ended", "echo", "as it was"))["id"]
        self.daemon.wait_state(job, "succeeded")
        return job

    def copy(self, name):
        target = self.root / name
        subprocess.run(["cp", "-a", self.daemon.data, target], check=True)
        return target

    def refusal(self, daemon):
        done = subprocess.run(daemon.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False, env=daemon.environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def ends_well(self, job, gate, daemon=None):
        daemon = daemon or self.daemon
        gate.touch()
        daemon.wait_state(job, "succeeded")
        self.assertIn("the end", daemon.rank_log(job))

    # --- cp -a ------------------------------------------------------------------------------
    def test_a_plain_copy_is_refused_and_the_first_ones_job_goes_on(self):
        job, gate = self.live_job()
        before = {path.name: path.read_bytes() for path in (self.daemon.data / "runs" / job / "a1").glob("*.json")}
        other = self.second("other", self.copy("copied"))
        said = self.refusal(other)
        for word in (str(self.daemon.data), "--take-over", "--as-copy"):
            self.assertIn(word, said)
        after = {path.name: path.read_bytes() for path in (self.daemon.data / "runs" / job / "a1").glob("*.json")}
        self.assertEqual(before, after)
        self.ends_well(job, gate)

    def test_a_copy_that_goes_its_own_way_ends_the_job_for_itself_alone(self):
        ended = self.ended_job()
        job, gate = self.live_job()
        agent = self.daemon.data / "runs" / job / "a1" / "agent.json"
        ticket = agent.read_bytes()
        other = self.second("other", self.copy("copied"), "--as-copy")
        other.start()
        seen = other.job(job)
        self.assertEqual((seen["state"], seen["cause"]["class"]), ("failed", "scheduler"))
        self.assertIn(str(self.daemon.data), seen["cause"]["message"])
        self.assertEqual(other.rank_log(ended), "as it was\n")  # of its own files
        (self.daemon.data / "runs" / ended / "a1" / "rank-00000.log").write_text("the first one's")
        self.assertEqual(other.rank_log(ended), "as it was\n")
        self.assertEqual(agent.read_bytes(), ticket)
        self.assertEqual(self.daemon.job(job)["state"], "running")
        # It is a lockstepd like any other from now on, without the flag.
        mine = other.submit(harness.command_job("mine", "true"))["id"]
        other.wait_state(mine, "succeeded")
        other.cli("rm", job)
        other.arguments = ()
        other.restart()
        self.assertEqual(len(other.get("/v1/jobs")["items"]), 2)
        self.ends_well(job, gate)
        self.assertEqual(self.daemon.api("GET", f"/v1/jobs/{mine}")[0], 404)

    def test_one_that_runs_is_not_taken_over_nor_one_that_has_gone_on(self):
        job, gate = self.live_job()
        other = self.second("other", self.copy("copied"), "--take-over")
        self.assertIn(f"process {self.daemon.process.pid}", self.refusal(other))
        self.ends_well(job, gate)
        self.daemon.stop()
        self.assertIn("has gone on since", self.refusal(other))

    def test_a_copy_takes_over_the_live_attempt_of_one_that_is_gone(self):
        job, gate = self.live_job()
        self.daemon.kill9()
        other = self.second("other", self.copy("copied"), "--take-over")
        other.start()
        self.assertEqual(other.job(job)["state"], "running")
        agent = wait_until(lambda: other.get(f"/v1/jobs/{job}/ranks")["items"][0].get("pid"), 20, "its agent calls in")
        self.assertTrue(agent)
        self.ends_well(job, gate, other)
        self.assertEqual(len([e for e in other.events(job) if e["kind"] == "agent_claimed"]), 1)
        # The first one comes back all the same: its folder is its own, and it has lost nothing by it.
        other.arguments = ()
        other.restart()
        self.assertEqual(other.job(job)["state"], "succeeded")

    def test_a_renamed_folder_is_no_copy_and_its_logs_are_found(self):
        job = self.ended_job()
        self.daemon.stop()
        moved = self.root / "elsewhere"
        self.daemon.data.rename(moved)
        other = self.second("other", moved)
        other.start()
        self.assertEqual(other.rank_log(job), "as it was\n")

    def test_runs_of_the_first_one_are_not_given_to_its_copy(self):
        self.ended_job()
        data = self.copy("copied")
        other = self.second("other", data, "--as-copy", "--runs-dir", str(self.daemon.data / "runs"))
        self.assertIn("its own --runs-dir", self.refusal(other))

    # --- backup and restore -----------------------------------------------------------------
    def test_a_backup_is_made_beside_a_running_job_and_is_whole_and_private(self):
        self.ended_job()
        job, gate = self.live_job()
        folder = self.root / "backup"
        made = self.backup(folder)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("2 jobs, 1 of them not over", made.stdout)
        for path in folder.rglob("*"):
            self.assertEqual(path.lstat().st_mode & 0o077, 0, path)
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        secrets = [str(path.relative_to(folder)) for path in folder.rglob("*")
                   if path.name in ("token", "agent.json", "key.pem")]
        self.assertEqual(secrets, [])
        ticket = json.loads((self.daemon.data / "runs" / job / "a1" / "agent.json").read_text())["ticket"]
        for path in folder.rglob("*"):
            if path.is_file():
                self.assertNotIn(self.daemon.token.encode(), path.read_bytes(), path)
                self.assertNotIn(ticket.encode(), path.read_bytes(), path)
        self.assertEqual(self.backup(folder, "--verify").returncode, 0)
        self.assertEqual(self.backup(folder).returncode, 1)  # never over another one
        self.ends_well(job, gate)

    def test_secrets_are_in_a_backup_that_is_to_have_them_and_serve_where_it_is_restored(self):
        self.daemon.cli("secret", "set", "MY_KEY", stdin="not for everybody\n")
        signed = self.daemon.data / "signatures" / "somebody" / "1"
        signed.parent.mkdir(mode=0o700, parents=True)
        signed.write_text("what somebody has signed")
        folder = self.root / "backup"
        self.assertEqual(self.backup(folder, "--with-secrets").returncode, 0)
        self.assertEqual(self.backup(folder, "--verify").returncode, 0)
        for path in folder.rglob("*"):
            self.assertEqual(path.lstat().st_mode & 0o077, 0, path)
        data = self.root / "restored"
        self.assertEqual(self.run_lockstepd("restore", folder, "--data-dir", data).returncode, 0)
        self.assertEqual((data / "signatures" / "somebody" / "1").read_text(), signed.read_text())
        other = self.second("other", data)
        other.start()
        self.assertEqual(other.token, self.daemon.token)
        job = other.submit(harness.command_job("uses", "/bin/sh", "-c", 'echo "${#MY_KEY} letters"', secrets=["MY_KEY"]))
        self.assertEqual(other.wait_state(job["id"], harness.FINAL)["state"], "succeeded")
        self.assertEqual(other.rank_log(job["id"]), "17 letters\n")

    def test_whatever_is_changed_in_a_backup_is_found(self):
        self.ended_job()
        folder = self.root / "backup"
        self.assertEqual(self.backup(folder).returncode, 0)
        log = next(folder.rglob("rank-00000.log"))
        changes = {
            "bytes": lambda copy: (copy / log.relative_to(folder)).write_bytes(b"as it wos\n"),
            "missing": lambda copy: (copy / log.relative_to(folder)).unlink(),
            "more": lambda copy: (copy / "runs" / "stray").write_text("x"),
            "store": lambda copy: flip(copy / "lockstep.db", 5000),
            "list": lambda copy: flip(copy / "files.jsonl", 20),
            "manifest": lambda copy: (copy / "manifest.json").write_text("{"),
            "unfinished": lambda copy: (copy / "manifest.json").unlink(),
        }
        for name, change in changes.items():
            with self.subTest(name):
                copy = self.root / f"changed-{name}"
                shutil.copytree(folder, copy, symlinks=True)
                change(copy)
                done = self.backup(copy, "--verify")
                self.assertEqual(done.returncode, 1, done.stdout)
                new = self.root / f"new-{name}"
                self.assertEqual(self.run_lockstepd("restore", copy, "--data-dir", new).returncode, 1)
                self.assertFalse(new.exists())

    def test_a_killed_backup_leaves_nothing_that_looks_whole_and_the_next_one_clears_up(self):
        self.ended_job()
        for number in range(300):
            (self.daemon.data / "runs" / f"ls-{number}").mkdir()
            (self.daemon.data / "runs" / f"ls-{number}" / "file").write_bytes(bytes(20_000))
        folder = self.root / "backup"
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen([LOCKSTEPD, "--data-dir", self.daemon.data, "backup", folder],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            partial = self.root / ".backup.partial"
            wait_until(lambda p=process: (partial / "runs").exists() or p.poll() is not None, 20, "it has begun")
            process.send_signal(signal_number)
            code = process.wait(60)
            if code == 0:
                continue  # it was done before the signal came
            self.assertFalse(folder.exists())
            self.assertEqual(partial.exists(), signal_number == signal.SIGKILL)
        if not folder.exists():
            self.assertEqual(self.backup(folder).returncode, 0)
        self.assertFalse((self.root / ".backup.partial").exists())
        self.assertEqual(self.backup(folder, "--verify").returncode, 0)

    def test_a_restored_store_has_the_past_and_lets_the_first_ones_jobs_be(self):
        ended = self.ended_job()
        job, gate = self.live_job()
        folder = self.root / "backup"
        self.assertEqual(self.backup(folder).returncode, 0)
        data = self.root / "restored"
        done = self.run_lockstepd("restore", folder, "--data-dir", data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 that were not over have been ended here", done.stdout)
        other = self.second("other", data)
        other.start()
        seen = other.job(job)
        self.assertEqual((seen["state"], seen["cause"]["class"]), ("failed", "scheduler"))
        self.assertIn("restored from a backup", seen["cause"]["message"])
        self.assertEqual(other.rank_log(ended), "as it was\n")
        self.assertNotEqual(other.token, self.daemon.token)
        self.assertEqual(self.run_lockstepd("restore", folder, "--data-dir", data).returncode, 1)
        self.ends_well(job, gate)

    def test_a_restored_store_takes_over_what_runs_and_hands_in_nothing_again(self):
        job, gate = self.live_job()
        waits = self.daemon.submit(harness.command_job("waits", "true", after=[job]))["id"]
        folder = self.root / "backup"
        self.assertEqual(self.backup(folder).returncode, 0)
        self.daemon.kill9()
        data = self.root / "restored"
        done = self.run_lockstepd("restore", folder, "--data-dir", data, "--take-over")
        self.assertEqual(done.returncode, 0, done.stderr)
        other = self.second("other", data)
        other.start()
        self.assertEqual(other.job(waits)["state"], "failed")
        self.assertIn("submit it again", other.job(waits)["cause"]["message"])
        self.ends_well(job, gate, other)

    def test_a_restored_store_takes_over_runs_outside_the_data_directory(self):
        runs = self.root / "shared"
        self.daemon.arguments = (*self.daemon.arguments, "--runs-dir", str(runs))
        self.daemon.restart()
        job, gate = self.live_job()
        folder, data = self.root / "backup", self.root / "restored"
        without = self.backup(folder)
        self.assertEqual(without.returncode, 1, without.stdout)
        self.assertIn(str(runs), without.stderr)
        self.assertEqual(self.backup(folder, "--runs-dir", runs).returncode, 0)
        self.daemon.kill9()
        done = self.run_lockstepd("restore", folder, "--data-dir", data, "--take-over")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"--runs-dir {runs}", done.stdout)
        other = self.second("other", data, "--runs-dir", str(runs))
        other.start()
        self.ends_well(job, gate, other)
        new = other.submit(harness.command_job("new", "echo", "of the new one"))["id"]
        other.wait_state(new, "succeeded")
        other.restart()
        self.assertEqual(other.rank_log(new), "of the new one\n")
        self.assertIn(str(data), self.refusal(self.daemon))

    def test_a_restored_store_ends_what_has_gone_meanwhile(self):
        job, gate = self.live_job()
        folder = self.root / "backup"
        self.assertEqual(self.backup(folder).returncode, 0)
        self.ends_well(job, gate)
        self.daemon.stop()
        shutil.rmtree(self.daemon.data / "runs")
        data = self.root / "restored"
        self.assertEqual(self.run_lockstepd("restore", folder, "--data-dir", data, "--take-over").returncode, 0)
        other = self.second("other", data)
        other.start()
        seen = other.wait_state(job, ("failed",))
        self.assertEqual(len(seen["attempts"]), 1)

    # --- upgrade and downgrade --------------------------------------------------------------
    def test_a_newer_store_is_left_alone_and_what_to_do_is_said(self):
        self.daemon.stop()
        with sqlite3.connect(self.daemon.data / "lockstep.db") as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
        before = (self.daemon.data / "lockstep.db").read_bytes()
        said = self.refusal(self.daemon)
        for words in ("newer lockstepd", "schema 99", "lockstepd restore BACKUP"):
            self.assertIn(words, said)
        self.assertEqual((self.daemon.data / "lockstep.db").read_bytes(), before)
        made = self.backup(self.root / "backup")
        self.assertEqual(made.returncode, 1)
        self.assertIn("newer lockstepd", made.stderr)
        self.assertEqual([path.name for path in self.root.glob(".backup*")], [])


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[min(at, len(data) - 1)] ^= 1
    path.write_bytes(data)


if __name__ == "__main__":
    harness.main()
