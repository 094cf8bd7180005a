"""lockstep rm, lockstep du and --keep-days: what is removed is gone, from the list and from the disk, and
nothing else is."""

import contextlib
import json
import os
import pathlib
import pty
import sqlite3
import subprocess
import threading
import time

import harness
from harness import BIN, FINAL, wait_until

WRITER = "import os, pathlib; d = pathlib.Path(os.environ['LOCKSTEP_CHECKPOINT_DIR']); d.mkdir(parents=True, " \
         "exist_ok=True); (d / 'step-1').write_bytes(bytes(300_000)); print('x' * 5000)"


class Remove(harness.TestCase):
    DAEMON_ARGUMENTS = ("--shared-account",)

    def ended(self, name="job", **fields):
        job = self.daemon.submit(harness.command_job(name, harness.PYTHON, "-c", WRITER, **fields))["id"]
        return self.daemon.wait_state(job, FINAL)["id"]

    def runs(self, job):
        return self.daemon.data / "runs" / job

    def gone(self, job):
        wait_until(lambda: not self.runs(job).exists(), 20, f"the folder of {job} goes")

    def ids(self):
        return [job["id"] for job in self.daemon.get("/v1/jobs")["items"]]

    def test_what_is_named_goes_with_its_files_and_is_not_found_again(self):
        first, second = self.ended(), self.ended()
        self.assertEqual(self.daemon.job(first)["state"], "succeeded", self.daemon.rank_log(first))
        use = self.daemon.cli("du").stdout
        self.assertRegex(use, rf"{first} .* (29\d|30\d)\.\d KiB")
        self.assertIn("checkpoints ", self.daemon.cli("show", first).stdout)
        done = self.daemon.cli("rm", first)
        self.assertEqual(done.stdout, f"{first}  is removed\n")
        self.gone(first)
        self.assertEqual(self.ids(), [second])
        self.assertEqual(self.daemon.cli("show", first, check=False).returncode, 3)
        self.assertEqual(self.daemon.cli("rm", first, check=False).returncode, 3)
        self.assertTrue((self.runs(second) / "checkpoints" / "step-1").exists())
        # The same after a restart: nothing comes back, numbers of events go on.
        newest = self.daemon.events(second)[-1]["seq"]
        self.daemon.cli("rm", second)
        self.gone(second)
        self.daemon.restart()
        self.assertEqual(self.ids(), [])
        self.assertGreater(self.daemon.events(self.ended())[0]["seq"], newest)

    def test_a_repeated_submission_does_not_bring_it_back(self):
        key = {"Idempotency-Key": "nightly"}
        spec = harness.command_job("nightly", "/bin/true", sweep={"parameters": {"labels.n": ["1", "2"]}})
        first = self.daemon.submit(spec, key)["id"]
        second = next(job["id"] for job in self.daemon.get("/v1/jobs")["items"] if job["id"] != first)
        for job in (first, second):
            self.daemon.wait_state(job, "succeeded")
        self.daemon.cli("rm", first)
        status, again = self.daemon.api("POST", "/v1/jobs", spec, key)
        self.assertIn(status, (200, 201), again)
        self.assertEqual(again["id"], second)
        self.daemon.cli("rm", second)
        self.daemon.restart()
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec, key), 422, text="was removed")
        self.assertEqual(self.ids(), [])

    def test_one_that_runs_is_refused_and_says_what_to_do(self):
        job = self.daemon.submit(harness.command_job("long", "sleep", "600"))["id"]
        self.daemon.wait_state(job, "running")
        done = self.daemon.cli("rm", job, check=False)
        self.assertEqual(done.returncode, 6)
        self.assertIn(f"lockstep cancel {job}", done.stderr)
        self.daemon.cli("cancel", job)
        self.daemon.wait_for(job, lambda one: one["state"] == "cancelled")
        self.daemon.cli("rm", job)  # while its agent leaves, it may have to wait a moment
        self.gone(job)

    def test_a_file_system_that_hangs_holds_up_neither_the_others_nor_the_daemons_end(self):
        job, other = self.ended(), self.ended()
        self.daemon.stop()
        self.daemon.preload = {"LD_PRELOAD": str(BIN.parent / "tests" / "stuck_unlink.so"),
                               "STUCK_UNLINK": f".removed-{job}"}
        self.daemon.start()
        self.daemon.cli("rm", job)
        renamed = self.daemon.data / "runs" / f".removed-{job}"
        wait_until(renamed.exists, 20, "its folder is being removed")
        self.daemon.cli("rm", other)
        self.assertEqual(self.ids(), [])
        wait_until(lambda: not self.runs(other).exists() and
                   not (self.daemon.data / "runs" / f".removed-{other}").exists(), 20, "the other goes")
        begun = time.monotonic()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertTrue(renamed.exists())
        self.daemon.preload = {}
        self.daemon.start()
        wait_until(lambda: not renamed.exists(), 20, "it goes after all")

    def test_checkpoints_may_stay(self):
        job = self.ended()
        self.daemon.cli("rm", "--keep-checkpoints", job)
        wait_until(lambda: not (self.runs(job) / "a1").exists(), 20, "the rest goes")
        self.assertTrue((self.runs(job) / "checkpoints" / "step-1").exists())

    def test_a_rule_asks_for_a_yes_and_spares_what_is_labelled_keep(self):
        old, kept = self.ended("old"), self.ended("kept", labels={"keep": "paper"})
        refused = self.daemon.cli("rm", "--older-than", "0s", check=False)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("1 job would go", refused.stderr)
        dry = self.daemon.cli("rm", "--older-than", "0s", "--dry-run")
        self.assertIn(old, dry.stdout)
        self.assertNotIn(kept, dry.stdout)
        self.assertIn("nothing was removed", dry.stderr)
        self.assertEqual(self.daemon.cli("rm", "--older-than", "1h", "--yes").stderr, "no jobs like that\n")
        self.daemon.cli("rm", "--older-than", "0s", "--yes")
        self.assertEqual(self.ids(), [kept])
        self.assertEqual(self.daemon.cli("rm", check=False).returncode, 2)

    def test_a_filter_beside_an_id_is_refused_and_not_ignored(self):
        job = self.ended("mine")
        for words in (("--state", "failed"), ("--name", "other")):
            refused = self.daemon.cli("rm", job, *words, check=False)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn("--older-than", refused.stderr)
        self.assertEqual(self.ids(), [job])
        dry = json.loads(self.daemon.cli("rm", job, "--dry-run", "--json").stdout)["items"]
        self.assertEqual([one["id"] for one in dry], [job])
        self.assertGreater(dry[0]["disk"]["total_bytes"], 300_000)

    def test_it_asks_whoever_sits_there_also_when_its_output_goes_into_a_pipe(self):
        # `lockstep rm ID | tee log` removed without a word.
        job = self.ended()
        for answer, left in (("n", [job]), ("y", [])):
            keyboard, terminal = pty.openpty()
            done = subprocess.Popen([BIN / "lockstep", "rm", job], stdin=terminal, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True,
                                    env={"LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token})
            os.write(keyboard, answer.encode() + b"\n")
            out, said = done.communicate(timeout=60 * harness.PATIENCE)
            os.close(terminal)
            os.close(keyboard)
            self.assertEqual(done.returncode, 0, said)
            self.assertIn("[y/N]", said)
            self.assertIn(job, said)
            self.assertEqual(out, "" if left else f"{job}  is removed\n")
            self.assertEqual(self.ids(), left)

    def test_a_name_that_several_have_is_not_guessed_at(self):
        first, second = self.ended("same"), self.ended("same")
        done = self.daemon.cli("rm", "same", check=False)
        self.assertEqual(done.returncode, 6, done.stdout)
        self.assertEqual(sorted(self.ids()), sorted([first, second]))
        self.daemon.cli("rm", first)
        self.daemon.cli("rm", "same")
        self.assertEqual(self.ids(), [])

    def test_on_a_terminal_it_asks(self):
        job = self.ended()
        for answer, left in (("n", [job]), ("y", [])):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(BIN / "lockstep", ["lockstep", "rm", job],
                          {"LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token, "TERM": "xterm",
                           "COLUMNS": "120", "LANG": "C.UTF-8"})
            screen = bytearray()

            def read(terminal=terminal, screen=screen):
                with contextlib.suppress(OSError):  # EIO: the program has ended
                    while piece := os.read(terminal, 4096):
                        screen.extend(piece)

            reader = threading.Thread(target=read)
            reader.start()
            wait_until(lambda screen=screen: b"[y/N]" in screen, 30, "it asks")
            os.write(terminal, answer.encode() + b"\n")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            reader.join(10)
            os.close(terminal)
            self.assertIn(b"1 job, ", screen)
            self.assertEqual(self.ids(), left)

    def test_others_jobs_are_not_there(self):
        job = self.ended()
        status, made = self.daemon.api("POST", "/v1/tokens", {"name": "t", "user": "eve", "role": "user"})
        self.assertEqual(status, 201, made)
        as_eve = {"Authorization": "Bearer " + made["token"]}
        self.assert_problem(self.daemon.api("DELETE", f"/v1/jobs/{job}", headers=as_eve), 404)
        self.assert_problem(self.daemon.api("GET", f"/v1/jobs/{job}/disk", headers=as_eve), 404)
        self.assert_problem(self.daemon.api("DELETE", f"/v1/jobs/{job}?checkpoints=maybe"), 400, "?checkpoints")
        self.assertEqual(self.ids(), [job])

    def test_jobs_go_by_their_age(self):
        old, young = self.ended("old"), self.ended("young")
        self.daemon.stop()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "lockstep.db")) as database, database:
            database.execute("UPDATE jobs SET finished_at = finished_at - 3 * 86400000 WHERE id = ?", (old,))
        self.daemon.arguments = (*self.daemon.arguments, "--keep-days", "2")
        self.daemon.start()
        self.gone(old)
        wait_until(lambda: self.ids() == [young], 20, "the old one is not listed")
        self.assertTrue(self.runs(young).exists())

    def test_a_snapshot_goes_with_its_job(self):
        work = self.root / "work"
        work.mkdir()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), "LOCKSTEP_URL": self.daemon.url,
                       "LOCKSTEP_TOKEN": self.daemon.token, "LOCKSTEP_DATA_DIR": str(self.daemon.data)}
        (work / "train.sh").write_text("pwd\n")
        for words in (["init", "-q"], ["add", "."]):
            subprocess.run(["git", *words], cwd=work, check=True, capture_output=True, env=environment)
        done = subprocess.run([BIN / "lockstep", "run", "--snapshot", "--wait", "--", "sh", "train.sh"], cwd=work,
                              env=environment, capture_output=True, text=True, check=True)
        job = done.stdout.split()[0]
        snapshot = pathlib.Path(self.daemon.rank_log(job).strip())
        self.assertEqual(snapshot.parent, self.daemon.data / "snapshots")
        self.daemon.cli("rm", job)
        wait_until(lambda: not snapshot.exists(), 20, "the snapshot goes")


if __name__ == "__main__":
    harness.main()
