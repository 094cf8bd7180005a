"""python3 -m lockstep.profile: real processes with the hooks, as an agent starts them, and the real torch where there is
one (else its tests are skipped aloud)."""

import contextlib
import gzip
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

PYTHON_FILES = pathlib.Path(__file__).resolve().parents[3] / "job" / "rank" / "python"
PYTHON = os.environ.get("LOCKSTEP_PYTHON", "/usr/bin/python3")
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0

TRAIN = """
import sys, pathlib, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
step = 0
def train_step():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()
losses = []
print("ready", flush=True)
end = pathlib.Path(sys.argv[1])
while step < 100 or not end.exists():
    losses.append(train_step())
    step += 1
print(losses[:100], torch.autograd.profiler.record_function.__mro__[1].__name__, flush=True)
"""
SPINS = "print('ready', flush=True)\ndef spins():\n    while True: sum(range(1000))\nspins()\n"


def environment(**extra):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOCKSTEP_"))}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **extra}


class Profile(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.root = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.job = f"ls-test-{os.getpid()}-{self.id().rsplit('.', maxsplit=1)[-1]}"
        self.output = self.root / "profile"
        self.stop = self.root / "stop"

    def start(self, text, rank=0, **extra):
        process = subprocess.Popen(
            [PYTHON, "-c", text, str(self.stop)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(LOCKSTEP_SOCKET=str(self.root / "r.sock"), LOCKSTEP_RANK=str(rank),
                            LOCKSTEP_JOB_ID=self.job, PYTHONPATH=str(PYTHON_FILES / "hooks"), **extra))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def begin(self, *words):
        return subprocess.Popen([PYTHON, "-m", "lockstep.profile", "--job", self.job, "--output", str(self.output), *words],
                                env=environment(PYTHONPATH=str(PYTHON_FILES)), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(self, *words, code=0):
        asking = self.begin(*words)
        out, err = asking.communicate(timeout=100)
        self.assertEqual(asking.returncode, code, out + err)
        return out, err

    def begun(self, process, name="ask"):
        """Once the process has been asked, or has written this file."""
        path = self.root / f"profile.{process.pid}.{name}"
        end = time.monotonic() + 60
        while not path.exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def names(self):
        return sorted(path.name.split(".", 2)[2] for path in self.output.iterdir())

    @unittest.skipUnless(HAS_TORCH, f"{PYTHON} has no torch")
    def test_a_script_nobody_prepared_shows_its_operations_and_computes_the_same(self):
        zero, one = self.start(TRAIN, 0), self.start(TRAIN, 1)
        self.ask("--ranks", "1", "--seconds", "1")
        self.assertEqual(self.names(), ["operations.txt", "stacks.txt", "trace.json.gz"])
        self.assertTrue(all(path.name.startswith(f"rank-00001.{one.pid}.") for path in self.output.iterdir()))
        trace = json.loads(gzip.decompress(next(self.output.glob("*.trace.json.gz")).read_bytes()))
        events = trace if isinstance(trace, list) else trace["traceEvents"]
        names = {event.get("name") for event in events}
        self.assertTrue({"aten::addmm", "Optimizer.step#SGD.step"} <= names, names)
        self.assertIn("aten::addmm", next(self.output.glob("*.operations.txt")).read_text())
        self.assertIn("train_step", next(self.output.glob("*.stacks.txt")).read_text())
        self.stop.touch()
        told = [process.communicate(timeout=60)[0] for process in (zero, one)]
        self.assertEqual([process.returncode for process in (zero, one)], [0, 0])
        self.assertEqual(told[0], told[1])  # the losses, bit by bit; torch's name is its own again
        self.assertEqual([path.name for path in self.root.glob("profile.*")], [])

    @unittest.skipUnless(HAS_TORCH, f"{PYTHON} has no torch")
    def test_a_second_time_and_with_few_operations_allowed(self):
        self.start(TRAIN)
        for _ in range(2):
            self.ask("--seconds", "1")
            first = next(self.output.glob("*.operations.txt")).read_text().split()
            self.assertEqual(first[1], "steps")
            self.assertGreater(int(first[0]), 1)
            self.assertLess(int(first[0]), 40000)

    @unittest.skipUnless(HAS_TORCH, f"{PYTHON} has no torch")
    def test_torch_without_a_step_gives_stacks_and_the_reason(self):
        self.start("import torch\n" + SPINS)
        _, err = self.ask("--seconds", "1")
        self.assertEqual(self.names(), ["stacks.txt"])
        self.assertRegex(err, "no trace: no step ended within 1[0-9] s: lockstep evidence --now")

    @unittest.skipUnless(HAS_TORCH, f"{PYTHON} has no torch")
    def test_the_script_s_own_profiler_is_left_alone(self):
        text = TRAIN.replace("losses = []", "losses = []; own = torch.profiler.profile(); own.start()")
        text = text.replace("while step < 100 or", "while step < 100000 and")
        self.start(text + "own.stop(); print('stopped')\n")
        _, err = self.ask("--seconds", "1")
        self.assertIn("no trace: the script's own torch profiler is on", err)

    def test_python_without_torch(self):
        self.start(SPINS)
        _, err = self.ask("--seconds", "1")
        self.assertEqual(self.names(), ["stacks.txt"])
        self.assertIn("no trace: this process has not imported torch or jax yet", err)
        lines = next(self.output.glob("*.stacks.txt")).read_text().splitlines()
        self.assertRegex(lines[0], r"^MainThread;<module> \(<string>:\d+\);spins \(<string>:\d+\) \d+$")
        counts = [int(line.rsplit(" ", 1)[1]) for line in lines]
        self.assertGreater(sum(counts), 5)

    def test_a_framework_whose_profiler_is_not_begun(self):
        # The name alone: paddle's would end a process in which two threads compute.
        (self.root / "paddle.py").touch()
        self.start("import sys; sys.path.insert(0, sys.argv[1].rsplit('/', 1)[0]); import paddle\n" + SPINS)
        _, err = self.ask("--seconds", "1")
        self.assertEqual(self.names(), ["stacks.txt"])
        self.assertIn("no trace: paddle's profiler can end a process in which another thread computes", err)

    def test_one_that_waits_in_a_call_is_not_disturbed_and_does_not_hang_the_question(self):
        process = self.start("import sys\nprint('ready', flush=True)\nprint(repr(sys.stdin.read()))\n")
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        _, err = self.ask("--seconds", "1", code=1)
        self.assertLess(time.monotonic() - began, 60)
        self.assertIn("it did not come to run Python, or to end a step, in time: lockstep evidence --now", err)
        os.kill(process.pid, signal.SIGCONT)
        self.assertEqual(process.communicate("words", timeout=30)[0], "'words'\n")
        self.assertEqual(process.returncode, 0)

    @unittest.skipUnless(HAS_TORCH, f"{PYTHON} has no torch")
    def test_a_script_that_ends_meanwhile_ends_as_it_would(self):
        for name in ("ask", "trace.json"):
            process = self.start(TRAIN)
            asking = self.begin("--seconds", "1")
            self.begun(process, name)
            self.stop.touch()
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            asking.communicate(timeout=60)
            self.stop.unlink()

    def test_one_that_dies_meanwhile(self):
        process = self.start(SPINS)
        asking = self.begin("--seconds", "20")
        self.begun(process)
        process.kill()
        process.wait()
        _, err = asking.communicate(timeout=60)
        self.assertEqual(asking.returncode, 1)
        self.assertIn("no profile: it has ended meanwhile", err)

    def test_a_second_question_meanwhile(self):
        process = self.start(SPINS)
        first = self.begin("--seconds", "3")
        self.begun(process)
        os.kill(process.pid, signal.SIGSTOP)  # the first is not over, however late the second comes
        _, err = self.ask("--seconds", "1", code=1)
        os.kill(process.pid, signal.SIGCONT)
        self.assertIn("somebody else has asked for a profile of it", err)
        first.communicate(timeout=60)
        self.assertEqual(first.returncode, 0)

    def test_bad_questions(self):
        self.start(SPINS)
        for words, why in ((["--seconds", "0"], "1 to 60"), (["--seconds", "61"], "1 to 60"),
                           (["--seconds", "nan"], "1 to 60"), (["--ranks", "7"], "no Python process of rank 7 here"),
                           (["--ranks", "0-x"], "is no rank")):
            self.assertIn(why, self.ask(*words, code=2)[1])
        self.assertIn("end before its beginning", self.ask("--ranks", "5-3", code=2)[1])
        self.output = self.root / "a file"
        self.output.touch()
        self.assertIn("--output: ", self.ask(code=2)[1])
        self.job = "ls-another"
        self.assertIn("no Python process of a rank here", self.ask(code=2)[1])

    def test_a_disk_without_room_for_the_answer_and_a_rank_without_a_number(self):
        """Where the process writes: it is said, and nothing is left."""
        process = self.start(SPINS, rank="")
        os.symlink("/dev/full", self.root / f"profile.{process.pid}.stacks.txt.new")
        _, err = self.ask("--seconds", "1", code=1)
        self.assertIn(f"rank unknown, process {process.pid}: no all: OSError: [Errno 28]", err)
        self.assertEqual([path.name for path in self.root.glob("profile.*")], [])
        self.ask("--seconds", "1")
        self.assertEqual([path.name for path in self.output.iterdir()], [f"rank-unknown.{process.pid}.stacks.txt"])

    def test_a_script_s_own_handler_and_hooks_that_are_off(self):
        self.start(SPINS, LOCKSTEP_PYTHON_HOOKS="off")
        self.assertIn("no Python process", self.ask(code=2)[1])
        process = self.start("import signal; signal.signal(signal.SIGURG, signal.SIG_IGN)\n" + SPINS)
        self.assertIn("no Python process", self.ask(code=2)[1])
        self.assertIsNone(process.poll())


if __name__ == "__main__":
    unittest.main()
