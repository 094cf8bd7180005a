"""What lockstep-exec does for a user who has signed it, and its units. The cases here and in test_exec_*.py follow
flux-security's tests of flux-imp (t2000 to t2005: configuration, callers, signatures, environment, switching of
users) where they have a counterpart."""

import os
import pathlib
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
import time
import unittest

import harness
from exec_place import (ADA, BOB, CALLER, CANCEL, DONE, JOB, JOBS, NAME, OPEN_LOG, OTHER_JOB, QUERY, REFRESH, SIGNATURE, Exec,
                        payload)


# Runs a program with a filter of system calls, which allows all of them: systemd puts several before the unit's program.
FILTERED = """
import ctypes, os, struct, sys
rule = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fff0000))
rules = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(rule)))
# PR_SET_NO_NEW_PRIVS as the unit has it, PR_SET_SECCOMP
if ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) != 0 or ctypes.CDLL(None).prctl(22, 2, rules) != 0:
    sys.exit("no filter")
os.execv(sys.argv[1], sys.argv[1:])
"""


class ForTheUser(Exec):
    def test_sbatch_runs_as_the_signer_with_nothing_of_lockstepds(self):
        answer = self.call(self.submission())
        self.assertEqual((answer.status, answer.out), (DONE, b"4711\n"), answer)
        lines = answer.err.decode().split("\n")
        uid = pwd.getpwnam(ADA).pw_uid
        self.assertIn(f"uid={uid}({ADA})", lines[0])
        self.assertNotIn("root", lines[0])
        names = {line.split("=")[0] for line in lines if "=" in line and not line.startswith("uid=")}
        self.assertLessEqual(names, {"PATH", "HOME", "USER", "LOGNAME", "PWD", "SHLVL", "_"})
        self.assertIn("PATH=/usr/bin:/bin", lines)
        self.assertFalse([line for line in lines if "socket:" in line], "no connection is left open")
        self.assertIn("0022", lines)

    def test_ticket_and_script_are_the_users_and_the_script_names_what_was_signed(self):
        self.assertEqual(self.call(self.submission()).status, DONE)
        uid = pwd.getpwnam(ADA).pw_uid
        for name, mode in (("agent.json", 0o600), ("batch.sh", 0o700)):
            info = (self.attempt() / name).stat()
            self.assertEqual((info.st_uid, stat.S_IMODE(info.st_mode)), (uid, mode), name)
        script = (self.attempt() / "batch.sh").read_text()
        self.assertIn("--signed " + "a" * 64 + "/0", script)
        self.assertEqual(subprocess.run(["bash", "-n", self.attempt() / "batch.sh"], check=False).returncode, 0)
        for user, may in ((ADA, True), (BOB, False), (CALLER, False)):
            entry = pwd.getpwnam(user)
            read = subprocess.run(["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups",
                                   "cat", self.attempt() / "agent.json"], capture_output=True, check=False)
            self.assertEqual(read.returncode == 0, may, user)

    def test_whatever_limit_of_core_files_it_was_started_with(self):
        answer = self.call(self.submission(), core="0:0")
        self.assertEqual((answer.status, answer.out), (DONE, b"4711\n"), answer)

    def test_under_the_filters_of_its_unit(self):
        """The kernel refuses seccomp's strict mode to whoever has a filter: every request was refused."""
        answer = self.call(self.submission(), before=("/usr/bin/python3", "-c", FILTERED))
        self.assertEqual((answer.status, answer.out), (DONE, b"4711\n"), answer)

    def test_a_signature_is_for_one_job_and_for_so_many_submissions(self):
        submission = self.submission()
        self.assertEqual(self.call(submission).status, DONE)
        self.assertEqual(self.call(submission).status, DONE, "munge calls it replayed")
        self.refused({**submission, "job": OTHER_JOB}, "another job")
        self.assertEqual(self.call({**submission, "attempt": 2}).status, DONE)
        self.refused({**submission, "attempt": 3}, "times")

    def test_what_slurm_refuses_at_a_limit_of_jobs_uses_up_no_signature(self):
        """lockstepd tries every 15 s: the 64 uses of a signature were gone in a quarter of an hour."""
        program = self.place.root / "bin" / "sbatch"
        taking = program.read_text()
        self.addCleanup(program.write_text, taking)
        failed = "sbatch: error: Batch job submission failed: "
        refusal = (f"echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2; echo '{failed}Job violates accounting/QOS policy "
                   "(job submit limit, user'\\''s size and/or time limits)' >&2")
        submission = self.submission()
        program.write_text(f"#!/bin/bash\n{refusal}; exit 1\n")
        for _ in range(4):
            answer = self.call(submission)
            self.assertEqual(answer.status, DONE, answer)
            self.assertIn(b"AssocMaxSubmitJobLimit", answer.err)
        self.refused({**submission, "job": OTHER_JOB}, "another job")
        # What may have been taken is a use, whatever else is said.
        for body in (f"{refusal}; echo '{failed}Socket timed out on send/recv operation' >&2; exit 1",
                     f"echo 4711; {refusal}; exit 1", f"{refusal}; kill -9 $$"):
            program.write_text(f"#!/bin/bash\n{body}\n")
            self.assertEqual(self.call(submission).status, DONE, body)
        program.write_text(taking)
        self.refused(submission, "has been used 3 times")

    def test_past_munges_own_lifetime_it_still_counts(self):
        text = self.statement()
        credential = self.place.sign(ADA, payload(text), "--ttl=1")
        made = time.time()
        harness.wait_until(lambda: time.time() > made + 2.2, 10, "the second is over")
        self.assertEqual(self.call(self.submission({"credential": credential, "statement": text})).status, DONE)

    def test_where_lockstepd_is_is_written_for_an_attempt_that_was_submitted_and_no_other(self):
        """With any of the user's signatures, of any age, a folder was made and 4 KB of the caller's choice put there."""
        submission = self.submission()
        runs = self.place.root / "runs" / ADA
        self.refused({**submission, "what": REFRESH, "job": OTHER_JOB}, "no job was submitted")
        self.assertFalse((runs / OTHER_JOB).exists())
        self.assertEqual(self.call(submission).status, DONE)
        moved = {**submission, "what": REFRESH, "ticket": '{"t":2}'}
        answer = self.call(moved)
        self.assertEqual((answer.status, answer.out), (DONE, b""), answer)
        self.assertEqual((self.attempt() / "agent.json").read_text(), '{"t":2}')
        self.refused({**moved, "job": OTHER_JOB}, "another job")
        self.refused({**moved, **self.signed()}, "no job was submitted")
        self.refused({**moved, "attempt": 7}, "no such attempt")
        self.assertFalse((runs / OTHER_JOB).exists() or (runs / JOB / "a7").exists())
        # Written by whom the signature is of, in that user's folder.
        self.refused({**moved, **self.signed(BOB)}, "no job was submitted")

    def test_queries_and_cancel_are_the_users(self):
        signature = self.signed()
        who = self.call({"verb": QUERY, "what": SIGNATURE, **signature})
        self.assertTrue(who.message.startswith(ADA + " "), who)
        jobs = self.call({"verb": QUERY, "what": JOBS, "fence": "abcdef0123", **signature})
        self.assertTrue(jobs.out.startswith(ADA.encode() + b"\n") and b"-u " + ADA.encode() in jobs.out, jobs)
        gone = self.call({"verb": CANCEL, "slurm_job": 4711, "name": NAME, **signature})
        self.assertEqual(gone.out, f"{ADA}\n--name={NAME} 4711\n".encode())
        for name in ("other-job", "train", "x-a1", NAME + ";id", NAME + "x"):
            self.refused({"verb": CANCEL, "slurm_job": 1, "name": name, **signature})

    def test_a_log_is_opened_and_nothing_else_that_lies_about(self):
        self.assertEqual(self.call(self.submission()).status, DONE)
        uid = pwd.getpwnam(ADA).pw_uid
        log = self.attempt() / "rank-00000.log"
        log.write_text("loss 1\n")
        os.chown(log, uid, -1)
        log.chmod(0o600)
        asked = {"verb": OPEN_LOG, "job": JOB, "attempt": 1, "file": "rank-00000.log"}
        opened = self.call({**asked, **self.signed()})
        self.assertEqual((opened.status, opened.file), (DONE, b"loss 1\n"), opened)
        # As job/model/evidence.hpp and profile.hpp name them. No file of a profile could be fetched.
        for name in ("evidence/gen-1/rank-00000/stacks.txt", "profile/gen-1/take-1/rank-00000/2.stacks.txt"):
            file = self.attempt() / name
            file.parent.mkdir(parents=True)
            file.write_text("seen\n")
            for made in (file, *file.parents[:len(name.split("/")) - 1]):
                os.chown(made, uid, -1)
            taken = self.call({**asked, **self.signed(), "file": name})
            self.assertEqual((taken.status, taken.file), (DONE, b"seen\n"), (name, taken))
        other = self.call({**asked, **self.signed(BOB)})
        self.assertIsNone(other.file, "the signature of another user opens another user's")
        for name in ("agent.json", "../a1/rank-00000.log", "rank-/../agent.json", "evidence/../agent.json", "/etc/shadow",
                     "profile/../agent.json", "profile", "rank-.//x", ".bashrc", "rank-00001.log\n"):
            self.refused({**asked, **self.signed(), "file": name})
        (self.attempt() / "rank-00002.log").symlink_to(self.place.root / "munge.key")
        os.mkfifo(self.attempt() / "rank-00003.log")
        os.chown(self.attempt() / "rank-00003.log", uid, -1)
        (self.attempt() / "rank-00004.log").write_text("root's")
        for name in ("rank-00002.log", "rank-00003.log", "rank-00004.log"):
            self.refused({**asked, **self.signed(), "file": name})


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def test_systemd_takes_them_and_finds_little_open(self):
        with tempfile.TemporaryDirectory() as folder:
            units = pathlib.Path(folder)
            for name in ("lockstep-exec.socket", "lockstep-exec@.service"):
                text = (harness.SOURCE / "deploy/systemd" / name).read_text()
                # systemd lets nobody whom this restricts call openat2(): no log of a user's was shown.
                self.assertNotRegex(text, r"(?m)^RestrictSUIDSGID=")
                (units / name).write_text(text.replace("/usr/local/libexec/lockstep/lockstep-exec", "/usr/bin/true"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", units / "lockstep-exec.socket"],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertNotIn("lockstep-exec", done.stdout + done.stderr)
            shutil.copy(units / "lockstep-exec@.service", units / "lockstep-exec.service")
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", units / "lockstep-exec.service"],
                                  capture_output=True, text=True, timeout=60, check=False)
            level = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout + done.stderr)
            self.assertLessEqual(float(level[1]), 5.0, "it is root that becomes others, so not 1.5")


if __name__ == "__main__":
    harness.main()
