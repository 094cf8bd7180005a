"""The traces of frameworks without steps (job/rank/python/hooks/_lockstep_trace*.py): the table of the longest operations,
the form of a trace, and who may record when, with a profiler of the test's own. The real ones: tests/frameworks."""

import importlib.util
import gzip
import json
import os
import pathlib
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

HOOKS = pathlib.Path(__file__).resolve().parents[3] / "job" / "rank" / "python" / "hooks"


def load(name):
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(name, HOOKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


profile = load("_lockstep_profile")
trace = load("_lockstep_trace")
jax_trace = load("_lockstep_trace_jax")


def spans(*those):
    out = trace.Spans()
    for one in those:
        out.add(*one)
    return out


class Table(unittest.TestCase):
    def test_own_time_is_without_what_is_within(self):
        found = spans(("a", 0, 100, "step"), ("a", 10, 30, "dot"), ("a", 50, 20, "dot"), ("a", 12, 5, "copy"),
                      ("b", 0, 40, "dot")).rows()
        self.assertEqual(found, [("dot", 85, 90, 3), ("step", 50, 100, 1), ("copy", 5, 5, 1)])

    def test_a_name_within_itself_is_in_the_total_once(self):
        self.assertEqual(spans(("a", 0, 10, "f"), ("a", 1, 6, "f"), ("a", 20, 10, "f")).rows(), [("f", 20, 20, 3)])

    def test_the_order_and_overlaps_of_a_lane_do_not_matter(self):
        self.assertEqual(spans(("a", 5, 5, "in"), ("a", 0, 20, "out"), ("a", 0, 3, "in")).rows(),
                         [("out", 12, 20, 1), ("in", 8, 8, 2)])
        self.assertEqual(spans(("a", 0, 10, "one"), ("a", 8, 10, "two")).rows(), [("one", 8, 10, 1), ("two", 2, 2, 1)])

    def test_what_is_written(self):
        many = spans(*((0, 10 * n, 1, f"operation {n}") for n in range(50)), (0, 1000, 3000, "x" * 100))
        lines = many.table("Operations", 1.5).splitlines()
        self.assertEqual(lines[0], "Operations, 1.50 s")
        self.assertEqual(lines[2].split(), ["Name", "Own", "ms", "Own", "%", "Total", "ms", "Calls", "Average", "us"])
        self.assertRegex(lines[3], r"^x{57}\.\.\. +3\.000 +98\.4% +3\.000 +1 +3000\.0$")
        self.assertEqual(len(lines), 3 + 40 + 1)
        self.assertEqual(lines[-1], "and 11 more")
        self.assertEqual(spans().table("Operations", 1), "")


class Form(unittest.TestCase):
    def test_events_are_read_one_by_one(self):
        events = [{"name": "a [\"]", "ph": "X", "args": {"x": [1]}}, {"ph": "M"}, {}]
        for text in (json.dumps({"metadata": {"a": []}, "traceEvents": events}), json.dumps(events, indent=2)):
            self.assertEqual(list(trace.trace_events(text)), events)
        for text in ("", "{}", "[]", '{"traceEvents":[]}'):
            self.assertEqual(list(trace.trace_events(text)), [])

    def test_a_packed_trace_is_read_and_too_large_a_one_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json.gz")
            events = [{"name": f"é {n}", "ph": "X", "ts": n, "dur": 0.5} for n in range(3)]
            with gzip.open(path, "wt", encoding="utf-8") as file:
                json.dump({"traceEvents": events}, file)
            self.assertEqual(json.loads(trace.read_trace(path))["traceEvents"], events)
            whole, trace.TRACE_BYTES = trace.TRACE_BYTES, 100
            try:
                self.assertIsNone(trace.read_trace(path))
            finally:
                trace.TRACE_BYTES = whole

    def test_what_counts_of_jax(self):
        def named(kind, name, process, thread=0):
            return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}

        def span(name, process, thread, duration, **arguments):
            return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": 0.0, "dur": duration, "args": arguments}

        host = [named("process_name", "/host:CPU", 1), span("PjitFunction(f)", 1, 1, 9), span("dot", 1, 2, 4, hlo_module="jit_f"),
                span("end: dot", 1, 2, 1), span("ThreadpoolListener::Record", 1, 2, 1), {}]
        programs, rest = jax_trace.spans_of(host)
        self.assertEqual(programs.rows(), [("dot (jit_f)", 4, 4, 1)])
        self.assertEqual(rest.rows(), [("PjitFunction(f)", 9, 9, 1)])


