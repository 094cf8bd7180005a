"""The Python package `lockstep` against a stand-in for the agent."""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "job" / "rank" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "support"))

import lockstep  # noqa: E402
from lockstep import _client, _measure  # noqa: E402
from rank_agent import RankAgent  # noqa: E402


class WithAgent(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.agent = RankAgent(self.folder.name, 2).start()
        self.clients = [lockstep.Client(path) for path in self.agent.paths]

    def tearDown(self):
        for client in self.clients:
            client.close()
        self.agent.stop()
        self.folder.cleanup()

    def received(self):
        """Everything the agent was told; a request after it is the proof that it was read."""
        for client in self.clients:
            client.add("flush", 1)
        return self.agent.reports


class Reports(WithAgent):
    def test_metrics_arrive_as_sent(self):
        self.assertTrue(self.clients[1].report(12, epoch=0, timestamp=5.5, loss=0.53, samples=64))
        self.assertEqual(self.received(), [(1, {
            "op": "report", "step": 12, "epoch": 0, "time": 5.5, "loss": 0.53, "samples": 64})])

    def test_numbers_that_are_not_finite_travel_as_words(self):
        self.clients[0].report(1, a=float("nan"), b=float("inf"), c=float("-inf"))
        message = self.received()[0][1]
        self.assertEqual((message["a"], message["b"], message["c"]), ("nan", "inf", "-inf"))

    def test_a_tensor_like_value_is_converted(self):
        class Tensor:
            def __float__(self):
                return 0.25
        self.clients[0].report(1, loss=Tensor())
        self.assertEqual(self.received()[0][1]["loss"], 0.25)

    def test_wrong_names_and_values_are_refused(self):
        for name in ("Loss", "1st", "a" * 65, "op"):
            with self.assertRaises((ValueError, TypeError)):
                self.clients[0].report(1, **{name: 1.0})
        with self.assertRaises(TypeError):
            self.clients[0].report(1, loss="low")
        self.assertEqual(self.received(), [])

    def test_a_report_never_waits_for_a_reader(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "deaf.sock")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(path)
            listener.listen(1)
            client = lockstep.Client(path)
            sent = 0
            while client.report(sent, loss=1.0) and sent < 1_000_000:
                sent += 1
            self.assertGreater(sent, 0)
            self.assertEqual(client.dropped, 1)
            # What is said of a checkpoint waits, but not for ever.
            self.assertFalse(client.send_soon({"op": "checkpoint", "step": 1, "path": "/c"}, seconds=0.05))
            behind, _ = listener.accept()
            threading.Thread(target=lambda: [behind.recv(1 << 16) for _ in range(sent)]).start()
            self.assertTrue(client.send_soon({"op": "checkpoint", "step": 1, "path": "/c"}, seconds=30))
            self.assertEqual(client.dropped, 2)
            client.close()
            listener.close()


class Keys(WithAgent):
    def test_what_one_rank_sets_another_gets(self):
        self.clients[0].set("k", b"\x00\xff")
        self.clients[0].set("text", "grüße")
        self.assertEqual(self.clients[1].get("k"), b"\x00\xff")
        self.assertEqual(self.clients[1].multi_get(["text", "k"]),
                         ["grüße".encode(), b"\x00\xff"])

    def test_a_missing_key_is_not_found(self):
        with self.assertRaises(lockstep.NotFound):
            self.clients[0].get("nothing")

    def test_wait_returns_when_the_key_is_set(self):
        waiter = threading.Thread(target=self.clients[1].wait, args=(["late"], 60))
        waiter.start()
        self.clients[0].set("late", b"1")
        waiter.join(60)
        self.assertFalse(waiter.is_alive())

    def test_wait_names_what_is_missing(self):
        with self.assertRaisesRegex(lockstep.TimedOut, "missing: never"):
            self.clients[0].wait("never", 0.01)

    def test_a_counter_is_shared(self):
        self.assertEqual([c.add("n", 2) for c in self.clients], [2, 4])

    def test_a_barrier_lets_all_go_together(self):
        other = threading.Thread(target=self.clients[1].barrier, args=("b", 60))
        other.start()
        self.clients[0].barrier("b", 60)
        other.join(60)
        self.assertFalse(other.is_alive())

    def test_a_barrier_names_who_is_missing(self):
        with self.assertRaisesRegex(lockstep.TimedOut, "rank 1"):
            self.clients[0].barrier("alone", 0.01)

    def test_a_barrier_that_nobody_answers_says_that_nobody_is_known_to_be_missing(self):
        # The rank that had only waited was taken for the cause: by these words it is known as an echo.
        path = os.path.join(self.folder.name, "deaf.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(1)
            client = lockstep.Client(path)
            self.addCleanup(client.close)
            with mock.patch.object(_client, "SLACK_SECONDS", 0.01):
                for waits in (lambda: client.barrier("b", 0.01), lambda: client.wait("k", 0.01)):
                    with self.assertRaisesRegex(lockstep.TimedOut, "^timed_out: missing: unknown: the agent does not answer$"):
                        waits()
            with self.assertRaisesRegex(lockstep.TimedOut, "^timed_out: the agent does not answer$"):
                client.ask({"op": "get", "key": "k"}, 0.01)

    def test_a_wait_of_more_than_a_day_is_one_of_a_day(self):
        # 100,000 s were refused by the agent, and infinity was an OverflowError.
        one = self.clients[0]
        for timeout in (100_000, float("inf")):
            with mock.patch.object(one, "ask") as ask:
                one.barrier("b", timeout)
                one.wait("k", timeout)
            self.assertEqual([call.args for call in ask.call_args_list],
                             [({"op": "barrier", "name": "b", "timeout_ms": 86_400_000}, 86_405.0),
                              ({"op": "wait", "keys": ["k"], "timeout_ms": 86_400_000}, 86_405.0)])

    def test_large_keys_and_values_are_refused_here(self):
        with self.assertRaises(ValueError):
            self.clients[0].set("k" * 257, b"")
        with self.assertRaises(ValueError):
            self.clients[0].set("k", b"x" * ((1 << 20) + 1))

    def test_a_value_of_64_mebibytes_is_refused_by_name_before_anything_is_sent(self):
        huge = bytes(64 << 20)
        calls = (lambda c: c.set("weights", huge), lambda c: c.cas("weights", None, huge),
                 lambda c: c.multi_set({"fine": b"", "weights": huge}))
        for call in calls:
            with self.assertRaisesRegex(lockstep.TooLarge, "weights: .* 67108864 bytes, at most 1048576"):
                call(self.clients[0])
        with self.assertRaises(lockstep.NotFound):
            self.clients[0].get("fine")

    def test_a_message_that_no_socket_holds_is_too_large_and_not_an_agent_that_is_gone(self):
        values = {f"k{i}": bytes(1 << 20) for i in range(16)}
        with self.assertRaisesRegex(lockstep.TooLarge, "wmem_max"):
            self.clients[0].multi_set(values)
        self.clients[0].set("k", b"still there")

    def test_cas_swaps_what_is_expected_and_tells_what_stands(self):
        one, two = self.clients
        self.assertEqual(one.cas("k", None, "a"), (True, b"a"))
        self.assertEqual(two.cas("k", b"", b"b"), (False, b"a"))
        self.assertEqual(two.cas("k", "a", b"b"), (True, b"b"))
        self.assertEqual(one.cas("none", "a", "b"), (False, None))

    def test_a_value_set_once_raises_conflict_for_another(self):
        self.clients[0].set("k", "v", once=True)
        self.clients[1].set("k", "v", once=True)
        with self.assertRaisesRegex(lockstep.Conflict, "k: was set once"):
            self.clients[1].set("k", "w", once=True)

    def test_several_keys_are_set_at_once_or_not_at_all(self):
        self.clients[0].multi_set({"a": "1", "b": b"2"}, once=True)
        self.assertEqual(self.clients[1].multi_get(["a", "b"]), [b"1", b"2"])
        with self.assertRaises(lockstep.Conflict):
            self.clients[1].multi_set({"c": "3", "b": "other"})
        with self.assertRaises(lockstep.NotFound):
            self.clients[1].get("c")


class Module(WithAgent):
    def test_the_module_uses_the_socket_of_the_environment(self):
        os.environ["LOCKSTEP_SOCKET"] = self.agent.paths[1]
        try:
            self.assertTrue(lockstep.report(step=3, loss=1))
            self.assertTrue(lockstep.phase("eval"))
            self.assertTrue(lockstep.checkpoint(3, pathlib.Path("/c/step-3")))
            self.assertEqual(lockstep.add("n"), 1)
        finally:
            del os.environ["LOCKSTEP_SOCKET"]
        ops = [(rank, message["op"]) for rank, message in self.agent.reports]
        self.assertEqual(ops, [(1, "report"), (1, "phase"), (1, "checkpoint")])

    def test_without_a_socket_reports_do_nothing_and_keys_fail(self):
        os.environ.pop("LOCKSTEP_SOCKET", None)
        self.assertFalse(lockstep.report(step=1, loss=1))
        with self.assertRaises(lockstep.LockstepError):
            lockstep.get("k")

    def test_an_agent_that_is_gone_ends_no_training_at_its_checkpoint(self):
        # phase() and checkpoint() raised where report() was silent: callbacks call them while they save.
        done = in_process("""
assert lockstep.report(1, loss=1) is False
assert lockstep.phase("checkpoint") is False
assert lockstep.checkpoint(1, "/c/step-1") is False
try:
    lockstep.get("k")
except lockstep.LockstepError as error:
    print(error.code)
""", LOCKSTEP_SOCKET=os.path.join(self.folder.name, "gone.sock"))
        self.assertEqual(done.stdout, "unavailable\n", done.stderr)

    def test_a_child_forked_while_another_thread_connects_reports_all_the_same(self):
        # The thread held a lock that nobody in the child would ever have given back.
        done = in_process("""
from lockstep import _client
held, over = threading.Event(), threading.Event()
class Slow(_client.Client):
    def __init__(self, path):
        if threading.current_thread() is not threading.main_thread():
            held.set()
            over.wait()
        super().__init__(path)
_client.Client = Slow
thread = threading.Thread(target=lockstep.report, args=(1,))
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # of a child that hangs
    os._exit(0 if lockstep.report(2, loss=1) else 1)
status = os.waitpid(child, 0)[1]
over.set()
thread.join()
print(status)
""", LOCKSTEP_SOCKET=self.agent.paths[0])
        self.assertEqual(done.stdout, "0\n", done.stderr)
        # They came on connections of their own: a request on another one does not wait for them.
        deadline = time.monotonic() + 60
        while len(self.received()) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(sorted(message["step"] for _, message in self.received()), [1, 2])


class Device:
    """The event of a copy from a GPU, that arrives after so many looks; None: never, "fails": the GPU is broken."""

    def __init__(self, looks):
        self.looks = looks

    def query(self):
        if self.looks == "fails":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if self.looks is None:
            return False
        self.looks -= 1
        return self.looks < 0


class OnTheWay(WithAgent):
    """Losses that were still on a device when the training ended."""

    def setUp(self):
        super().setUp()
        os.environ["LOCKSTEP_SOCKET"] = self.agent.paths[0]
        _client._client = None  # another test's
        self.addCleanup(os.environ.pop, "LOCKSTEP_SOCKET", None)
        self.later = _measure.Later()

    def received(self):
        lockstep.add("flush", 1)  # on the connection that they came by
        return super().received()

    def wait_for(self, *devices):
        for step, looks in enumerate(devices, start=1):
            self.later._waiting.append((Device(looks), step, step / 2, 5.0, {}))

    def test_the_last_are_sent_at_the_end(self):
        self.wait_for(0, 5, 3)
        self.later.flush()
        self.assertEqual([m["step"] for _, m in self.received()], [1])
        self.later.flush(60)
        self.assertEqual([(m["step"], m["loss"]) for _, m in self.received()], [(1, 0.5), (2, 1.0), (3, 1.5)])

    def test_a_device_that_never_answers_or_has_failed_ends_the_wait(self):
        self.wait_for(0, None, 0)
        self.later.flush(0.05)
        self.wait_for("fails")
        self.later._waiting.rotate(1)
        self.later.flush(60)
        self.assertEqual([m["step"] for _, m in self.received()], [1])


def in_process(text, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    return subprocess.run([sys.executable, "-c", "import os, signal, threading, lockstep\n" + text],
                          env={**clean, "PYTHONPATH": str(ROOT / "job/rank/python"), **environment},
                          capture_output=True, text=True, timeout=120, check=False)


class CheckpointRequested(unittest.TestCase):
    """Each in a process of its own: a signal handler belongs to the whole process."""

    def in_process(self, text, **environment):
        done = in_process(text, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_is_true_once_for_each_request_and_several_count_as_one(self):
        self.in_process("""
assert not lockstep.checkpoint_requested()
for _ in range(3):
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert lockstep.checkpoint_requested()
    assert not lockstep.checkpoint_requested()
""", LOCKSTEP_CHECKPOINT_SIGNAL="USR1")

    def test_the_kernel_sees_that_the_process_catches_the_signal(self):
        self.in_process("""
def caught():
    line = next(l for l in open("/proc/self/status") if l.startswith("SigCgt:"))
    return int(line.split()[1], 16) >> (signal.SIGUSR2 - 1) & 1
assert not caught()
lockstep.checkpoint_requested()
assert caught()
""", LOCKSTEP_CHECKPOINT_SIGNAL="USR2")

    def test_a_handler_that_was_there_is_called_too(self):
        self.in_process("""
seen = []
signal.signal(signal.SIGUSR2, lambda *_: seen.append(1))
lockstep.checkpoint_requested()
os.kill(os.getpid(), signal.SIGUSR2)
assert lockstep.checkpoint_requested() and seen == [1], seen
""", LOCKSTEP_CHECKPOINT_SIGNAL="USR2")

    def test_asked_by_sigint_it_is_no_keyboard_interrupt(self):
        # checkpoint.signal INT: Python's own handler was called, too, and the training ended.
        self.in_process("""
lockstep.checkpoint_requested()
os.kill(os.getpid(), signal.SIGINT)
assert lockstep.checkpoint_requested()
""", LOCKSTEP_CHECKPOINT_SIGNAL="INT")

    def test_a_forked_child_does_not_answer_the_request_of_its_parent(self):
        self.in_process("""
lockstep.checkpoint_requested()
os.kill(os.getpid(), signal.SIGUSR2)
child = os.fork()
if child == 0:
    os._exit(1 if lockstep.checkpoint_requested() else 0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert lockstep.checkpoint_requested()
""", LOCKSTEP_CHECKPOINT_SIGNAL="USR2")

    def test_the_first_call_belongs_into_the_main_thread(self):
        self.in_process("""
problem = []
def call():
    try:
        lockstep.checkpoint_requested()
    except RuntimeError as error:
        problem.append(str(error))
thread = threading.Thread(target=call)
thread.start(); thread.join()
assert "main thread" in problem[0], problem
assert not lockstep.checkpoint_requested()
thread = threading.Thread(target=lockstep.checkpoint_requested)
thread.start(); thread.join()
""", LOCKSTEP_CHECKPOINT_SIGNAL="USR2")

    def test_without_lockstep_nobody_asks_and_nothing_is_installed(self):
        self.in_process("""
assert not lockstep.checkpoint_requested()
assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
""")


if __name__ == "__main__":
    unittest.main()
