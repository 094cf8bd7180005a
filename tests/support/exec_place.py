"""lockstep-exec with real munge, real users and a stand-in for Slurm's programs: what its tests share.

The users are named after the test's file, as these run side by side and remove theirs at the end."""

import contextlib
import hashlib
import os
import pathlib
import pwd
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import harness

PROGRAM = harness.BIN / "lockstep-exec"
LYING = harness.BIN.parent / "tests" / "lying_identity.so"
ADA, BOB, CALLER = USERS = tuple(
    f"ls{pathlib.Path(sys.argv[0]).stem}-{name}".replace("_", "-") for name in ("ada", "bob", "daemon"))
JOB, OTHER_JOB = "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV", "ls-01ARZ3NDEKTSV4RRFFQ69G5FAW"
NAME = "train-01arz3ndektsv4rrffq69g5fav-a1"
SUBMIT, CANCEL, QUERY, OPEN_LOG = 1, 2, 3, 4
NONE, REFRESH, ABOUT, SIGNATURE, JOBS, HISTORY, SHOW = range(7)
DONE, REFUSED, FAILED = range(3)
TAGS = {name: number for number, name in enumerate(
    ("verb", "what", "attempt", "point", "nil", "slurm_job", "since", "job", "name", "exclude", "time", "fence",
     "file", "ticket", "credential", "statement"), 1)}
MAGIC = 0x3158534C


def missing():
    if os.getuid() != 0:
        return "needs root: it makes users, and lockstep-exec is started by root alone"
    if not PROGRAM.exists():
        return "lockstep-exec is not built (libmunge-dev)"
    absent = [name for name in ("munged", "munge", "setpriv", "useradd", "userdel") if not shutil.which(name)]
    return f"needs {', '.join(absent)}" if absent else ""


def frame(**fields):
    body = b""
    for name, value in fields.items():
        if isinstance(value, int):
            value = struct.pack("<q" if name in ("slurm_job", "since") else "<I", value)
        elif isinstance(value, str):
            value = value.encode()
        body += struct.pack("<BI", TAGS[name], len(value)) + value
    return struct.pack("<II", MAGIC, len(body)) + body


def payload(statement):
    return "lockstep-exec-1 " + hashlib.sha256(statement.encode()).hexdigest()


class Answer:
    def __init__(self, status, message, out, err, file, log, code):
        self.status, self.message, self.out, self.err, self.file, self.log = status, message, out, err, file, log
        self.code = code  # of the process

    def __repr__(self):
        return (f"status {self.status} {self.message!r} out {self.out!r} err {self.err!r} log {self.log!r} "
                f"code {self.code}")


