"""The program lockstep itself, whatever the verb: output that cannot be written, arguments that make no sense, and
what is shown of a line that ranks draw again and again."""

import json
import os
import signal
import subprocess

import harness
import test_top
from harness import BIN
from test_terminal import Written


class CommandLine(harness.TestCase):
    def lockstep(self, *arguments, stdout=subprocess.PIPE, environment=None, cwd=None):
        return subprocess.run([BIN / "lockstep", *arguments], stdin=subprocess.DEVNULL, stdout=stdout, cwd=cwd or self.root,
                              stderr=subprocess.PIPE, timeout=60 * harness.PATIENCE, check=False,
                              env=environment or self.daemon.cli_environment())

    def finished_job(self, script="echo out"):
        job_id = self.daemon.submit(harness.command_job("talks", "/bin/sh", "-c", script))["id"]
        self.daemon.wait_state(job_id, harness.FINAL)
        return job_id

    def test_output_that_cannot_be_written_is_said_and_ends_with_8(self):
        job_id = self.finished_job(f"{BIN}/lockstep-agent report loss=0.5 step=1; echo out")
        spec = self.root / "job.json"
        spec.write_text('{"name": "x", "framework": "command", "command": ["true"]}')
        for arguments in (("jobs",), ("jobs", "--json"), ("jobs", "-q"), ("show", job_id), ("logs", job_id), ("logs", job_id, "-f"),
                          ("logs", job_id, "-t"), ("events", job_id), ("events", job_id, "-f"), ("ranks", job_id),
                          ("spec", job_id), ("script", job_id, "--help"), ("nodes",), ("cluster",), ("whoami",), ("du",),
                          ("token", "list"), ("render", spec), ("submit", spec), ("top", job_id, "--once"), ("follow", job_id),
                          ("explain",), ("completion", "bash"), ("manual",), ("open", "--print"), ("--help",), ("--version",),
                          ("run", "--dry-run", "-o", "-", "true"), ("run", "-w", "true"), ("export", job_id, "--csv", "-")):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                done = self.lockstep(*arguments, stdout=full)
                self.assertEqual(done.returncode, 8, done.stderr)
                self.assertIn(b"No space left on device", done.stderr)
                self.assertEqual(done.stderr.count(b"error: "), 1, done.stderr)

    def test_output_that_is_closed_is_said_and_goes_nowhere_else(self):
        # A connection would get the number of standard output, and lockstepd what is printed.
        done = subprocess.run(["/bin/sh", "-c", 'exec "$0" jobs --json >&-', BIN / "lockstep"], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=60 * harness.PATIENCE, check=False,
                              env=self.daemon.cli_environment())
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn(b"error: write standard output: Bad file descriptor", done.stderr)

    def test_a_view_that_goes_on_ends_when_nobody_gets_it(self):
        job_id = self.daemon.submit(harness.command_job("goes-on", "/bin/sh", "-c", "while :; do echo on; sleep 0.1; done"))["id"]
        self.daemon.wait_state(job_id, "running")
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.lockstep("logs", job_id, "-f", stdout=full).returncode, 8)
        self.assertEqual(self.daemon.job(job_id)["state"], "running")

    def test_a_reader_that_has_seen_enough_ends_it_without_a_word(self):
        self.finished_job()
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = self.lockstep("jobs", "--json", stdout=writing)
        finally:
            os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, b""))

    def test_a_specification_is_kept_under_a_bare_name(self):
        done = self.lockstep("run", "-o", "job.json", "--dry-run", "--name", "kept", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"kept"', (self.root / "job.json").read_text())
        done = self.lockstep("run", "-o", "/dev/full", "--dry-run", "--", "true")
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn(b"error: -o: write /dev/full: No space left on device", done.stderr)
        done = self.lockstep("run", "-o", "no/such/job.json", "--dry-run", "--", "true")
        self.assertEqual(done.returncode, 8, done.stderr)

    def test_an_empty_token_file_is_no_reason_to_send_another_token(self):
        (self.root / "empty").write_text("\n")
        own = {**self.daemon.cli_environment(), "LOCKSTEP_DATA_DIR": str(self.daemon.data)}
        del own["LOCKSTEP_TOKEN"]
        self.assertEqual(self.lockstep("jobs", environment=own).returncode, 0)
        done = self.lockstep("jobs", "--token-file", "empty", environment=own)
        self.assertEqual((done.returncode, done.stderr), (2, b"error: token file empty is empty\n"))
        done = self.lockstep("jobs", "--token-file", "", environment=own)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"error: --token-file: must not be empty", done.stderr)

    def test_a_token_file_that_is_none_is_a_wrong_argument(self):
        done = self.lockstep("jobs", "--token-file", "/etc")
        self.assertEqual((done.returncode, done.stderr), (2, b"error: token file /etc is a folder\n"))
        done = self.lockstep("jobs", "--token-file", "none")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"error: token file none: open none: No such file or directory", done.stderr)

    def test_a_command_that_is_no_list_is_one_mistake(self):
        (self.root / "job.yaml").write_text("name: x\nframework: command\ncommand: text\n")
        done = self.lockstep("submit", "job.yaml")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"error: job.yaml:3:10: /command: must be an array of strings", done.stderr)
        self.assertNotIn(b"2 mistakes", done.stderr)

    def test_a_refused_token_is_said_to_come_from_where_it_does(self):
        done = self.lockstep("jobs", environment={**self.daemon.cli_environment(), "LOCKSTEP_TOKEN": "wrong"})
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(b"The token is from LOCKSTEP_TOKEN;", done.stderr)
        (self.root / "mine").write_text("wrong\n")
        done = self.lockstep("jobs", "--token-file", "mine")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(b"The token is from --token-file, mine;", done.stderr)

    def test_wrong_arguments_are_refused_by_name(self):
        for arguments, words in ((("jobs", "--state", "runing"), "did you mean running?"),
                                 (("jobs", "--stat", "x"), "unknown option --stat of lockstep jobs; did you mean --state?"),
                                 (("jbos",), "unknown command jbos; did you mean jobs?"),
                                 (("top", "last", "--interval", "nan"), "--interval: must be a number from 0.2 to 3600"),
                                 (("show", b"a\xff"), "argument 2 is not UTF-8"),
                                 (("run", "--", "echo", b"\xff"), "argument 4 is not UTF-8"),
                                 (("cancel", ""), "ID: must not be empty"),
                                 (("jobs", "--label", "team"), "error: --label team: must be NAME=VALUE"),
                                 (("nodes", "--gpu-test"), "--gpu-test: is for lockstep nodes check"),
                                 (("token", "list", "--role", "admin"), "--role: is for lockstep token create"),
                                 (("token", "create", "x", "--expires", "9999d"), "--expires 9999d: at most 3650d"),
                                 (("token", "create", "x", "--user", "a b"), "error: --user a b: must match "),
                                 (("token", "create", "a b"), "error: NAME a b: must match "),
                                 (("restart", "last", "--idempotency-key", "a b"), "--idempotency-key: must be 1..255 visible ASCII"),
                                 (("submit", "x.json", "--idempotency-key", "a" * 256), "--idempotency-key: must be 1..255"),
                                 (("secret", "set", "A", "--from-file", "/etc"), "--from-file: /etc is a folder"),
                                 (("secret", "set", "A", "--from-file", "none"), "--from-file: open none: No such file")):
            with self.subTest(arguments):
                done = self.lockstep(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr.decode())
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])

    def test_a_job_is_found_by_the_label_it_was_run_with(self):
        done = self.lockstep("run", "--label", "team=vision", "--label", "note=a b=c:d", "--detach", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        job_id = done.stdout.decode().strip()
        self.assertEqual(self.daemon.job(job_id)["labels"], {"team": "vision", "note": "a b=c:d"})
        for label in ("team=vision", "team:vision", "note=a b=c:d"):
            self.assertEqual(self.lockstep("jobs", "-q", "--label", label).stdout.decode().split(), [job_id], label)
        self.assertEqual(self.lockstep("jobs", "-q", "--label", "team=audio").stdout, b"")
        self.daemon.wait_state(job_id, harness.FINAL)
        done = self.lockstep("series", job_id, "loss", "--rank", "7")
        self.assertEqual((done.returncode, done.stderr), (2, b"error: --rank 7: the job has ranks 0-0\n"))

    def test_a_partition_that_is_none_is_not_found(self):
        harness.wait_until(lambda: self.daemon.get("/v1/nodes")["items"], 30, "its nodes are known")
        for more in ((), ("--json",)):
            done = self.lockstep("nodes", "--partition", "nope", *more)
            self.assertEqual((done.returncode, done.stdout), (3, b""), done.stderr)
            self.assertIn(b"error: there is no partition nope: scheduler local has none", done.stderr)

    def test_a_folder_to_start_in_that_is_none_is_refused_before_the_job(self):
        (self.root / "file").touch()
        for folder, why in (("nope", "there is no such folder"), ("/nope", "there is no such folder"), ("file", "it is no folder")):
            done = self.lockstep("run", "--chdir", folder, "--", "true")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"error: --chdir {folder}: {why}", done.stderr.decode())
            self.assertIn(b"create it, or leave --chdir out", done.stderr)
        done = self.lockstep("run", "--chdir", "nope", "--", "./train.sh")
        self.assertIn(b"command not found: ./train.sh; --chdir nope is no folder here", done.stderr)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])
        done = self.lockstep("run", "--chdir", "nope", "--dry-run", "--", "true")  # asks nobody
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"warning: --chdir nope: there is no such folder on this machine", done.stderr)

    def test_a_partition_of_the_local_scheduler_is_said_to_be_none(self):
        done = self.lockstep("run", "-p", "gpu", "--wait", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"warning: partition gpu has no effect: the local scheduler has no partitions", done.stderr)
        self.assertNotIn(b"slurm has no effect", done.stderr)

    def test_a_dry_run_refuses_what_the_real_one_does(self):
        for words, said in ((("-t", "5x"), b"error: --time 5x: not a time limit"), (("--sweep", "resources.nodes=0"), b"--sweep resources.nodes: "),
                            (("--label", "a b=c"), b"--label a b=c: ")):
            with self.subTest(words):
                done = self.lockstep("run", *words, "--dry-run", "--", "true")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr)
        self.assertEqual(self.lockstep("run", "-t", "5", "--sweep", "lr=1,2", "--dry-run", "--", "echo", "{lr}").returncode, 0)

    def test_a_file_that_cannot_be_written_is_named_as_it_was_asked_for(self):
        done = self.lockstep("run", "-o", "/nope/x", "--dry-run", "--", "true")
        self.assertEqual((done.returncode, done.stderr), (8, b"error: -o: create /nope/x: No such file or directory\n"))

    def test_what_is_refused_is_named_by_its_option(self):
        for words, name in ((("-t", "5x"), "--time 5x: "), (("--notify", "pigeon"), "--notify pigeon: "),
                            (("--secret", "A B"), "--secret A B: "), (("--label", "a b=c"), "--label a b=c: "),
                            (("--env", "LOCKSTEP_X=1"), "--env LOCKSTEP_X: "), (("--min-nodes", "2"), "--min-nodes 2: "),
                            (("-N", "16384", "-n", "1024"), "--nodes, --ranks-per-node: 16777216 ranks"),
                            (("--sweep", "resources.nodes=0"), "--sweep resources.nodes: "),
                            (("-p", "a b"), "--partition a b: "), (("-A", "a b"), "--account a b: "), (("-q", "a b"), "--qos a b: ")):
            done = self.lockstep("run", *words, "--", "true")
            with self.subTest(words, said=done.stderr):
                self.assertEqual(done.returncode, 2)
                self.assertIn(name, done.stderr.decode())
                self.assertNotRegex(done.stderr.decode(), r"(?m)[ :](/resources|/slurm|/notify|/secrets|/labels|/environment)\b")
        (self.root / "job.yaml").write_text("name: x\nframework: command\ncommand: [x]\nresources: {time_limit: 5x}\n")
        self.assertIn(b"/resources/time_limit: ", self.lockstep("submit", "job.yaml").stderr)
        done = self.lockstep("nodes", "check", "--gpus", "64", "--nodes", "16384", "--nodelist", "a b")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"--nodelist a b: ", done.stderr)

    def in_a_directory_that_is_gone(self, *command):
        gone = self.root / "gone"
        gone.mkdir()
        return subprocess.run(["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *map(str, command)], cwd=gone,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * harness.PATIENCE, check=False,
                              env={**self.daemon.cli_environment(), "PWD": str(gone)})

    def test_a_directory_that_is_gone_is_none_to_start_in(self):
        # The job ran in its attempt's folder and did not find its script; lockstepd aborted.
        done = self.in_a_directory_that_is_gone(BIN / "lockstep", "run", "--", "/bin/true")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"the directory that you are in is not there any more", done.stderr)
        done = self.in_a_directory_that_is_gone(BIN / "lockstep", "run", "--chdir", self.root, "--wait", "--", "/bin/true")
        self.assertEqual(done.returncode, 0, done.stderr)
        for options in (("--data-dir", "rel"), ("--data-dir", self.root / "other", "--runs-dir", "rel")):
            with self.subTest(options):
                done = self.in_a_directory_that_is_gone(BIN / "lockstepd", "--listen", "127.0.0.1:0", *options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(b"rel is relative, and the directory", done.stderr)

    def test_a_script_whose_interpreter_is_missing_says_so(self):
        # "No such file or directory" of a file that is there.
        for name, head, words in (("crlf", "#!/bin/sh\r\necho hi\r\n", "names /bin/sh, and ends in a carriage return"),
                                  ("nowhere", "#! /no/such/interp -x\n", "names /no/such/interp, which is not there")):
            with self.subTest(name):
                script = self.root / name
                script.write_bytes(head.encode())
                script.chmod(0o755)
                done = self.lockstep("run", "--wait", "--", script)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stdout.decode() + done.stderr.decode())

    def test_the_advice_for_a_script_that_is_no_program_can_be_followed(self):
        (self.root / "noexec.sh").write_text("#!/bin/sh\n")
        for name in ("noexec.sh", "./noexec.sh"):
            done = self.lockstep("run", "--", name)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(b"lockstep run -- ./noexec.sh", done.stderr)

    def test_a_word_of_the_command_that_is_nothing_is_refused_as_in_json(self):
        spec = self.root / "null.yaml"
        spec.write_text("name: x\nframework: command\ncommand: [echo, null]\nenvironment: {A: }\n")
        done = self.lockstep("submit", spec)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"must be a string", done.stderr)

    def test_a_cause_is_explained(self):
        done = self.lockstep("explain", "rank_exit")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"lockstep logs ID --failed", done.stdout)
        for words in ((), ("resources.nodes",), ("rank_exit",)):
            self.assertIsInstance(json.loads(self.lockstep("explain", *words, "--json").stdout), dict, words)

    def test_a_progress_bar_moves_on_a_terminal_and_is_one_line_in_a_pipe(self):
        gate = self.root / "go"
        job_id = self.daemon.submit(harness.command_job(
            "bar", "/bin/sh", "-c", rf"printf '\r 10%%'; while [ ! -e {gate} ]; do sleep 0.05; done; printf '\r100%%\n'"))["id"]
        environment = {**self.daemon.cli_environment(), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        terminal = test_top.Terminal([BIN / "lockstep", "logs", job_id, "-f"], environment, screen=Written)
        self.addCleanup(terminal.close)
        terminal.shows(" 10%", seconds=30)
        gate.touch()
        terminal.shows("100%", seconds=30)
        self.assertEqual(terminal.ended(30), 0)
        self.daemon.wait_state(job_id, harness.FINAL)
        self.assertEqual(self.lockstep("logs", job_id).stdout, b"100%\n")


if __name__ == "__main__":
    harness.main()
