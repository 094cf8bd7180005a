"""lockstep-exec does nothing for whoever may not ask, nothing that nobody has signed, and nothing at all without a good
configuration.

LOCKSTEP_EXEC_FORGED: how many forged requests are made (default 300)."""

import base64
import os
import pwd
import random
import shutil
import struct
import subprocess

import harness
from exec_place import (ADA, BOB, CALLER, DONE, FAILED, MAGIC, PROGRAM, REFUSED, SUBMIT, Exec, frame, payload)


def means(credential):
    """The bytes that munge's text stands for."""
    try:
        return base64.b64decode(credential[6:-1])
    except ValueError:
        return credential


class Forged(Exec):
    def test_what_was_signed_cannot_be_changed(self):
        submission = self.submission()
        self.refused({**submission, "statement": self.statement()}, "another statement")
        self.refused({**submission, "statement": submission["statement"].replace("nodes=1", "nodes=9")})
        self.refused({**submission, "credential": self.place.sign(ADA, "something else")}, "something else")
        self.refused({**submission, "credential": "MUNGE:AwQFAAB:"}, "munge")
        self.refused(self.submission(self.signed(audience="other")), "audience")

    def test_only_people_sign(self):
        text = self.statement()
        root = subprocess.run(["munge", f"--string={payload(text)}", f"--socket={self.place.munge_socket}"],
                              capture_output=True, text=True, check=True).stdout.strip()
        for credential in (root, self.place.sign(CALLER, payload(text)), self.place.sign("daemon", payload(text))):
            self.refused(self.submission({"credential": credential, "statement": text}))

    def test_only_the_callers_ask(self):
        for caller in (ADA, "root", "daemon"):
            self.refused(self.submission(), "caller", caller=caller)

    def test_requests_that_do_not_read(self):
        whole = frame(verb=SUBMIT)
        for name, data in (("magic", b"XXXX" + bytes(8)), ("size", struct.pack("<II", MAGIC, 1 << 30)),
                           ("a field twice", struct.pack("<II", MAGIC, 2 * (len(whole) - 8)) + whole[8:] * 2),
                           ("an unknown field", struct.pack("<II", MAGIC, 5) + struct.pack("<BI", 30, 0)),
                           ("a field cut off", struct.pack("<II", MAGIC, 3) + b"\x01\x04\x00"),
                           ("no verb", frame(what=0))):
            with self.subTest(name):
                self.assertEqual(self.place.call(data).status, REFUSED)

    def test_a_folder_of_the_users_name_that_is_anothers_is_not_used(self):
        theirs = self.place.root / "runs" / BOB
        theirs.mkdir()
        self.addCleanup(shutil.rmtree, theirs)
        os.chown(theirs, pwd.getpwnam(ADA).pw_uid, -1)
        self.assertEqual(self.call(self.submission(self.signed(BOB))).status, FAILED)
        self.assertEqual(list(theirs.iterdir()), [])

    def test_none_of_many_is_accepted(self):
        many = int(os.environ.get("LOCKSTEP_EXEC_FORGED", "300"))
        dice = random.Random(1)
        others = [self.signed(BOB)["credential"], self.signed()["credential"]]
        accepted = []
        for number in range(many):
            if number % 500 == 0:
                submission = self.submission()
            fields = dict(submission)
            kind = number % 4
            if kind == 0:
                text = bytearray(fields["credential"].encode())
                at = dice.randrange(6, len(text) - 1)
                text[at] = dice.choice([one for one in b"ABCDabcd0189+/" if one != text[at]])
                fields["credential"] = bytes(text)
            elif kind == 1:
                text = bytearray(fields["statement"].encode())
                at = dice.randrange(len(text))
                text[at] = (text[at] + 1 + dice.randrange(250)) % 256
                fields["statement"] = bytes(text)
            elif kind == 2:
                fields["credential"] = dice.choice(others)
            data = bytearray(frame(**fields))
            if kind == 3:
                # One bit anywhere but in what the caller may choose: attempt, point, nil, the job (whose signature
                # it then becomes), time and ticket.
                start, end = data.index(submission["credential"].encode()), len(data)
                at = dice.randrange(start, end)
                data[at] ^= 1 << dice.randrange(8)
            spelled = data[data.index(b"MUNGE:"):][:len(submission["credential"])] if b"MUNGE:" in data else b""
            if means(spelled) == means(submission["credential"].encode()) and submission["statement"].encode() in data:
                continue  # the last letter of base 64 has bits that mean nothing: this is no other credential
            answer = self.place.call(bytes(data))
            if answer.status == DONE:
                accepted.append((kind, number))
            else:
                self.assertNotIn("times", answer.message)
        self.assertEqual(accepted, [], f"of {many}")
        print(f"{many} forged requests, none accepted")


class Configured(Exec):
    def test_nothing_without_a_good_configuration(self):
        place = self.place
        for name, path in (
                ("absent", place.root / "none"), ("another's", place.configured("c1", uid=1)),
                ("open to a group", place.configured("c2", mode=0o664)),
                ("open to all", place.configured("c3", mode=0o646)), ("empty", place.configured("c4", "")),
                ("unknown key", place.configured("c5", place.settings + "shell = /bin/sh\n")),
                ("key twice", place.configured("c6", place.settings + "audience = x\n")),
                ("no callers", place.configured("c7", place.settings.replace(f"callers = {CALLER}\n", ""))),
                ("root calls", place.configured("c8", place.settings.replace(CALLER, "root"))),
                ("relative path", place.configured("c9", place.settings.replace(f"runs = {place.root}/runs", "runs = runs"))),
                ("dots", place.configured("c10", place.settings.replace("/runs\n", "/../runs\n"))),
                ("everybody", place.configured("c11", place.settings + "minimum-uid = 0\n"))):
            with self.subTest(name):
                self.refused(self.submission(), "configuration", configuration=path)
                said = subprocess.run([PROGRAM, "--check", str(path)], capture_output=True, text=True, check=False)
                self.assertEqual(said.returncode, 1, said.stdout)
        good = subprocess.run([PROGRAM, "--check", str(place.configuration)], capture_output=True, text=True, check=False)
        self.assertEqual((good.returncode, good.stdout), (0, "good\n"))

    def test_every_folder_above_is_roots(self):
        link = self.place.root / "link.conf"
        link.symlink_to(self.place.configuration)
        self.refused(self.submission(), "configuration", configuration=link)
        for name, mode, uid in (("open", 0o777, 0), ("theirs", 0o755, pwd.getpwnam(ADA).pw_uid)):
            folder = self.place.root / name
            folder.mkdir()
            folder.chmod(mode)
            os.chown(folder, uid, -1)
            shutil.copy(self.place.configuration, folder / "c")
            self.refused(self.submission(), "configuration", configuration=folder / "c")

    def test_who_may_sign(self):
        place = self.place
        self.refused(self.submission(), "not among",
                     configuration=place.configured("u1", place.settings + f"users = {BOB}\n"))
        above = pwd.getpwnam(ADA).pw_uid + 50
        self.refused(self.submission(), configuration=place.configured("u2", place.settings + f"minimum-uid = {above}\n"))

    def test_it_is_never_a_users_own_program(self):
        entry = pwd.getpwnam(ADA)
        done = subprocess.run(["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", PROGRAM],
                              capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    harness.main()