class Place:
    """Folders, users, munged, a configuration and a socket: what the tests of this file share."""

    def __init__(self):
        self.made = []
        self.munged = None
        # Not below a folder that only this process may enter: users look there.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-exec-", dir="/tmp"))
        self.root.chmod(0o755)
        for user in USERS:
            try:
                pwd.getpwnam(user)
            except KeyError:
                harness.wait_until(lambda user=user: self.add_user(user), 20, f"user {user}")
                self.made.append(user)
        for name, mode in (("runs", 0o755), ("state", 0o700), ("bin", 0o755), ("munge", 0o755), ("ran", 0o1777)):
            (self.root / name).mkdir()
            (self.root / name).chmod(mode)
        self.munge_socket = str(self.root / "munge" / "socket")
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.munged = subprocess.Popen(
            ["munged", "--foreground", "--force", f"--socket={self.munge_socket}", f"--pid-file={self.root}/munge/pid",
             f"--seed-file={self.root}/munge/seed", f"--key-file={key}", f"--log-file={self.root}/munge/log"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        harness.wait_until(lambda: os.path.exists(self.munge_socket), 20, "munged listens")
        for name, body in (("sbatch", "echo 4711; id >&2; env | sort >&2; ls -l /proc/self/fd >&2; umask >&2"),
                           ("squeue", 'id -un; echo "$@"'), ("scancel", 'id -un; echo "$@"'), ("sacct", "true"),
                           ("scontrol", "true")):
            program = self.root / "bin" / name
            program.write_text(f"#!/bin/bash\nid >{self.root}/ran/{name}.$$\n{body}\n")
            program.chmod(0o755)
        self.settings = (f"callers = {CALLER}\naudience = test\nslurm-bin = {self.root}/bin\nruns = {self.root}/runs\n"
                         f"agent = /opt/lockstep-agent\nstate = {self.root}/state\n"
                         f"munge-socket = {self.munge_socket}\nsubmissions = 3\n")
        self.configuration = self.configured("exec.conf")
        self.path = str(self.root / "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666)
        self.listener.listen(8)

    @staticmethod
    def add_user(user):
        """Another test may hold the lock of /etc/passwd."""
        return subprocess.run(["useradd", "--no-create-home", "--home-dir", "/tmp", "--user-group", "--shell", "/bin/bash",
                               user], capture_output=True, check=False).returncode == 0

    def configured(self, name, text=None, mode=0o644, uid=0):
        path = self.root / name
        path.write_text(self.settings if text is None else text)
        path.chmod(mode)
        os.chown(path, uid, 0)
        return path

    def take_ran(self):
        """What `id` said in each of Slurm's programs that has run since the last call."""
        out = []
        for file in sorted((self.root / "ran").iterdir()):
            out.append((file.name.split(".")[0], file.read_text().strip()))
            file.unlink()
        return out

    def close(self):
        if self.munged:
            self.munged.terminate()
            self.munged.wait()
        self.listener.close()
        shutil.rmtree(self.root, ignore_errors=True)
        for user in self.made:
            subprocess.run(["userdel", user], capture_output=True, check=False)

    def sign(self, user, text, *more):
        entry = pwd.getpwnam(user)
        made = subprocess.run(
            ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "munge", f"--string={text}",
             f"--socket={self.munge_socket}", "--restrict-uid=0", *more], capture_output=True, text=True, check=True)
        return made.stdout.strip()

    def call(self, data, caller=CALLER, configuration=None, environment=None, core=None, before=()):
        """A process that has become the caller connects, so that SO_PEERCRED is that user's."""
        here, there = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                if caller != "root":
                    entry = pwd.getpwnam(caller)
                    os.setgroups([])
                    os.setgid(entry.pw_gid)
                    os.setuid(entry.pw_uid)
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(self.path)
                    try:
                        connection.sendall(data)
                    except OSError:
                        pass
                    got, files, _, _ = socket.recv_fds(connection, 1 << 20, 1)
                    # Whoever is refused before all was read sees a reset behind the answer.
                    with contextlib.suppress(ConnectionResetError):
                        while more := connection.recv(1 << 20):
                            got += more
                    there.sendall(got + (b"|file|" + os.read(files[0], 4096) if files else b""))
            except OSError:
                pass
            finally:
                os._exit(0)
        there.close()
        connection, _ = self.listener.accept()
        limits = ["/usr/bin/prlimit", f"--core={core}"] if core else []
        program = subprocess.Popen([*before, *limits, PROGRAM, str(configuration or self.configuration)], stdin=connection,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, extra_groups=(0,),
                                   env=environment or {"LD_X": "1", "PATH": "/evil", "HOME": "/evil"})
        connection.close()
        log = program.stderr.read().decode()
        program.wait()
        program.stderr.close()
        got = b""
        while more := here.recv(1 << 20):
            got += more
        os.waitpid(pid, 0)
        here.close()
        if len(got) < 28:
            return Answer(None, "", b"", b"", None, log, program.returncode)
        _, status, _, _, message, out, err = struct.unpack("<IIiiIII", got[:28])
        rest = got[28:]
        tail = rest[message + out + err:]
        return Answer(status, rest[:message].decode(), rest[message:message + out],
                      rest[message + out:message + out + err], tail[6:] if tail else None, log,
                      program.returncode)


@unittest.skipIf(missing(), missing())
class Exec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Place()
        cls.addClassCleanup(cls.place.close)

    @staticmethod
    def statement(audience="test", document="a" * 64):
        return (f"lockstep-exec-1\naudience {audience}\nnonce {os.urandom(16).hex()}\ndocument {document}\n"
                "jobs 0-0 1 train\nsbatch exclude\nsbatch nodes=1\nsbatch ntasks-per-node=1\nsbatch cpus-per-task=1\n"
                "sbatch time=0:05:00\n")

    def signed(self, user=ADA, **options):
        text = self.statement(**options)
        return {"credential": self.place.sign(user, payload(text)), "statement": text}

    def submission(self, signature=None, **changes):
        return {"verb": SUBMIT, "what": NONE, "attempt": 1, "point": 0, "nil": 0, "job": JOB, "time": "1:00:00",
                "ticket": '{"t":1}', **(signature or self.signed()), **changes}

    def call(self, fields, **options):
        return self.place.call(frame(**fields), **options)

    def refused(self, fields, words="", **options):
        answer = self.call(fields, **options)
        self.assertEqual(answer.status, REFUSED, answer)
        self.assertIn(words, answer.message)
        self.assertNotIn(b"4711", answer.out)
        self.assertIsNone(answer.file)
        return answer

    def attempt(self, user=ADA):
        return self.place.root / "runs" / user / JOB / "a1"
