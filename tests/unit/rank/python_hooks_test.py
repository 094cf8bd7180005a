"""The hooks in a rank's Python (job/rank/python/hooks), run as the agent starts them: a real interpreter,
a real script, a socket to listen on."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HOOKS = pathlib.Path(__file__).resolve().parents[3] / "job" / "rank" / "python" / "hooks"
PYTHON = os.environ.get("LOCKSTEP_PYTHON", "/usr/bin/python3")
STACK_SIGNAL = 45


class Hooked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.agent.close)
        self.agent.bind(str(self.root / "r00000.sock"))
        self.agent.listen(64)
        self.agent.setblocking(False)

    def environment(self, **extra):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "LOCKSTEP_"))}
        return {**kept, "LOCKSTEP_SOCKET": str(self.root / "r00000.sock"), "PYTHONPATH": str(HOOKS),
                "PYTHONDONTWRITEBYTECODE": "1", **extra}

    def run_script(self, text, code, **environment):
        script = self.root / "train.py"
        script.write_text(text)
        done = subprocess.run([PYTHON, script], env=self.environment(**environment), text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def told(self):
        messages = []
        while True:
            try:
                connection, _ = self.agent.accept()
            except BlockingIOError:
                return messages
            with connection:
                connection.settimeout(5)
                messages.append(json.loads(connection.recv(1 << 20)))

    def told_once(self):
        messages = self.told()
        self.assertEqual(len(messages), 1, messages)
        return messages[0]


class Hooks(Hooked):
    def test_an_uncaught_exception_is_told_and_printed_as_ever(self):
        before = time.time()
        done = self.run_script("def load():\n    raise ValueError('label 17')\nload()\n", 1, RANK="2")
        self.assertIn("ValueError: label 17", done.stderr)
        self.assertNotIn("_lockstep_hooks", done.stderr)
        note = self.told_once()
        self.assertEqual((note["op"], note["type"], note["message"], note["final"], note["rank"]),
                         ("exception", "ValueError", "label 17", True, 2))
        self.assertIn("in load", note["traceback"])
        self.assertTrue(before <= note["time"] <= time.time(), note)

    def test_an_exit_function_that_waits_for_the_others_after_an_exception_is_not_waited_for(self):
        # jax.distributed shuts down so, for five minutes, while the others wait for this process's next step.
        script = ("import atexit, threading, _lockstep_hooks\n"
                  "_lockstep_hooks._EXIT_SECONDS = 0.3\n"
                  "def shut_down():\n    threading.Event().wait()\n"
                  "atexit.register(shut_down)\n"
                  "raise ValueError('label 17')\n")
        done = self.run_script(script, 1, LOCKSTEP_WORLD_SIZE="2")
        self.assertIn("ValueError: label 17", done.stderr)
        self.assertIn("in shut_down", done.stderr, "the stacks say where it waited")
        self.assertEqual([note["message"] for note in self.told()], ["label 17"])

    def test_a_script_that_has_an_exception_printed_and_goes_on_may_take_its_time_at_the_end(self):
        # Any call of sys.excepthook limited the exit functions, and ended a script that had succeeded with status 1.
        prints = {"by itself": "    sys.excepthook(*sys.exc_info())\n",
                  "by a thread": "    t = threading.Thread(target=sys.excepthook, args=sys.exc_info())\n"
                                 "    t.start()\n    t.join()\n",
                  # As libraries in C++ do with what a callback has raised: it looks like the end in all but one way.
                  "in C": "    pass\nctypes.pythonapi.PyRun_SimpleString(b'1 / 0')\n"}
        for how, code in prints.items():
            with self.subTest(how):
                done = self.run_script(
                    "import atexit, ctypes, sys, threading, time, _lockstep_hooks\n"
                    "_lockstep_hooks._EXIT_SECONDS = 0.3\n"
                    "atexit.register(lambda: (time.sleep(1), print('all done')))\n"
                    f"try:\n    1 / 0\nexcept ZeroDivisionError:\n{code}", 0, LOCKSTEP_WORLD_SIZE="2")
                self.assertIn("ZeroDivisionError", done.stderr)
                self.assertEqual(done.stdout, "all done\n")
                self.assertFalse([note for note in self.told() if note["final"] and how != "in C"])

    def test_a_script_that_looks_for_torch_before_it_imports_it_is_measured(self):
        # As `import transformers` does: measuring had been asked for of the spec that was thrown away.
        (self.root / "torch.py").write_text("")
        (self.root / "lockstep.py").write_text("def auto():\n    print('measured')\n")
        done = self.run_script("import importlib.util\n"
                               "assert importlib.util.find_spec('torch') and importlib.util.find_spec('torch')\n"
                               "import torch\n"
                               "importlib.reload(torch)\n", 0, LOCKSTEP_PYTHON_HOOKS="measure")
        self.assertEqual(done.stdout, "measured\n")

    def test_two_finders_that_ask_each_other_find_the_module_and_both_tell_of_it(self):
        # lockstep.auto()'s own is a second one of the kind; so is wrapt's.
        done = self.run_script("import sys, _lockstep_hooks\n"
                               "from lockstep import _auto\n"
                               "_auto._AfterImport.wanted['wave'] = lambda module: print('auto', module.__name__)\n"
                               "sys.meta_path.insert(0, _auto._AfterImport)\n"
                               "_lockstep_hooks.after_import('wave', lambda module: print('hooks', module.__name__))\n"
                               "import wave\n", 0, PYTHONPATH=f"{HOOKS}:{HOOKS.parent}")
        self.assertEqual(done.stdout, "hooks wave\nauto wave\n")

    def test_sys_exit_tells_the_exception_that_is_handled_or_the_place(self):
        self.run_script("import sys\ntry:\n    {}['w']\nexcept KeyError:\n    sys.exit(3)\n", 3)
        note = self.told_once()
        self.assertEqual((note["type"], note["final"]), ("KeyError", False))
        self.run_script("import sys\nsys.exit('no data')\n", 1)
        note = self.told_once()
        self.assertEqual((note["type"], note["message"]), ("SystemExit", "no data"))
        self.assertIn("train.py", note["traceback"])
        self.run_script("import sys\nsys.exit(0)\n", 0)
        self.run_script("import sys\nsys.exit()\n", 0)
        self.assertEqual(self.told(), [])

    def test_arguments_that_argparse_refuses_are_told_in_its_words(self):
        script = ("import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
                  "parser.add_argument('--data', required={})\nparser.parse_args({})\n")
        for required, given, words in ((False, ["--lrr", "3"], "unrecognized arguments: --lrr 3"),
                                       (True, [], "the following arguments are required: --data")):
            with self.subTest(words):
                self.run_script(script.format(required, given), 2)
                note = self.told_once()
                self.assertEqual((note["type"], note["message"]), ("SystemExit", words))
                self.assertIn("parser.parse_args", note["traceback"])
                self.assertNotIn("argparse.py", note["traceback"], "its own lines say nothing")
        self.run_script("import argparse\nargparse.ArgumentParser().exit(3, 'gone')\n", 3)
        self.assertEqual(self.told_once()["message"], "3")

    def test_arguments_that_click_refuses_are_told_in_its_words_with_the_options_name(self):
        # str() of click's BadParameter is "'x' is not a valid float.": of which option nobody was told.
        package = self.root / "click"
        package.mkdir()
        (package / "__init__.py").write_text(
            "import sys\n"
            "class ClickException(Exception):\n"
            "    exit_code = 1\n"
            "    def format_message(self):\n        return str(self)\n"
            "class BadParameter(ClickException):\n"
            "    exit_code = 2\n"
            "    def format_message(self):\n        return f\"Invalid value for '--lr': {self}\"\n"
            "def main():\n"
            "    try:\n        raise BadParameter(\"'x' is not a valid float.\")\n"
            "    except ClickException as error:\n        sys.exit(error.exit_code)\n")
        self.run_script("import click\nclick.main()\n", 2)
        note = self.told_once()
        self.assertEqual((note["type"], note["message"]),
                         ("SystemExit", "Invalid value for '--lr': 'x' is not a valid float."))
        self.assertIn("click.main()", note["traceback"])
        self.assertNotIn("click/__init__.py", note["traceback"], "its own lines say nothing")

    def test_a_module_that_is_not_there_is_told_as_python_says_it(self):
        # The cause was `raised runpy._Error: No module named nowhere`.
        done = subprocess.run([PYTHON, "-m", "nowhere"], env=self.environment(), text=True, capture_output=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        note = self.told_once()
        self.assertEqual((note["type"], note["message"]), ("SystemExit", done.stderr.strip()))
        self.assertIn("No module named nowhere", note["message"])

    def test_threads_and_child_processes_tell_theirs(self):
        self.run_script("import threading\nt = threading.Thread(target=lambda: 1 / 0, name='loader')\n"
                        "t.start()\nt.join()\n", 0)
        note = self.told_once()
        self.assertEqual((note["type"], note["thread"], note["final"]), ("ZeroDivisionError", "loader", False))
        for start in ("fork", "spawn"):
            with self.subTest(start=start):
                self.run_script("import multiprocessing\ndef work():\n    raise OSError('no disk')\n"
                                "if __name__ == '__main__':\n"
                                f"    c = multiprocessing.get_context('{start}').Process(target=work)\n"
                                "    c.start()\n    c.join()\n    assert c.exitcode == 1\n", 0)
                note = self.told_once()
                self.assertEqual((note["type"], note["final"]), ("OSError", False))

    def test_hooks_of_the_script_are_called_and_need_not_call_ours(self):
        done = self.run_script("import sys\nsys.excepthook = lambda *a: print('mine')\n1 / 0\n", 1)
        self.assertEqual(done.stdout, "mine\n")
        self.assertEqual(self.told_once()["type"], "ZeroDivisionError")
        done = self.run_script("import sys\nbefore = sys.excepthook\n"
                               "def hook(*a):\n    print('first')\n    before(*a)\nsys.excepthook = hook\n1 / 0\n", 1)
        self.assertEqual(done.stdout, "first\n")
        self.assertIn("ZeroDivisionError", done.stderr)
        self.assertEqual(self.told_once()["type"], "ZeroDivisionError")

    def test_the_chain_begins_with_what_was_first(self):
        self.run_script("try:\n    raise ValueError('own')\nfinally:\n    raise RuntimeError('closed')\n", 1)
        self.assertEqual(self.told_once()["chain"], [["ValueError", "own"], ["RuntimeError", "closed"]])

    def test_the_users_own_customizations_still_run(self):
        own = self.root / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("print('sitecustomize', __name__)\n")
        (own / "usercustomize.py").write_text("print('usercustomize')\n")
        done = self.run_script("import sys, sitecustomize\nprint(sitecustomize.__file__)\n"
                               f"print({str(HOOKS)!r} in sys.path)\n", 0, PYTHONPATH=f"{HOOKS}:{own}")
        self.assertEqual(done.stdout, f"sitecustomize sitecustomize\nusercustomize\n{own}/sitecustomize.py\nFalse\n")
        # One that fails is told as Python tells it, and the hooks are there all the same.
        (own / "sitecustomize.py").write_text("import not_there\n")
        done = self.run_script("1 / 0\n", 1, PYTHONPATH=f"{HOOKS}:{own}")
        self.assertIn("No module named 'not_there'", done.stderr)
        self.assertEqual(self.told_once()["type"], "ZeroDivisionError")

    def test_one_in_a_virtual_environment_still_runs(self):
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", self.root / "venv"], check=True, timeout=60)
        packages = next((self.root / "venv" / "lib").glob("python3*/site-packages"))
        (packages / "sitecustomize.py").write_text("print('of the venv')\n")
        program = [self.root / "venv" / "bin" / "python", "-c", "import sitecustomize\nprint(sitecustomize.__file__)\n1 / 0"]
        plain = {name: value for name, value in self.environment().items() if name != "PYTHONPATH"}
        runs = [subprocess.run(program, text=True, check=False, capture_output=True, env=environment, timeout=60)
                for environment in (plain, self.environment())]
        self.assertEqual(runs[0].stdout, runs[1].stdout, "the same one runs: Debian's comes before the venv's")
        self.assertTrue(runs[0].stdout)
        self.assertEqual(self.told_once()["type"], "ZeroDivisionError")

    def test_off_leaves_them_out(self):
        self.run_script("import sys\nassert '_lockstep_hooks' not in sys.modules or sys.excepthook is sys.__excepthook__\n"
                        "1 / 0\n", 1, LOCKSTEP_PYTHON_HOOKS="off")
        self.assertEqual(self.told(), [])

    def test_an_agent_that_is_gone_or_does_not_listen_costs_nothing_and_breaks_nothing(self):
        done = self.run_script("1 / 0\n", 1, LOCKSTEP_SOCKET="/nowhere/at/all.sock")
        self.assertIn("ZeroDivisionError", done.stderr)
        full = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(full.close)
        full.bind(str(self.root / "full.sock"))
        full.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
        for one in waiting:
            self.addCleanup(one.close)
            one.setblocking(False)
            try:
                one.connect(str(self.root / "full.sock"))
            except BlockingIOError:
                pass
        began = time.monotonic()
        self.run_script("1 / 0\n", 1, LOCKSTEP_SOCKET=str(self.root / "full.sock"))
        self.assertLess(time.monotonic() - began, 10)

    def test_the_signal_writes_the_stacks_of_all_threads_and_nothing_else_happens(self):
        script = self.root / "hang.py"
        script.write_text("import threading, time\ndef wait_for_data():\n    lock.acquire()\n"
                          "lock = threading.Lock()\nlock.acquire()\n"
                          "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
                          "print('ready', flush=True)\nwait_for_data()\n")
        child = subprocess.Popen([PYTHON, script], env=self.environment(), stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "ready\n")
        stacks = self.root / f"stacks.{child.pid}"
        self.assertEqual(stacks.read_text(), "")
        self.assertIn(str(stacks), [os.readlink(f) for f in pathlib.Path(f"/proc/{child.pid}/fd").iterdir()])
        deadline = time.monotonic() + 60
        while "wait_for_data" not in stacks.read_text().split("Current thread")[-1]:
            child.send_signal(STACK_SIGNAL)
            time.sleep(0.05)
            self.assertLess(time.monotonic(), deadline, stacks.read_text())
        self.assertIn("line 3 in wait_for_data", stacks.read_text())
        self.assertIn("Thread 0x", stacks.read_text())
        self.assertIsNone(child.poll())
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(10), -signal.SIGTERM)

    def test_a_process_starts_as_fast_as_without(self):
        """< 5 ms more of a processor, the least of 25 each: what else the machine does is not counted."""
        plain = {name: value for name, value in self.environment().items()
                 if name not in ("PYTHONPATH", "LOCKSTEP_SOCKET", "PYTHONDONTWRITEBYTECODE")}
        hooked = {**plain, "PYTHONPATH": str(HOOKS), "LOCKSTEP_SOCKET": str(self.root / "r00000.sock")}

        def milliseconds(environment):
            process = subprocess.Popen([PYTHON, "-c", "pass"], env=environment)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            return (used.ru_utime + used.ru_stime) * 1000

        pairs = [(milliseconds(plain), milliseconds(hooked)) for _ in range(25)]
        more = min(pair[1] for pair in pairs) - min(pair[0] for pair in pairs)
        print(f"the hooks cost {more:.2f} ms of a process's start", file=sys.stderr)
        self.assertLess(more, 5)


if __name__ == "__main__":
    unittest.main()
