"""A process of a rank's command that waits before the script (job/rank/python/hooks/_lockstep_standby.py): the test plays
the agent."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import unittest
import zipfile
from unittest import mock

from python_hooks_test import HOOKS, PYTHON, Hooked


class Standby(Hooked):
    SCRIPT = """import json, os, signal, sys
print(json.dumps({"argv": sys.argv, "path": sys.path, "file": __file__, "main": __name__, "spec": getattr(__spec__, "name", ""),
                  "names": sorted(name for name in globals() if name.startswith("__")),
                  "environment": dict(os.environ), "descriptors": len(os.listdir("/proc/self/fd")),
                  "priority": os.getpriority(os.PRIO_PROCESS, 0), "there": "ahead" in sys.modules,
                  "signals": [line for line in open("/proc/self/status") if line.startswith("Sig") and "SigQ" not in line],
                  "handlers": [str(signal.getsignal(number)).split(" at 0x")[0] for number in sorted(signal.valid_signals())],
                  "from": __import__("ahead").__file__}), flush=True)
raise ValueError("told once")
"""

    def setUp(self):
        super().setUp()
        self.script = self.root / "train.py"
        self.script.write_text(self.SCRIPT)
        (self.root / "ahead.py").write_text("import sys\n")

    def stand_by(self, *arguments, modules="ahead", before=(), program=(PYTHON,), **environment):
        """(process, the agent's end of descriptor 3, descriptor 4). `before`: a command that becomes that of its arguments."""
        own, its = socket.socketpair()
        self.addCleanup(own.close)
        own.settimeout(60)
        orders = os.memfd_create("orders")
        self.addCleanup(os.close, orders)

        def hand_over():
            os.dup2(its.fileno(), 100)
            os.dup2(orders, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)
            os.closerange(5, 256)
            os.environ.clear()
            os.environ.update(variables, LOCKSTEP_STANDBY=modules, LOCKSTEP_STANDBY_PID=str(os.getpid()))

        variables = self.environment(**environment)
        process = subprocess.Popen([*before, *program, *arguments],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=hand_over, close_fds=False, cwd=self.root)
        its.close()
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, own, orders

    def cold(self, *arguments, **environment):
        return subprocess.run([PYTHON, *arguments], env=self.environment(**environment), stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, cwd=self.root, timeout=60, check=False)

    def test_the_script_finds_what_it_finds_in_a_cold_start(self):
        folder = self.root / "folder"
        folder.mkdir()
        (folder / "__main__.py").write_text(self.SCRIPT)
        (folder / "ahead.py").write_text("")
        with zipfile.ZipFile(self.root / "app.zip", "w") as archive:
            archive.writestr("__main__.py", self.SCRIPT)
            archive.writestr("ahead.py", "")
        for command in (["-u", "train.py"], ["-um", "train"], [str(self.script)], ["folder"], ["app.zip"], [str(self.root / "app.zip")]):
            with self.subTest(command):
                cold = self.cold(*command, "--port", "2", ONE="2", NEW="x=y")
                self.assertEqual([one["type"] for one in self.told()], ["ValueError"])
                process, control, orders = self.stand_by(*command, "--port", "1", ONE="1", GONE="x")
                self.assertEqual(control.recv(1), b"r")
                os.pwrite(orders, b"-GONE\0+ONE=2\0+NEW=x=y\0!\0>--port\0>2\0", 0)
                control.send(b"g")
                out, errors = process.communicate(timeout=60)
                self.assertEqual((process.returncode, errors), (cold.returncode, cold.stderr), "its traceback, too")
                before, after = json.loads(cold.stdout), json.loads(out)
                self.assertEqual((before.pop("there"), after.pop("there")), (False, True))
                self.assertEqual(after, before)
                told = self.told_once()
                self.assertEqual((told["type"], told["pid"], told["final"]), ("ValueError", process.pid, True))

    def test_with_torch_comes_what_ddp_imports_later(self):
        self.script.write_text("import sys\nprint(*(name for name in sys.modules if name.startswith('torch')))\n")
        torch = self.root / "torch"
        torch.mkdir()
        (torch / "__init__.py").write_text("")
        for later, found in (("", "torch torch._dynamo\n"), ("raise OSError('no such thing')", "torch\n"), (None, "torch\n")):
            if later is None:
                (torch / "_dynamo.py").unlink()
            else:
                (torch / "_dynamo.py").write_text(later)
            process, control, _ = self.stand_by(str(self.script), modules="torch", PYTHONDONTWRITEBYTECODE="1")
            self.assertEqual(control.recv(1), b"r")
            control.send(b"g")
            self.assertEqual((process.communicate(timeout=60), process.returncode), ((found, ""), 0))

    def test_nobody_hears_of_it_before_it_is_a_rank(self):
        (self.root / "ahead.py").write_text("""import sys
try:
    raise OSError("caught")
except OSError:
    sys.excepthook(*sys.exc_info())
""")
        process, control, _ = self.stand_by("train.py")
        self.assertEqual(control.recv(1), b"r")
        self.assertEqual(self.told(), [])
        self.assertFalse((self.root / f"stacks.{process.pid}").exists())

    def test_what_it_becomes_by_exec_does_not_begin_the_script(self):
        """As who needs another LD_LIBRARY_PATH does it, in a sitecustomize or a module."""
        again = ("import os, sys\nif 'AGAIN' not in os.environ:\n    os.environ['AGAIN'] = '1'\n"
                 "    os.execv(sys.executable, [sys.executable, 'train.py'])\n")
        own = self.root / "own"
        own.mkdir()
        for where in (own / "sitecustomize.py", self.root / "ahead.py"):
            with self.subTest(where.name):
                before = where.read_text() if where.exists() else ""
                where.write_text(again)
                process, control, _ = self.stand_by("train.py", PYTHONPATH=f"{HOOKS}:{own}")
                out, errors = process.communicate(timeout=60)
                self.assertEqual((process.returncode, out, control.recv(1)), (1, "", b""), errors)
                self.assertIn("another program by exec()", errors)
                where.write_text(before)

    def test_the_kernel_would_end_it_first_also_while_it_imports(self):
        (self.root / "ahead.py").write_text("print(open('/proc/self/oom_score_adj').read(), flush=True)\n")
        process, control, _ = self.stand_by("train.py")
        self.assertEqual(control.recv(1), b"r")
        control.close()
        self.assertEqual(process.communicate(timeout=60)[0].split(), ["1000"])

    def test_what_a_module_does_with_standard_error_does_not_stop_the_rank(self):
        (self.root / "ahead.py").write_text("import sys\nclass Lines:\n    write = sys.stderr.write\n    flush = sys.stderr.flush\n"
                                            "sys.stderr = Lines()\n")
        self.script.write_text(f"import os\nprint(os.path.exists('{self.root}/stacks.%d' % os.getpid()))\n")
        process, control, _ = self.stand_by("train.py")
        self.assertEqual(control.recv(1), b"r")
        control.send(b"g")
        self.assertEqual(process.communicate(timeout=60), ("True\n", ""), "its stacks can be asked for")

    def test_the_script_does_not_begin_without_a_word(self):
        """The agent has ended, or nobody needs a rank any more."""
        process, control, _ = self.stand_by("train.py")
        self.assertEqual(control.recv(1), b"r")
        control.close()
        self.assertEqual(process.communicate(timeout=60), ("", ""))
        self.assertEqual(process.returncode, 0)

    def test_what_cannot_be_imported_ends_it(self):
        (self.root / "bad.py").write_text("raise SystemExit(0)")
        for modules, text in (("ahead,missing", "cannot import missing: ModuleNotFoundError: No module named 'missing'"),
                              ("bad", "cannot import bad: SystemExit: 0")):
            with self.subTest(modules):
                process, control, _ = self.stand_by("train.py", modules=modules)
                out, errors = process.communicate(timeout=60)
                self.assertEqual((process.returncode, out), (1, ""))
                self.assertIn(text, errors)
                self.assertEqual(control.recv(1), b"")
                self.assertEqual(self.told(), [])

    def test_the_users_own_sitecustomize_is_run_before_it_waits(self):
        own = self.root / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'yes'\n")
        process, control, _ = self.stand_by("train.py", PYTHONPATH=f"{HOOKS}:{own}")
        self.assertEqual(control.recv(1), b"r")
        control.send(b"g")
        self.assertEqual(json.loads(process.communicate(timeout=60)[0])["environment"]["OWN"], "yes")

    def test_whatever_fails_before_it_is_a_rank_the_script_does_not_begin(self):
        hooks = self.root / "hooks"
        for what, break_it, more in (("the module that waits", lambda: (hooks / "_lockstep_standby.py").unlink(), {}),
                                     ("the hooks", lambda: (hooks / "_lockstep_hooks.py").write_text("raise OSError('torn')"), {}),
                                     ("hooks that are off", lambda: None, {"LOCKSTEP_PYTHON_HOOKS": "off"})):
            with self.subTest(what):
                shutil.rmtree(hooks, ignore_errors=True)
                shutil.copytree(HOOKS, hooks)
                break_it()
                process, _, _ = self.stand_by("train.py", PYTHONPATH=str(hooks), **more)
                out, errors = process.communicate(timeout=60)
                self.assertEqual((process.returncode, out), (1, ""))
                self.assertIn("a standby cannot wait", errors)
        done = self.cold("train.py", LOCKSTEP_STANDBY="ahead", LOCKSTEP_STANDBY_PID="1")
        self.assertEqual((done.returncode, done.stdout), (1, ""), "it is another process that was to wait")
        self.assertIn("process 1 was started to wait", done.stderr)

    def test_what_fails_before_the_users_sitecustomize_does_not_begin_the_script(self):
        """An entry of sys.path that is no path, by a .pth file: the interpreter only prints what the hooks raise at it."""
        (self.user_packages() / "own.pth").write_text(
            f"import sys; sys.path.append(7); open({str(self.root / 'seen')!r}, 'w').close()\n")
        process, control, _ = self.stand_by("train.py", PYTHONUSERBASE=str(self.root))
        first = control.recv(1)
        control.close()
        out, errors = process.communicate(timeout=60)
        self.assertTrue((self.root / "seen").exists(), "the file is read")
        self.assertEqual((first, out), (b"r", ""), errors)

    def user_packages(self):
        """The folder of .pth files of a Python with PYTHONUSERBASE here, as a user or a virtual environment has one."""
        packages = subprocess.run([PYTHON, "-c", "import site; print(site.getusersitepackages())"], text=True, check=True,
                                  env={"PYTHONUSERBASE": str(self.root)}, stdout=subprocess.PIPE).stdout.strip()
        os.makedirs(packages)
        return pathlib.Path(packages)

    def test_what_a_pth_file_starts_runs_as_in_a_cold_rank(self):
        """Such a file is read before the hooks come: their variables are there still."""
        code = "import os; print(sorted(n for n in os.environ if n.startswith('LOCKSTEP_STANDBY')), flush=True)"
        (self.user_packages() / "own.pth").write_text(
            "import os, subprocess, sys; 'NESTED' in os.environ or (os.environ.update(NESTED='1'), "
            f"subprocess.run([sys.executable, '-c', {code!r}]), os.system(sys.executable + ' other.py train.py 1'), "
            "os.environ.pop('NESTED'))\n")
        (self.root / "other.py").write_text(code.replace("; ", "\n") + "\nraise ValueError('of another script')\n")
        cold = self.cold("train.py", "--port", "1", PYTHONUSERBASE=str(self.root))
        self.assertEqual(cold.stdout.splitlines()[:2], ["[]", "[]"], cold.stderr)
        process, control, _ = self.stand_by("train.py", "--port", "1", PYTHONUSERBASE=str(self.root))
        self.assertEqual(control.recv(1), b"r")
        control.close()
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out.splitlines()), (0, ["[]", "[]"]), errors)
        self.assertNotIn("standby", errors)
        self.assertIn("ValueError: of another script", errors)

    def test_a_python_that_is_to_wait_and_starts_another_one_does_not_begin_the_script_there(self):
        """A wrapper without exec, or a .pth file that starts the script itself, with another library path, say."""
        (self.root / "wrapper").write_text(f'#!/bin/sh\n"{PYTHON}" "$@"\nexit $?\n')
        (self.root / "wrapper").chmod(0o755)
        process, control, _ = self.stand_by("train.py", before=[str(self.root / "wrapper")], program=())
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, control.recv(1)), (1, "", b""), errors)
        self.assertIn("was started to wait", errors)
        (self.user_packages() / "own.pth").write_text(
            "import os, subprocess, sys; 'NESTED' in os.environ or (os.environ.update(NESTED='1'), "
            "os._exit(subprocess.run([sys.executable, '-u', *sys.argv]).returncode))\n")
        process, control, _ = self.stand_by("train.py", "--port", "1", PYTHONUSERBASE=str(self.root))
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, control.recv(1)), (1, "", b""), errors)
        self.assertIn("was started to wait", errors)

    def test_what_it_starts_while_it_imports_is_no_standby(self):
        """Neither a Python process nor one that has forked, and none keeps the agent's descriptors."""
        (self.root / "ahead.py").write_text("""import os, subprocess, sys
code = "import os; print([n for n in os.environ if n == 'LOCKSTEP_STANDBY'])"
print(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout, end="", flush=True)
files = subprocess.run(["readlink", "/proc/self/fd/3", "/proc/self/fd/4"], stdout=subprocess.PIPE, close_fds=False).stdout
print(b"socket" in files, b"memfd" in files, flush=True)
if os.fork() != 0:
    os.wait()
""")
        own = self.root / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import os\nprint([n for n in os.environ if n == 'LOCKSTEP_STANDBY'], flush=True)\n")
        process, control, _ = self.stand_by("train.py", PYTHONPATH=f"{HOOKS}:{own}")
        self.assertEqual(control.recv(1), b"r")
        control.close()
        out, errors = process.communicate(timeout=60)
        self.assertEqual(out.splitlines(), ["[]", "[]", "[]", "False False"], "its own sitecustomize, its child's, what that finds")
        self.assertIn("a module has forked while it was imported", errors)

    def test_it_does_not_hear_the_signals_that_are_the_ranks(self):
        (self.root / "ahead.py").write_text("""import signal
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
""")
        process, control, _ = self.stand_by("train.py")
        self.assertEqual(control.recv(1), b"r")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            process.send_signal(number)
        (self.root / "cold.py").write_text("import ahead\n" + self.SCRIPT)
        cold = json.loads(self.cold("cold.py").stdout)
        control.send(b"g")
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, errors)
        warm = json.loads(out)
        self.assertEqual(warm["signals"], cold["signals"])
        self.assertIn("<lambda>", warm["handlers"][signal.SIGUSR1 - 1])

    def test_a_handler_of_c_code_stays(self):
        (self.root / "ahead.py").write_text("import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1)\n")
        self.script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n")
        process, control, _ = self.stand_by("train.py")
        self.assertEqual(control.recv(1), b"r")
        control.send(b"g")
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn("train.py\", line 2", errors.replace("'", '"'))

    def test_in_a_container_without_the_machines_root_it_waits_and_keeps_its_priority(self):
        before = ["unshare", "--user", "--map-root-user"]
        if subprocess.run([*before, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no user namespaces here")
        process, control, _ = self.stand_by("train.py", before=before)
        self.assertEqual(control.recv(1), b"r")
        control.send(b"g")
        out = process.communicate(timeout=60)[0]
        self.assertEqual(json.loads(out)["priority"], os.getpriority(os.PRIO_PROCESS, 0))

    def test_a_thread_that_ends_while_its_priority_is_put_back_is_nothing(self):
        spec = importlib.util.spec_from_file_location("_lockstep_standby", HOOKS / "_lockstep_standby.py")
        standby = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(standby)
        with mock.patch.object(standby, "_lower", return_value=os.getpriority(os.PRIO_PROCESS, 0)), \
                mock.patch.object(os, "listdir", return_value=[str(os.getpid()), str(1 << 22)]):
            standby._import([])


if __name__ == "__main__":
    unittest.main()