class Clock:
    """Stands in for `time` where one thread records and waits: no result depends on how busy the machine is."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Timed(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        patch = mock.patch.object(trace, "time", self.clock)
        patch.start()
        self.addCleanup(patch.stop)


class Recorded(trace.Recording):
    """Of a framework that does `rate` operations a second, and knows no other profiler than `theirs_is_on`."""

    NAME, AMOUNT, LITTLE = "test", 1000, 1

    def __init__(self, seconds=0.2, rate=0.0):
        super().__init__(seconds)
        self.rate = rate
        self.did = []
        self.theirs_is_on = False
        self.is_ready = True
        self.arm()

    def hook(self):
        self.did.append("hook")

    def unhook(self):
        self.did.append("unhook")

    def ready(self):
        return self.is_ready

    def why_not(self, waited):
        return "not ready"

    def start(self):
        if self.theirs_is_on:
            return False
        self.did.append("start")
        self.began = trace.time.monotonic()
        return True

    def stop(self):
        self.did.append("stop")
        return self.rate * (trace.time.monotonic() - self.began)

    def amount(self, recorded):
        return recorded

    def until(self, state):
        end = trace.time.monotonic() + 10
        while self.state != state and trace.time.monotonic() < end:
            self.tick()
            trace.time.sleep(0.01)


class Who(Timed):
    ENDING = threading.Event()

    def wait(self, recording, seconds=20.0):
        why = recording.wait(self.clock.now + seconds, self.ENDING)
        recording.disarm()
        self.assertEqual(recording.did[-1], "unhook")
        self.assertEqual(recording.did.count("start"), recording.did.count("stop"))
        return why

    def test_a_look_then_as_long_as_was_asked_for(self):
        recording = Recorded(seconds=0.3, rate=100)
        self.assertEqual(self.wait(recording), "")
        self.assertEqual(recording.did, ["hook", "start", "stop", "start", "stop", "unhook"])
        self.assertGreaterEqual(recording.recorded_seconds, 0.3)

    def test_as_long_as_there_is_room_for(self):
        recording = Recorded(seconds=5, rate=5000)
        self.assertEqual(self.wait(recording), "")
        self.assertLess(recording.recorded_seconds, 2)

    def test_one_that_begins_to_do_more_is_recorded_again(self):
        recording = Recorded(seconds=0.5, rate=10)
        recording.until("records")
        recording.rate = 10_000
        self.assertEqual(self.wait(recording), "")
        self.assertEqual(recording.did.count("start"), 3)
        self.assertLess(recording.recorded, 2000)

    def test_one_that_grows_is_ended(self):
        recording = Recorded(seconds=30, rate=10)
        recording.until("records")
        recording.memory = -(1 << 40)
        self.assertEqual(self.wait(recording), "")
        self.assertLess(recording.recorded_seconds, 10)

    def test_one_that_does_nothing_yet_is_looked_at_again(self):
        recording = Recorded(rate=0)
        end = self.clock.now + 10
        while recording.did.count("start") < 3 and self.clock.now < end:
            recording.tick()
            self.clock.sleep(0.01)
        recording.rate = 100
        self.assertEqual(self.wait(recording), "")
        self.assertGreater(recording.recorded, 0)

    def test_the_script_s_own_is_waited_for_and_begins_in_ours(self):
        recording = Recorded(rate=100)
        recording.theirs_is_on = True
        self.assertEqual(self.wait(recording, 0.5), recording.others_words)
        self.assertEqual(recording.did, ["hook", "unhook"])
        for state, why in (("looks", True), ("looked", True), ("records", False)):
            recording = Recorded(rate=100)
            recording.until(state)
            self.assertEqual(recording.theirs_begins(lambda made=recording: made.did[-1]), "stop", "ours is over by then")
            self.assertEqual(self.wait(recording), recording.others_words if why else "", state)
        recording = Recorded(rate=100)
        recording.theirs_begins(recording.tick)  # which must not begin then
        self.assertEqual(recording.did, ["hook"])
        self.assertEqual(self.wait(recording), "")

    def test_what_goes_wrong_is_the_reason(self):
        recording = Recorded(rate=100)

        def fails():
            raise RuntimeError("ALREADY_EXISTS: Another profiling session active.")

        recording.until("looks")
        recording.did.append("stop")
        recording.stop = fails
        self.assertEqual(self.wait(recording), recording.others_words)
        recording = Recorded()
        recording.start = lambda: 1 // 0
        self.assertEqual(self.wait(recording), "test's profiler: ZeroDivisionError: integer division or modulo by zero")
        recording = Recorded()
        recording.is_ready = False
        self.assertEqual(self.wait(recording, 0.2), "not ready")

    def test_one_that_is_given_up_is_stopped(self):
        recording = Recorded(seconds=30, rate=10)
        recording.until("records")
        self.assertRegex(self.wait(recording, 0.2), "^test's profiler did not end after ")

    def test_a_fork_leaves_its_parent_s_alone(self):
        recording = Recorded(rate=100)
        recording.until("looks")
        recording.process = -1
        self.assertEqual(recording.theirs_begins(lambda: "made"), "made")
        self.assertEqual(recording.did, ["hook", "start"])
        recording.process = os.getpid()
        self.wait(recording)


class Jax(Timed):
    """JAX as far as it is looked at, with a session of the test's own."""

    def setUp(self):
        super().setUp()
        self.made = []

        class ProfilerSession:
            def __init__(session, *options):
                self.made.append(options)

            def stop(session):
                return b"x" * jax_trace.Recording.LITTLE

        self.native = types.SimpleNamespace(ProfilerSession=ProfilerSession, ProfileOptions=types.SimpleNamespace)
        self.bridge = types.SimpleNamespace(_backend_lock=threading.Lock(), _backends={})
        self.jax = types.SimpleNamespace(__version_info__=(0, 10, 2))
        modules = {"jax": self.jax, "jax._src.xla_bridge": self.bridge,
                   "jax._src.profiler": types.SimpleNamespace(
                       _profiler=self.native, _profile_state=types.SimpleNamespace(profile_session=None))}
        self.addCleanup(lambda: [sys.modules.pop(name) for name in modules])
        sys.modules.update(modules)

    def wait(self, seconds=5.0):
        recording = jax_trace.Recording(0.2)
        theirs = self.native.ProfilerSession
        recording.arm()
        why = recording.wait(self.clock.now + seconds, threading.Event())
        recording.disarm()
        self.assertIs(self.native.ProfilerSession, theirs)
        return why

    def test_it_is_recorded_on_processors(self):
        self.bridge._backends["cpu"] = None
        self.assertEqual(self.wait(), "")
        self.assertEqual([options[0].python_tracer_level for options in self.made], [0, 0])

    def test_it_is_not_begun_with_accelerators_nor_before_jax_has(self):
        with self.bridge._backend_lock:
            self.assertRegex(self.wait(0.3), "^jax has not begun to compute within")
        self.assertRegex(self.wait(0.3), "^jax has not begun to compute within")
        for name in ("cuda", "rocm", "tpu"):
            self.bridge._backends.update({"cpu": None, name: None})
            self.assertRegex(self.wait(), "^jax's profiler can end a training beside which it is started")
        self.assertEqual(self.made, [])

    def test_tensorflow_is_not_imported(self):
        self.bridge._backends["cpu"] = None
        self.jax.__version_info__ = (0, 9, 1)
        self.assertNotIn("tensorflow", sys.modules)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tensorflow.py").touch()
            sys.path.insert(0, folder)
            try:
                self.assertRegex(self.wait(), "would import TensorFlow")
                self.assertEqual(self.made, [])
                sys.modules["tensorflow"] = types.ModuleType("tensorflow")
                self.assertEqual(self.wait(), "")
            finally:
                sys.path.remove(folder)
                sys.modules.pop("tensorflow", None)


if __name__ == "__main__":
    unittest.main()
