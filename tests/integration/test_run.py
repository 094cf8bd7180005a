"""lockstep run: a command as it works in the caller's shell, without a specification and, if need be,
without a lockstepd: one is started."""
# size: one subcommand, in a shell that all its tests share

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import threading
import time

import harness
from harness import BIN, wait_until


class RunCase(harness.TestCase):
    """A caller with a home and a working directory of its own, in front of a daemon that runs."""

    def setUp(self):
        super().setUp()
        self.home = self.root / "home"
        self.work = self.root / "work"
        self.home.mkdir()
        self.work.mkdir()

    def environment(self, **more):
        keep = ("PATH", "LANG")
        own = {name: os.environ[name] for name in keep if name in os.environ}
        return {**own, "HOME": str(self.home), "LOCKSTEP_URL": self.daemon.url,
                "LOCKSTEP_TOKEN": self.daemon.token, **more}

    def lockstep(self, *arguments, seconds=150, cwd=None, stdin=None, env=None):
        return subprocess.run([BIN / "lockstep", *map(str, arguments)], capture_output=True, text=True,
                              timeout=seconds, check=False, input=stdin, cwd=cwd or self.work,
                              env=env or self.environment())

    def write(self, name, text, mode=0o644):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


class Run(RunCase):
    def test_the_ranks_are_where_the_caller_is_with_his_environment(self):
        self.write("show.sh", 'echo "$PWD $COLOUR $RANK/$WORLD_SIZE ${DISPLAY-none} $HOME"\n')
        env = self.environment(COLOUR="green", DISPLAY=":0", RANK="7", MASTER_ADDR="elsewhere")
        done = self.lockstep("run", "-n", "2", "--wait", "sh", "show.sh", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = done.stdout.split()[0]
        for rank in (0, 1):
            self.assertEqual(self.daemon.rank_log(job, rank),
                             f"{self.work} green {rank}/2 none {self.home}\n")
        self.assertEqual(self.daemon.job(job)["name"], "sh")
        self.assertIn("environment", done.stderr)

    def test_a_virtual_environment_is_the_ranks_python(self):
        venv = self.work / "venv"
        subprocess.run([harness.PYTHON, "-m", "venv", "--without-pip", venv], check=True)
        self.write("train.py", "import sys\nprint(sys.prefix)\n")
        for extra in ({"PATH": f"{venv}/bin:{os.environ['PATH']}"}, {}):
            env = self.environment(VIRTUAL_ENV=str(venv), **extra)
            done = self.lockstep("run", "--wait", "--", "python", "train.py", env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            job = done.stdout.split()[0]
            self.assertEqual(self.daemon.rank_log(job), f"{venv}\n")
            self.assertEqual(self.daemon.job(job)["name"], "train")
            self.assertIn(f"{venv}/bin/python", done.stderr)

    def test_a_conda_environment_comes_first_on_the_ranks_path(self):
        prefix = self.work / "conda/envs/train"
        self.write("conda/envs/train/conda-meta/history", "")
        self.write("conda/envs/train/bin/only-there", "#!/bin/sh\necho of the environment\n", 0o755)
        (prefix / "bin/python").symlink_to(harness.PYTHON)
        self.write("train.py", "import os, subprocess, sys\n"
                   "print(sys.executable, os.environ['CONDA_PREFIX'], os.environ['PATH'].split(':')[0], flush=True)\n"
                   "subprocess.run(['only-there'], check=True)\n")
        # As conda activate leaves it; only the variable; beside a virtual environment that is gone.
        for extra in ({"PATH": f"{prefix}/bin:{os.environ['PATH']}"}, {}, {"VIRTUAL_ENV": str(self.work / "gone")}):
            env = self.environment(CONDA_PREFIX=str(prefix), **extra)
            done = self.lockstep("run", "-n", "2", "--wait", "--", "python", "train.py", env=env)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for rank in (0, 1):
                self.assertEqual(self.daemon.rank_log(done.stdout.split()[0], rank),
                                 f"{prefix}/bin/python {prefix} {prefix}/bin\nof the environment\n", extra)

    def test_the_exit_status_is_the_jobs_and_output_is_shown(self):
        self.assertEqual(self.lockstep("run", "--follow", "false").returncode, 1)
        done = self.lockstep("run", "--follow", "--", "sh", "-c", "echo the answer is 42")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the answer is 42\n", done.stdout)
        self.assertIn("/rank-*.log", done.stderr)
        logged = self.lockstep("run", "--logs", "--", "sh", "-c", "echo one; echo two; exit 3")
        self.assertEqual(logged.returncode, 1)
        self.assertIn("one\ntwo\n", logged.stdout)

    def test_a_sweep_is_a_job_a_value_and_the_best_is_shown(self):
        self.write("train.sh", "echo loss=$1 step=1\n")
        done = self.lockstep("run", "--wait", "--sweep", "lr=0.5,0.25", "--max-parallel", "1", "--name", "try-{lr}",
                             "--", "sh", "train.sh", "{lr}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the first of 2 jobs", done.stderr)
        jobs = self.daemon.get(f"/v1/jobs?sweep={done.stdout.split()[0]}")["items"]
        self.assertEqual({(job["name"], job["sweep"]["parameters"]["lr"], job["state"]) for job in jobs},
                         {("try-0.5", 0.5, "succeeded"), ("try-0.25", 0.25, "succeeded")})
        titles, best, _ = done.stdout.splitlines()[-3:]
        self.assertIn("BEST LOSS", titles)
        self.assertRegex(best, r"ls-\S+ +0\.25 +succeeded")

        refused = self.lockstep("run", "--sweep", "rate=1,2", "--", "sh", "train.sh", "{lr}")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("{rate} stands nowhere in the command", refused.stderr)

    def test_setup_runs_in_a_login_shell_and_its_exports_are_the_ranks(self):
        (self.home / ".bash_profile").write_text("module() { export MODULE=\"$2\"; }\nPATH=/bin:/usr/bin\n")
        self.write("bin/tool", "#!/bin/sh\necho \"$MODULE $MORE $KEEP\"\n", 0o755)
        env = self.environment(PATH=f"{self.work}/bin:{os.environ['PATH']}", KEEP="kept")
        done = self.lockstep("run", "--wait", "--setup", "module load cuda/12\nexport MORE='a b'", "-n", "2",
                             "tool", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = done.stdout.split()[0]
        self.assertEqual(self.daemon.rank_log(job, 1), "cuda/12 a b kept\n")

    def test_a_setup_that_fails_is_the_cause_with_what_it_said(self):
        done = self.lockstep("run", "--wait", "--setup", "echo loading\nls /not/there\necho never", "true")
        self.assertEqual(done.returncode, 1)
        job = self.daemon.job(done.stdout.split()[0])
        self.assertEqual(job["cause"]["class"], "user_error")
        self.assertEqual(job["cause"]["message"], "setup failed with exit code 2: line 2: ls /not/there")
        self.assertIn("loading\n", job["cause"]["log_tail"])
        self.assertIn("/not/there", job["cause"]["log_tail"])
        self.assertNotIn("never", job["cause"]["log_tail"])
        gone = self.lockstep("run", "--wait", "--setup", "exit 0", "true")
        self.assertEqual(gone.returncode, 1)
        self.assertIn("setup ended its shell", gone.stdout)

    def test_libraries_of_the_job_are_not_those_of_the_agent(self):
        bad = self.work / "lib"
        bad.mkdir()
        (bad / "libfmt.so.9").write_text("no library")
        done = self.lockstep("run", "--wait", "--env", f"LD_LIBRARY_PATH={bad}", "--", "sh", "-c",
                             "echo $LD_LIBRARY_PATH")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.daemon.rank_log(done.stdout.split()[0]), f"{bad}\n")

    def test_a_snapshot_is_not_changed_by_what_is_edited_meanwhile(self):
        def git(*words):
            subprocess.run(["git", "-c", "user.name=me", "-c", "user.email=me@example.org", *words], cwd=self.work,
                           check=True, capture_output=True, env=self.environment())
        git("init", "-q")
        self.write("src/train.sh", "echo committed\n")
        git("add", ".")
        git("commit", "-qm", "first")
        self.write("src/train.sh", "cat note; echo changed\n")
        self.write("src/note", "not tracked\n")
        done = self.lockstep("run", "--snapshot", "--detach", "--", "sh", "train.sh", cwd=self.work / "src")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write("src/train.sh", "echo later\n")
        job = self.daemon.wait_state(done.stdout.strip(), harness.FINAL)
        self.assertEqual(job["state"], "succeeded")
        log = self.daemon.rank_log(job["id"])
        self.assertIn("changed\n", log)
        self.assertNotIn("not tracked", log)
        self.assertEqual(job["labels"]["git-dirty"], "true")
        self.assertRegex(job["labels"]["git-commit"], "^[0-9a-f]{40}$")
        self.assertIn("not src/note", done.stderr)

    def test_a_specification_is_kept_and_can_be_submitted(self):
        kept = self.work / "job.json"
        dry = self.lockstep("run", "--dry-run", "-o", kept, "--name", "kept", "--", "sh", "-c", "echo $SECRET_KEY",
                            env=self.environment(SECRET_KEY="hush"))
        self.assertEqual((dry.returncode, dry.stdout), (0, ""), dry.stderr)
        self.assertNotIn("hush", kept.read_text())
        done = self.lockstep("submit", kept, "--wait", env=self.environment(SECRET_KEY="later"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.daemon.rank_log(done.stdout.split()[0]), "later\n")

    def test_what_cannot_run_says_so_before_there_is_a_job(self):
        for arguments, words in (((), "no command"),
                                 (("-N", "0", "true"), "--nodes: must be a whole number from 1 to 16384"),
                                 (("no-such-program",), "command not found: no-such-program"),
                                 (("--name", "a b", "true"), "for instance a-b"),
                                 (("--env", "x y", "true"), "must be NAME=VALUE"),
                                 (("--chdir", "$NOPE", "true"), "$NOPE is not set here")):
            with self.subTest(arguments):
                done = self.lockstep("run", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])
        help_text = self.lockstep("run", "--help").stdout
        for words in ("Examples:", "torchrun", "sbatch", "--setup", "Ctrl-C"):
            self.assertIn(words, help_text)

    def test_odd_environments_are_carried_as_far_as_they_can_be(self):
        env = {**self.environment(HUGE="x" * 100_000, ODD="ä\n'\"$HOME"), "BAD": b"\xff\xfe"}
        env = {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        done = self.lockstep("run", "--wait", "--", "sh", "-c", 'echo "$ODD ${HUGE-none} ${BAD-none}"', env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.daemon.rank_log(done.stdout.split()[0]), "ä\n'\"$HOME none none\n")
        self.assertIn("HUGE: 97 KiB", done.stderr)
        self.assertIn("BAD: it is not UTF-8", done.stderr)


class Secrets(RunCase):
    def test_nobody_but_the_owner_sees_the_environment(self):
        env = self.environment(WANDB_API_KEY="hush-hush", COLOUR="green")
        done = self.lockstep("run", "--detach", "--env", "DB_PASSWORD=open$sesame", "--", "true", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = done.stdout.strip()
        mine = self.daemon.get(f"/v1/jobs/{job}/spec")
        self.assertEqual(mine["recorded_environment"]["WANDB_API_KEY"], "hush-hush")
        self.assertEqual(mine["environment"]["DB_PASSWORD"], "open$$sesame")
        status, viewer = self.daemon.api("POST", "/v1/tokens", {"name": "eyes", "user": "eve", "role": "viewer"})
        self.assertEqual(status, 201, viewer)
        as_viewer = {"Authorization": "Bearer " + viewer["token"]}
        for path in ("", "/spec", "/events"):
            status, _, body = self.daemon.request("GET", f"/v1/jobs/{job}{path}", headers=as_viewer)
            self.assertEqual(status, 200, body)
            self.assertNotIn(b"hush-hush", body)
            self.assertNotIn(b"sesame", body)
        status, theirs = self.daemon.api("GET", f"/v1/jobs/{job}/spec", headers=as_viewer)
        self.assertEqual(theirs["recorded_environment"]["COLOUR"], "***")
        shown = self.lockstep("show", job, "--environment").stdout
        self.assertIn("COLOUR=green", shown)
        self.assertIn("WANDB_API_KEY=***", shown)
        self.assertNotIn("hush-hush", shown)


class Documents(RunCase):
    def test_yaml_and_json_with_comments_are_submitted(self):
        self.write("job.yaml", "# small\nname: yaml-job\nframework: command\ncommand: [sh, -c, 'echo $SEED $P']\n"
                               "environment: {SEED: 1, P: '$COLOUR:x'}\n")
        done = self.lockstep("submit", "job.yaml", "--wait", env=self.environment(COLOUR="green"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.daemon.rank_log(done.stdout.split()[0]), "1 green:x\n")
        self.write("job.json", '{"name": "j", // why\n "framework": "command", "command": ["true",],}\n')
        self.assertEqual(self.lockstep("submit", "job.json", "--wait").returncode, 0)

    def test_a_mistake_is_shown_once_where_it_is_with_what_was_meant(self):
        self.write("bad.yaml", "name: x\nframework: torch\ncommand: [a]\nresources:\n  node: 2\n")
        done = self.lockstep("submit", "bad.yaml")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("/framework"), 1, done.stderr)
        self.assertNotIn("has no effect", done.stderr)
        self.assertIn("bad.yaml:2:12: /framework: must be one of:", done.stderr)
        self.assertIn("did you mean pytorch?\n  2 | framework: torch\n", done.stderr)
        self.assertIn("bad.yaml:5:3: /resources/node: unknown field; did you mean nodes?", done.stderr)
        one = self.lockstep("submit", "-", stdin='{"name": "x", "framework": "native", "lables": {}}')
        self.assertEqual(one.stderr.count("lables"), 2, one.stderr)  # the mistake and its line
        self.assertIn("did you mean labels?", one.stderr)
        self.assertIn("did you mean submit?", self.lockstep("sumbit", "bad.yaml").stderr)

    def test_dollars_that_nobody_would_expand_are_refused_by_the_daemon(self):
        spec = harness.command_job("d", "true", environment={"PATH": "/opt/bin:$PATH"})
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/environment/PATH", "$PATH")


class Interrupt(RunCase):
    """On a terminal, where Ctrl-C is pressed."""

    def pressed(self, times, *options):
        """(exit code, screen, job's id) after Ctrl-C was pressed so often, the job running."""
        self.write("job.sh", "echo begun\nexec sleep 600\n")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.work)
            os.execve(BIN / "lockstep", ["lockstep", "run", *options, "sh", "job.sh"], self.environment(TERM="xterm"))
        screen = bytearray()

        def read():
            while True:
                try:
                    piece = os.read(terminal, 4096)
                except OSError:  # EIO: the program has ended
                    return
                if not piece:
                    return
                screen.extend(piece)
        reader = threading.Thread(target=read)
        reader.start()
        job = wait_until(lambda: next(iter(self.daemon.get("/v1/jobs?state=running")["items"]), None), 30,
                         "the job runs")["id"]
        wait_until(lambda: b"running" in screen, 30, "follow says so")
        for _ in range(times):
            before = len(screen)
            os.write(terminal, b"\x03")
            wait_until(lambda: len(screen) > before and b"goes on" in screen, 10, "Ctrl-C is answered")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        reader.join(10)
        os.close(terminal)
        return code, screen.decode(errors="replace"), job

    def test_the_first_leaves_the_job_running(self):
        code, screen, job = self.pressed(1)
        self.assertEqual(code, 130, screen)
        self.assertIn(f"lockstep cancel {job}", screen)
        self.assertEqual(self.daemon.job(job)["state"], "running")

    def test_what_is_to_be_typed_next_asks_the_same_lockstepd(self):
        _, screen, job = self.pressed(1, "--url", self.daemon.url)
        for verb in ("follow", "cancel"):
            self.assertIn(f"lockstep --url {self.daemon.url} {verb} {job}", screen)

    def test_the_second_cancels_it(self):
        code, screen, job = self.pressed(2)
        self.assertEqual(code, 7, screen)
        self.daemon.wait_state(job, "cancelled")


    def test_the_second_cancels_all_of_a_sweep(self):
        code, screen, job = self.pressed(2, "--sweep", "environment.SEED=1,2", "--max-parallel", "1")
        self.assertEqual(code, 7, screen)
        self.assertIn(f"lockstep cancel --sweep {job}", screen)
        for one in self.daemon.get(f"/v1/jobs?sweep={job}")["items"]:
            self.daemon.wait_state(one["id"], "cancelled")


class Listener(threading.Thread):
    """Somebody else's program on a port that was lockstepd's: what it is told."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.heard = []
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.getsockname()[1]}"

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                self.heard.append(connection.recv(65536))
                connection.close()


class Start(RunCase):
    """No lockstepd runs for this user."""

    def setUp(self):
        super().setUp()
        self.data = self.root / "own"
        self.addCleanup(self.end)

    def environment(self, **more):
        own = super().environment(**more)
        del own["LOCKSTEP_URL"], own["LOCKSTEP_TOKEN"]
        return {**own, "LOCKSTEP_DATA_DIR": str(self.data), "LOCKSTEP_SCHEDULER": "local"}

    def end(self):
        for pid in harness.processes_with(str(self.data)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def daemons(self):
        return [pid for pid in harness.processes_with(str(self.data))
                if pathlib.Path(f"/proc/{pid}/exe").resolve().name == "lockstepd"]

    def gone(self):
        """And has left its lock: of a killed process a thread that writes ends later than the others."""
        with open(self.data / "lock", "r+b") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        return not self.daemons()

    def test_one_is_started_said_so_and_used_again(self):
        done = self.lockstep("run", "--wait", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        pids = self.daemons()
        self.assertEqual(len(pids), 1)
        self.assertIn(f"started one for you (pid {pids[0]}, scheduler local)", done.stderr)
        self.assertIn(str(self.data / "lockstepd.log"), done.stderr)
        again = self.lockstep("run", "--wait", "true")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn("started one", again.stderr)
        self.assertEqual(self.daemons(), pids)

    def test_two_at_a_time_start_one(self):
        runs = [subprocess.Popen([BIN / "lockstep", "run", "--wait", "true"], cwd=self.work, text=True,
                                 env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(4)]
        said = [run.communicate(timeout=150) for run in runs]
        self.assertEqual([run.returncode for run in runs], [0, 0, 0, 0], said)
        self.assertEqual(sum("started one" in err for _, err in said), 1, said)
        self.assertEqual(len(self.daemons()), 1)

    def test_whoever_has_taken_the_old_port_gets_no_token(self):
        self.assertEqual(self.lockstep("run", "--wait", "true").returncode, 0)
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        wait_until(self.gone, 10, "lockstepd is gone")
        squatter = Listener()
        (self.data / "url").write_text(squatter.url + "\n")
        done = self.lockstep("run", "--wait", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("started one", done.stderr)
        self.assertEqual(squatter.heard, [])

    def test_no_verb_gives_a_token_to_whoever_has_taken_the_old_port(self):
        self.assertEqual(self.lockstep("run", "--wait", "true").returncode, 0)
        self.assertEqual(self.lockstep("jobs").returncode, 0)
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        wait_until(self.gone, 10, "lockstepd is gone")
        squatter = Listener()
        (self.data / "url").write_text(squatter.url + "\n")
        for verb in (("jobs",), ("whoami",), ("show", "last"), ("cancel", "last"), ("rm", "last"), ("token", "list")):
            done = self.lockstep(*verb)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn("no lockstepd runs with the data directory", done.stderr)
        self.assertEqual(squatter.heard, [])

    def test_one_that_cannot_start_says_why(self):
        done = self.lockstep("run", "true", env={**self.environment(), "LOCKSTEP_LOG_LEVEL": "loud"})
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("lockstepd ended at once", done.stderr)


if __name__ == "__main__":
    harness.main()
