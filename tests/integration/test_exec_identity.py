"""lockstep-exec becomes another user twice: a process that it forks is nobody and reads the request, then it is itself the
user. At either place each call that changes or reads an identity fails or lies, and it must say so and end."""

import shutil
import unittest

import harness
from exec_place import (ADA, BOB, CANCEL, DONE, JOB, JOBS, LYING, NAME, OPEN_LOG, QUERY, REFRESH, REFUSED, Exec)

HAD_BACK = "root can be had back"
# What lies (lying_identity.cpp), and the check that notices. `half` and `echo` are kernels that do a part and say all.
BOTH = (
    ("setgroups:fail", "setgroups"), ("setgroups:lie", "setgroups"), ("setgroups:half", "setgroups"),
    ("getgroups:fail", "setgroups"),
    ("setresgid:fail", "setresgid"), ("setresgid:lie", "setresgid"), ("setresgid:half", "setresgid"),
    ("getresgid:fail", "setresgid"), ("getresgid:lie", "setresgid"),
    ("setresuid:fail", "setresuid"), ("setresuid:lie", "setresuid"), ("setresuid:half", "setresuid"),
    ("getresuid:fail", "setresuid"), ("getresuid:lie", "setresuid"),
    ("setresgid:lie,getresgid:echo", HAD_BACK), ("setresgid:half,getresgid:echo", HAD_BACK),
    ("setresuid:lie,getresuid:echo", HAD_BACK), ("setresuid:half,getresuid:echo", HAD_BACK),
    ("setresuid(0):lie", HAD_BACK), ("setuid:lie", HAD_BACK), ("seteuid:lie", HAD_BACK), ("setresgid(0):lie", HAD_BACK),
    ("setegid:lie", HAD_BACK),
    ("setresuid:keep", "capabilities are left"), ("capget:fail", "capabilities are left"),
    ("no_new_privs:fail", "no_new_privs"), ("no_new_privs:lie", "no_new_privs"),
    ("get_no_new_privs:fail", "no_new_privs"), ("get_no_new_privs:lie", "no_new_privs"),
)
# Of the reader, who has no groups: that it reads none is what it wants.
READER = (*BOTH, ("dumpable:fail", ""), ("seccomp:fail", ""))
USER = (*BOTH, ("getgroups:lie", "setgroups"), ("getgrouplist:fail", "getgrouplist"),
        ("getgrouplist:lie", "a member of root's group"))


def lying(side, lies):
    text = ",".join(f"{side}:{lie}" for lie in lies.split(","))
    return {"LD_PRELOAD": str(LYING), "LOCKSTEP_TEST_IDENTITY": text}


@unittest.skipUnless(LYING.exists(), f"{LYING.name} is not built")
class Identity(Exec):
    def setUp(self):
        self.place.take_ran()

    def ended(self, fields, message, side, lies):
        answer = self.call(fields, environment=lying(side, lies))
        ran, folder = self.place.take_ran(), self.place.root / "runs" / ADA / JOB
        written = list(folder.rglob("*"))
        shutil.rmtree(folder, ignore_errors=True)
        # Said by the program itself, and its own end: that it has crashed proves nothing.
        self.assertEqual((answer.status, answer.message, answer.code), (REFUSED, message, 1), answer)
        self.assertTrue(answer.log.endswith(f"lockstep-exec: refused: {message}\n"), answer)
        self.assertEqual((answer.out, answer.err, answer.file), (b"", b"", None), answer)
        self.assertEqual(ran, [], "no program of Slurm's has run, as anybody")
        self.assertEqual(written, [], "nothing is written, as anybody")  # what works here is bob's

    def test_of_the_reader(self):
        for lies, _ in READER:
            with self.subTest(lies):
                self.ended(self.submission(), "the reader could not give up its rights", "others", lies)

    def test_of_the_user(self):
        for lies, what in USER:
            with self.subTest(lies):
                self.ended(self.submission(), f"cannot become {ADA}: {what}", "first", lies)

    def test_of_the_user_whatever_is_asked(self):
        signature = self.signed()
        for fields in ({"verb": CANCEL, "slurm_job": 4711, "name": NAME}, {"verb": QUERY, "what": JOBS, "fence": "abc"},
                       {"verb": OPEN_LOG, "job": JOB, "attempt": 1, "file": "rank-00000.log"}):
            for lies in ("setgroups:lie", "setresgid:lie", "setresuid:lie", "setresuid:half"):
                with self.subTest(fields, lies=lies):
                    self.ended({**fields, **signature}, f"cannot become {ADA}: {lies.split(':')[0]}", "first", lies)

    def test_without_a_lie_it_works_as_the_user(self):
        # The last: a lie about a call that is not made changes nothing, so the others' are made where they say.
        for environment in ({"LD_PRELOAD": str(LYING)}, lying("others", "getgrouplist:fail")):
            answer = self.call(self.submission(self.signed(BOB)), environment=environment)
            self.assertEqual((answer.status, answer.out, answer.code), (DONE, b"4711\n", 0), answer)
            [(program, who)] = self.place.take_ran()
            self.assertEqual(program, "sbatch")
            self.assertRegex(who, rf"^uid=\d+\({BOB}\) gid=\d+\({BOB}\) groups=\d+\({BOB}\)$")

    def test_a_signature_that_has_expired_submits_nothing_but_its_job_is_still_reached(self):
        later = {"environment": lying("first", "time:lie")}
        submission = self.submission(self.signed(BOB))
        self.assertEqual(self.call(submission).status, DONE)
        for again in (submission, self.submission(self.signed(BOB))):
            self.refused(again, "older than 30 days", **later)
        signature = {name: submission[name] for name in ("credential", "statement")}
        self.assertEqual(self.call({**submission, "what": REFRESH}, **later).status, DONE)
        gone = self.call({"verb": CANCEL, "slurm_job": 4711, "name": NAME, **signature}, **later)
        self.assertEqual(gone.out, f"{BOB}\n--name={NAME} 4711\n".encode())


if __name__ == "__main__":
    harness.main()
