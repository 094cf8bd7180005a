"""What the documents promise, tried: every verb and flag they name, every example of README, every fragment of a
specification, every example of deploy/examples, the drop-in for systemd, what `cmake --install` lays out."""

# size: all checks of the documents share their parser

import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
import unittest.mock

import harness

sys.path.insert(0, str(harness.SOURCE / "tests" / "lint"))
import documents
import tree

DOCUMENTS = [harness.SOURCE / name for name in documents.documents(tree.files(harness.SOURCE))
             if name != pathlib.Path("deploy/NEWS.md")]  # what was new once may be gone
EXAMPLES = sorted((harness.SOURCE / "deploy" / "examples").glob("*.json*"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
USE = re.compile(r"(?:^|[\s$(;&|])(lockstep(?:d|-agent|-train)?)((?: [^\n;&|#)]*)?)")
PROGRAMS = ("lockstep", "lockstepd", "lockstep-agent", "lockstep-train")
TRAINER = (harness.BIN / "lockstep-train").exists()


def told_by(program, *verb):
    done = subprocess.run([harness.BIN / program, *verb, "--help"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr if done.returncode == 0 else None


def exposure_of(unit_text):
    """What systemd says of a unit, 0 (closed) to 10."""
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / "lockstepd.service"
        unit.write_text(unit_text)
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", unit],
                              capture_output=True, text=True, timeout=60, check=False)
    return float(re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout + done.stderr)[1])


class Flags(unittest.TestCase):
    """Every use of a program in a fenced block or in backticks is one that the program knows."""

    def setUp(self):
        self.known = {}

    def help_of(self, program, *verb):
        key = (program, *verb)
        if key not in self.known:
            self.known[key] = told_by(*key)
        return self.known[key]

    def wrong_in(self, program, rest):
        if not (harness.BIN / program).exists():
            return None  # lockstep-train, not built here
        words = rest.replace("\\", " ").split()
        text = self.help_of(program)
        verbs = []
        for word in words:  # the verb, and the verb's own: token create, nodes check
            # What follows `run` is the user's program: asked for its help it would be run.
            if not re.fullmatch(r"[a-z][a-z-]+", word) or len(verbs) == 2 or verbs == ["run"]:
                break
            inner = self.help_of(program, *verbs, word)
            if inner is None or inner == self.help_of(program, *verbs):  # CLI11 answers --help of no verb, too
                break
            verbs.append(word)
            text += inner
        if words and not verbs and program in ("lockstep", "lockstep-agent") and re.fullmatch(r"[a-z][a-z-]+", words[0]):
            return f"{program} has no {words[0]}"
        # `lockstep token create|list|revoke`: the first one stands for all.
        if "--" in words:
            words = words[:words.index("--")]
        for flag in FLAG.findall(" ".join(words)):
            if not re.search(rf"(?<![\w-]){flag}(?![\w-])", text):
                return f"{' '.join([program, *verbs])} has no {flag}"
        return None

    def test_every_verb_and_flag_is_there(self):
        wrong, seen = [], 0
        for path in DOCUMENTS:
            text = path.read_text().replace("\\\n", " ")
            pieces = [block for kind, block in FENCED.findall(text) if kind in ("sh", "console", "text", "ini", "")]
            pieces += CODE.findall(FENCED.sub("", text))
            for piece in pieces:
                for line in piece.split("\n"):
                    line = re.sub(r"\s#.*", "", line)
                    for program, rest in USE.findall(line):
                        seen += 1
                        if problem := self.wrong_in(program, rest):
                            wrong.append(f"{path.relative_to(harness.SOURCE)}: {line.strip()}: {problem}")
        self.assertGreater(seen, 50)
        self.assertEqual(wrong, [], "\n".join(wrong))


class Told(unittest.TestCase):
    """What the programs say of themselves: --help in a pipe, and their man pages."""

    PAGES = {"lockstep": ("manual",), "lockstepd": ("--print-manual",), "lockstep-agent": ("manual",),
             "lockstep-train": ("--print-manual",)}

    def programs(self):
        return [name for name in PROGRAMS if (harness.BIN / name).exists()]

    def page(self, program):
        return subprocess.run([harness.BIN / program, *self.PAGES[program]], capture_output=True, text=True, timeout=30,
                              check=True).stdout

    def test_help_in_a_pipe_has_80_columns_and_every_option(self):
        for program in ("lockstep", "lockstepd", "lockstep-agent"):
            text = told_by(program)
            wide = [line for line in text.splitlines() if len(line) > 80]
            self.assertEqual(wide, [], f"{program} --help")
            self.assertNotIn("(Env:", text)
            self.assertNotIn("TEXT:", text)
            # The page is made of the declarations: what it has of the program itself is in the help as well.
            options = self.page(program).split(".SH OPTIONS\n")[1].split(".SH ")[0].replace("\\-", "-")
            names = re.findall(r"\\fB(--[a-z-]+)\\fR", options)
            self.assertGreater(len(names), 1)
            for name in names:
                self.assertRegex(text, rf"(?<![\w-]){name}(?![\w-])", f"{program} --help")

    def test_help_fits_a_narrow_terminal(self):
        for columns in (60, 72):
            for program, *verb in (("lockstep",), ("lockstep", "run"), ("lockstep", "export"), ("lockstepd",), ("lockstep-agent",)):
                ours, theirs = pty.openpty()
                fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                told = subprocess.Popen([harness.BIN / program, *verb, "--help"], stdout=theirs)
                os.close(theirs)
                text = b""
                with contextlib.suppress(OSError):  # EIO: it has ended
                    while piece := os.read(ours, 65536):
                        text += piece
                os.close(ours)
                self.assertEqual(told.wait(30), 0, program)
                lines = text.decode().replace("\r", "").split("\n")
                self.assertGreater(len(lines), 10, program)
                self.assertEqual([line for line in lines if len(line) > columns], [], f"{program} {verb}, {columns} columns")

    def test_every_program_has_a_man_page_that_mandoc_takes(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is not installed")
        for program in self.programs():
            done = subprocess.run(["mandoc", "-Tlint", "-Wwarning"], input=self.page(program), capture_output=True, text=True,
                                  timeout=30, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), program)


class Submitted(harness.TestCase):
    """A lockstepd that says it has the cores and GPUs of a small cluster, and a folder to submit from: Debian's python3
    is `python` there, and has torch."""

    # Mail of the examples goes nowhere.
    DAEMON_ARGUMENTS = ("--local-cores", "64", "--local-gpus", "32", "--sendmail", "/bin/true")

    def setUp(self):
        programs = tempfile.mkdtemp(prefix="lockstep-test-")
        self.addCleanup(shutil.rmtree, programs, ignore_errors=True)
        os.symlink(harness.PYTHON, pathlib.Path(programs) / "python")
        os.symlink(harness.PYTHON, pathlib.Path(programs) / "python3")
        path = unittest.mock.patch.dict(os.environ, PATH=f"{harness.BIN}:{programs}:/usr/bin:/bin")
        path.start()
        self.addCleanup(path.stop)
        super().setUp()
        self.work = self.root / "run"
        self.work.mkdir()
        (self.work / "deploy").symlink_to(harness.SOURCE / "deploy")

    def run_here(self, line, check=True, seconds=60):
        """One line of a shell in that folder; its answer."""
        environment = {**self.daemon.environment(), "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token}
        done = subprocess.run(["/bin/sh", "-c", line], cwd=self.work, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=seconds * harness.PATIENCE, check=False)
        if check:
            self.assertEqual(done.returncode, 0, f"{line}: {done.stdout}{done.stderr}")
        return done

    def script(self, torch):
        """train.py: the example's with few samples, or one that only says its step."""
        text = 'print("step=1 loss=0.5", flush=True)\n'
        if torch:
            text = (harness.SOURCE / "deploy/examples/train_ddp.py").read_text()
            self.assertIn("default=8192", text)
            text = text.replace("default=8192", "default=512")
        (self.work / "train.py").write_text(text)

    def first_loss(self, job):
        """Minutes of training are not what is tried: that it trains is."""
        harness.wait_until(lambda: self.daemon.series(job) or None, 60, f"{job} has a loss")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, ("cancelled", "succeeded"), 60)

    def trained(self, job):
        self.daemon.wait_state(job, "succeeded", 120)
        self.assertTrue(self.daemon.series(job), f"{job} has no loss")


class Readme(Submitted):
    """README's lines and specifications, each as it stands there."""

    TEXT = (harness.SOURCE / "README.md").read_text()
    TORCH = harness.has_module("torch")

    def lines(self):
        block = re.search(r"^## Use it\n+```sh\n(.*?)^```", self.TEXT, re.DOTALL | re.MULTILINE).group(1)
        return [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]

    def test_every_line_of_use_it_does_what_it_says(self):
        seen = set()
        for line in self.lines():
            with self.subTest(line=line):
                what = " ".join(line.split()[:2])
                seen.add(what)
                if what.startswith("export PATH"):
                    self.assertEqual(line, "export PATH=$PWD/build/bin:$PATH")
                elif what == "lockstep run":
                    self.run_line(line)
                elif what == "lockstep submit":
                    self.submit_line(line)
                else:
                    self.assertIn(what, ("lockstep top", "lockstep series", "lockstep open", "lockstep export"))
                    done = self.run_here(f"BROWSER=true; export BROWSER; {line}")
                    self.assertTrue(done.stdout.strip() or done.stderr.strip(), "it says nothing")
        self.assertGreaterEqual(len(seen), 7)
        self.assertTrue(list((self.work / "runs").rglob("events.out.tfevents.*")))

    def run_line(self, line):
        """Detached, as nobody is at the terminal. 32 ranks import nothing."""
        gpus = " -G " in line
        self.script(torch=self.TORCH and not gpus)
        if gpus:
            print(f"{line}: on this machine's scheduler, with GPUs that are only counted; on Slurm: slurm.readme")
        elif not self.TORCH:
            print(f"{line}: {harness.PYTHON} has no torch; the script only says its step")
        done = self.run_here(line)
        self.trained(done.stdout.split()[0])
        if gpus:
            self.assertRegex(done.stderr, "(partition [^ ]+|slurm) has no effect")
            self.assertEqual(len(self.daemon.series(done.stdout.split()[0])), 32)

    def submit_line(self, line):
        """--follow stays until the job has ended, and says by its code that it was cancelled."""
        if not TRAINER:
            print(f"{line}: SKIPPED: lockstep-train is not built here")
            return
        before = len(self.daemon.get("/v1/jobs")["items"])
        with concurrent.futures.ThreadPoolExecutor() as threads:
            following = threads.submit(self.run_here, line, check=False, seconds=240)
            try:
                jobs = harness.wait_until(lambda: self.daemon.get("/v1/jobs")["items"][:-before or None] or None, 60,
                                          "the job is there")
                self.first_loss(jobs[0]["id"])
            finally:
                for one in self.daemon.get("/v1/jobs")["items"]:
                    self.daemon.api("POST", f"/v1/jobs/{one['id']}/cancel")
            done = following.result()
        ended = self.daemon.job(jobs[0]["id"])["state"]  # a fast machine may be through before it is cancelled
        self.assertEqual(done.returncode, {"cancelled": 7, "succeeded": 0}[ended], done.stdout + done.stderr)
        self.assertIn(jobs[0]["id"], done.stdout + done.stderr)

    def test_every_specification_runs(self):
        blocks = [block for kind, block in FENCED.findall(self.TEXT) if kind in ("json", "jsonc")]
        blocks += [piece for piece in CODE.findall(FENCED.sub("", self.TEXT)) if piece.startswith("{")]
        self.assertGreaterEqual(len(blocks), 2)
        for number, block in enumerate(blocks):
            with self.subTest(block=block):
                spec = json.loads(block)
                if spec["framework"] == "native" and not TRAINER:
                    self.skipTest("lockstep-train is not built here")
                if spec["framework"] == "pytorch" and not self.TORCH:
                    self.skipTest(f"{harness.PYTHON} has no torch")
                self.script(torch=True)
                (self.work / f"{number}.json").write_text(block.replace("/home/me/run", str(self.work)))
                job = self.run_here(f"lockstep submit {number}.json --json").stdout
                job = json.loads(job)["id"]
                (self.first_loss if spec["framework"] == "native" else self.trained)(job)

    def test_reports_of_any_process(self):
        reports = [piece for piece in CODE.findall(FENCED.sub("", self.TEXT)) if "report" in piece and "step=" in piece]
        self.assertEqual(len(reports), 2)
        for report in reports:
            with self.subTest(report=report):
                command = ["python3", "-c", report] if report.startswith("import") else ["sh", "-c", report]
                job = self.daemon.submit(harness.command_job("reports", *command))["id"]
                self.daemon.wait_state(job, "succeeded", 60)
                self.assertEqual(self.daemon.series(job)[0][0][0], 3)


class Fragments(Submitted):
    """The pages' pieces of a specification, each added to a small job, submitted, and run to its end."""

    # What cannot hold here, and why; everything else must be accepted.
    EXPECTED = {"/submission": "manual needs Slurm",
                **({} if shutil.which("apptainer") else {"/container/runtime": "apptainer is not installed here"})}
    # By a key of the fragment; what it says itself comes before.
    BASES = {"roles": {"framework": "command", "command": ["/bin/true"], "resources": {"nodes": 2, "ranks_per_node": 2}},
             "train": {"framework": "native"}}

    def pieces(self):
        for path in DOCUMENTS:
            for kind, block in FENCED.findall(path.read_text()):
                if kind in ("json", "jsonc") and path != harness.SOURCE / "README.md":  # those: Readme
                    yield path.relative_to(harness.SOURCE), block

    def document(self, block, done):
        """The fragment as a whole document, its text otherwise as it stands in the page."""
        block = re.sub(r'"ls-[0-9A-Z]*…[^"]*"', json.dumps(done), block)
        if block.lstrip().startswith("{"):
            return block
        base = {"name": "fragment", **next(
            (base for key, base in self.BASES.items() if f'"{key}"' in block),
            {"framework": "command", "command": ["/bin/true", "1", "2", "3"]})}
        base = {key: value for key, value in base.items() if not re.search(rf'^"{key}":', block, re.MULTILINE)}
        return "{" + json.dumps(base)[1:-1] + ",\n" + block + "}"

    def test_every_fragment_runs(self):
        done = self.daemon.submit(harness.command_job("before", "/bin/true"))["id"]
        self.daemon.wait_state(done, "succeeded")
        self.script(torch=False)
        (self.work / "train.py").write_text("")
        seen, ran = 0, 0
        for page, block in self.pieces():
            with self.subTest(page=str(page), block=block):
                seen += 1
                file = self.work / f"fragment-{seen}.jsonc"
                file.write_text(self.document(block, done))
                answer = self.run_here(f"lockstep submit {file.name} --json", check=False)
                if answer.returncode != 0:
                    without = re.sub(r'^"submission":.*$', "", file.read_text(), flags=re.MULTILINE)
                    told = answer.stdout + answer.stderr
                    rest = [line for line in told.splitlines()
                            if "error" in line and not any(pointer in line for pointer in self.EXPECTED)]
                    refused = [f"{pointer}: {why}" for pointer, why in self.EXPECTED.items() if pointer in told]
                    self.assertTrue(refused and not rest, told)
                    print(f"{page}: submitted and refused, as it must be here: {', '.join(refused)}")
                    if without == file.read_text():
                        continue
                    file.write_text(without)  # the other lines are for this machine's scheduler, too
                    answer = self.run_here(f"lockstep submit {file.name} --json")
                self.daemon.wait_state(json.loads(answer.stdout)["id"], "succeeded", 60)
                ran += 1
        self.assertGreaterEqual(seen, 5)
        self.assertGreaterEqual(ran, 3)


class Examples(harness.TestCase):
    """deploy/examples, submitted as README says, from the repository's folder."""

    def setUp(self):
        # Debian's python3 has torch; the ranks find what lockstepd's PATH finds.
        path = unittest.mock.patch.dict(os.environ, PATH="/usr/bin:/bin")
        path.start()
        self.addCleanup(path.stop)
        super().setUp()

    def submit(self, path):
        done = subprocess.run([harness.BIN / "lockstep", "--url", self.daemon.url, "submit", path.relative_to(harness.SOURCE), "--json"],
                              cwd=harness.SOURCE, capture_output=True, text=True, timeout=60, check=False,
                              env={**self.daemon.environment(), "LOCKSTEP_TOKEN": self.daemon.token})
        self.assertEqual(done.returncode, 0, f"{path.name}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def test_every_example_runs(self):
        for path in EXAMPLES:
            with self.subTest(example=path.name):
                spec = json.loads(path.read_text())
                if spec["framework"] == "native" and not TRAINER:
                    self.skipTest(f"{path.name}: lockstep-train is not built here")
                if spec["framework"] == "pytorch" and not harness.has_module("torch"):
                    self.skipTest(f"{path.name}: {harness.PYTHON} has no torch")
                job = self.submit(path)
                if spec["framework"] == "native":
                    # Minutes of training are not what is tried here: that it trains is.
                    harness.wait_until(lambda: self.daemon.series(job["id"]) or None, 60, f"{path.name} has a loss")
                    kind = "sweeps" if "sweep" in spec else "jobs"
                    self.daemon.api("POST", f"/v1/{kind}/{job['id']}/cancel")
                    ended = self.daemon.wait_state(job["id"], harness.FINAL, 60)
                    # The sweep's jobs are short: the first may be done by then.
                    self.assertIn(ended["state"], ("cancelled", "succeeded") if "sweep" in spec else ("cancelled",))
                else:
                    self.daemon.wait_state(job["id"], "succeeded", 90)
                    self.assertTrue(self.daemon.series(job["id"]), f"{path.name} has no loss")


class Installed(unittest.TestCase):
    def test_installed_documents_link_to_what_is_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "--install", harness.BIN.parent, "--component", "doc", "--prefix", folder],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            root = next(pathlib.Path(folder).rglob("README.md")).parent
            for name in ("deploy/prometheus/lockstep.alerts.yml", "deploy/grafana/dashboards", "deploy/slurm/README.md",
                         "deploy/examples/train_ddp.py"):
                self.assertTrue((root / name).exists(), name)
            linted = subprocess.run([sys.executable, "-B", harness.SOURCE / "tests/lint/documents.py", "--links-only",
                                     "--root", root], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(linted.returncode, 0, linted.stdout + linted.stderr)

    def test_the_hooks_are_installed_with_bytecode(self):
        """Whoever may not write it there would compile them at every start: 6 ms."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={folder}", "-P",
                                   harness.BIN.parent / "job/rank/cmake_install.cmake"], capture_output=True, text=True,
                                  timeout=60 * harness.PATIENCE, check=False,
                                  env={k: v for k, v in os.environ.items() if k != "DESTDIR"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            hooks = pathlib.Path(folder) / "share/lockstep/python/hooks"
            run = subprocess.run(["/usr/bin/python3", "-v", "-c", "pass"], capture_output=True, text=True,
                                 timeout=60 * harness.PATIENCE, check=False,
                                 env={"PYTHONPATH": str(hooks), "PYTHONDONTWRITEBYTECODE": "1", "LOCKSTEP_SOCKET": f"{folder}/s"})
            self.assertEqual(run.returncode, 0, run.stderr)
            for name in ("sitecustomize", "_lockstep_hooks", "_lockstep_ranks"):
                self.assertRegex(run.stderr, rf"code object from '{re.escape(str(hooks))}/__pycache__/{name}\.\S*\.pyc'")

    def test_lockstep_execs_sample_does_not_take_the_folder_that_is_lockstepds(self):
        """It named the runs-dir of the operator's page: `install -d` opened it to all, then --check refused it."""
        sample = (harness.SOURCE / "deploy/slurm/exec.conf").read_text()
        runs = re.search(r"^runs = (\S+)$", sample, re.MULTILINE)[1]
        self.assertIn(f"install -d -m 0755 {runs};", (harness.SOURCE / "scheduler-integration/exec/README.md").read_text())
        for page in ("deploy/operator.md", "deploy/slurm/README.md", "deploy/packages/lockstepd.toml"):
            own = re.findall(r"runs-dir[ =\"]+([^\s\"]+)", (harness.SOURCE / page).read_text())
            self.assertTrue(own, page)
            self.assertNotIn(runs, own, page)

    def test_the_socket_of_lockstep_exec_stays_open_under_any_burst_of_lockstepds(self):
        """systemd closed it after 200 connections in 2 s, and each beyond MaxConnections without an answer."""
        unit = (harness.SOURCE / "deploy/systemd/lockstep-exec.socket").read_text()
        said = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
        self.assertEqual(said.get("TriggerLimitIntervalSec"), "0")
        limits = (harness.SOURCE / "scheduler-integration/exec/exec_limits.hpp").read_text()
        at_once = int(re.search(r"kExecCallsAtOnce = (\d+);", limits)[1])
        self.assertEqual(int(said["MaxConnections"]), 2 * at_once)

    def test_no_unit_takes_tmp_away_from_jobs_that_outlive_a_restart(self):
        """systemd removes a private /tmp when the service stops, whatever process of it goes on."""
        for name in ("lockstepd.service", "lockstepd-user.service"):
            unit = (harness.SOURCE / "deploy/systemd" / name).read_text()
            self.assertRegex(unit, r"(?m)^KillMode=process$", name)
            self.assertNotRegex(unit, r"(?m)^(PrivateTmp|DynamicUser|RuntimeDirectory)=", name)

    def test_only_where_no_rank_is_in_its_cgroup_has_lockstepd_a_memory_limit(self):
        """One that grew took the service node's memory with it; a limit that counts ranks would end them."""
        page = (harness.SOURCE / "deploy/slurm/README.md").read_text()
        drop_in = next(block for kind, block in FENCED.findall(page) if kind == "ini")
        self.assertRegex(drop_in, r"(?m)^MemoryMax=[1-9]\d*G$")
        for name in ("lockstepd.service", "lockstepd-user.service"):
            self.assertNotRegex((harness.SOURCE / "deploy/systemd" / name).read_text(), r"(?m)^Memory(Max|High)=", name)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_the_user_unit_is_not_opened_further_than_its_page_says(self):
        exposure = exposure_of((harness.SOURCE / "deploy/systemd/lockstepd-user.service").read_text())
        self.assertLessEqual(exposure, 8.0)
        self.assertIn(f"gives the user unit {exposure} of 10", (harness.SOURCE / "deploy/README.md").read_text())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_takes_the_unit_with_the_drop_in_of_the_slurm_page(self):
        page = (harness.SOURCE / "deploy/slurm/README.md").read_text()
        drop_in = next(block for kind, block in FENCED.findall(page) if kind == "ini")
        self.assertIn("ExecStart=\n", drop_in)

        def verify(text):
            with tempfile.TemporaryDirectory() as folder:
                units = pathlib.Path(folder)
                unit = (harness.SOURCE / "deploy/systemd/lockstepd.service").read_text()
                here = str(harness.BIN / "lockstepd")
                (units / "lockstepd.service").write_text(unit.replace("/usr/local/bin/lockstepd", here))
                (units / "lockstepd.service.d").mkdir()
                (units / "lockstepd.service.d" / "slurm.conf").write_text(text.replace("/usr/local/bin/lockstepd", here))
                done = subprocess.run(["systemd-analyze", "verify", "--man=no", units / "lockstepd.service"],
                                      capture_output=True, text=True, timeout=60, check=False)
                return done.stdout + done.stderr

        def exposure(text):
            # Offline it reads one file: a later line of a setting counts, as it does in a drop-in.
            unit = (harness.SOURCE / "deploy/systemd/lockstepd.service").read_text()
            return exposure_of(unit.partition("[Install]")[0] + text)

        self.assertNotIn("ExecStart", verify(drop_in))
        self.assertLessEqual(exposure(drop_in), 1.5)
        self.assertIn(f"lockstepd: {exposure(drop_in)})", drop_in)
        self.assertLess(exposure(drop_in), exposure(""), "the unit leaves open what ranks need")
        self.assertIn("more than one ExecStart=", verify(drop_in.replace("ExecStart=\n", "")))


if __name__ == "__main__":
    harness.main()
