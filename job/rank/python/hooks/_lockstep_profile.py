"""What this process does for some seconds, because `python3 -m lockstep.profile` asks.

Imported when the first question comes, never before. The question is a file beside the report socket,
profile.<pid>.ask: {"id", "seconds", "until" (time.monotonic())}; SIGURG says that it is there: a process that does not
catch that signal never notices it. The answer is profile.<pid>.done, renamed into its place when all is written:
{"id", "files": [name, ...], "missing": [{"what", "why"}, ...], "steps", "samples"}. The files are

  profile.<pid>.stacks.txt      where its Python threads were, every 10 ms: folded stacks, as flamegraph.pl reads them
  profile.<pid>.trace.json.gz   for Perfetto and chrome://tracing: torch's whole steps, or some seconds of jax
  profile.<pid>.operations.txt  the operations that took longest, from the same

Which framework's is _Choice's; how each is recorded, its _lockstep_trace_<framework>'s. The script's own profiler goes
first everywhere, and nothing is imported or begun that the script has not.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
import time

_EVERY = 0.01  # seconds between two samples
_FILES_SECONDS = 10.0  # kept for the files before who asks gives up
_STACKS = 20_000  # different ones
_FRAMES = 128  # of a stack
_EXIT_SECONDS = 10.0  # at most, from the end of the script to the end of what is recorded
_FRAMEWORKS = ("torch", "jax")  # the first that is imported
# Paddle's profiler frees, at its start and its stop, the memory that other threads write what they compute into: with two
# such threads malloc aborts within fifty starts, and Paddle's own handler of that hangs. Some are C++'s, which Python cannot see.
_PADDLE = ("paddle's profiler can end a process in which another thread computes: only the script knows when to use "
           "paddle.profiler")

_busy = threading.Lock()
_ending = threading.Event()  # the process does


def answer(folder):
    """In a thread of its own."""
    path = os.path.join(folder, f"profile.{os.getpid()}.ask")
    try:
        with open(path, encoding="utf-8") as file:
            asked = json.load(file)
        seconds = min(max(float(asked["seconds"]), 0.1), 60.0)
        which = str(asked["id"])
        until = float(asked["until"])
        late = time.monotonic() + seconds > until  # the signal waited until a long call was over
    except (OSError, ValueError, KeyError, TypeError):
        return
    if late or _ending.is_set():
        return
    # Who asked for the one under way may be gone (lockstepd was started again): this one comes after it.
    spare = until - _FILES_SECONDS - seconds - time.monotonic()
    if _busy.acquire(timeout=max(spare, 0.0)):
        _answer(folder, which, seconds, until)


def _answer(folder, which, seconds, until):
    base = os.path.join(folder, f"profile.{os.getpid()}.")
    done = {"id": which, "files": [], "missing": [], "steps": 0, "samples": 0}

    def missing(what, why):
        done["missing"].append({"what": what, "why": why})

    recording = _Choice(seconds)
    atexit.register(_ends, os.getpid())
    try:
        done["samples"], text = _sample(seconds, recording.tick)
        _write(base + "stacks.txt", text)
        done["files"].append("stacks.txt")
        why = recording.record(until - _FILES_SECONDS, base, done["files"])
        done["steps"] = recording.steps
        if why:
            missing("trace", why)
    except Exception as error:
        missing("all", f"{type(error).__name__}: {error}")
    finally:
        with contextlib.suppress(Exception):
            recording.disarm()
        try:
            _write(base + "done", json.dumps(done))
        except OSError:
            pass
        atexit.unregister(_ends)
        _busy.release()


def _ends(process):
    """Before the interpreter is taken down: a thread that comes back from C++ after that would end in std::terminate()."""
    if os.getpid() != process:
        return
    _ending.set()
    _busy.acquire(timeout=_EXIT_SECONDS)


def load(name):
    """A module of this folder, which is not among those of the script's imports."""
    module = sys.modules.get(name)
    if module is None:
        from importlib import util

        spec = util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), name + ".py"))
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return module


def _is_imported(name):
    """Whole: one that is being imported now would be waited for."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


class _Choice:
    """Which framework's operations: of the first that is imported, at the latest when the samples have been taken. torch
    goes first. Where it is imported and makes no step, in a script of another's, that one comes after it."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.steps = 0
        self.chosen = None

    def tick(self):
        if self.chosen is None:
            self.chosen = self._of(_FRAMEWORKS)
        else:
            self.chosen.tick()

    def _of(self, frameworks):
        for name in frameworks:
            if _is_imported(name):
                load("_lockstep_trace")
                recording = load("_lockstep_trace_" + name).Recording(self.seconds)
                recording.arm()
                return recording
        return None

    def record(self, until, base, files):
        """Why there is no trace; "" = there is."""
        if self.chosen is None:
            return _PADDLE if _is_imported("paddle") else "this process has not imported torch or jax yet"
        why = self._record(until, base, files)
        if why and self.chosen.made_no_step and time.monotonic() + self.seconds < until:
            self.chosen.disarm()
            second = self._of(_FRAMEWORKS[1:])
            if second is not None and second.ready():
                self.chosen = second
                return self._record(until, base, files)
            if second is not None:
                second.disarm()
            if _is_imported("paddle"):
                return _PADDLE
        return why

    def _record(self, until, base, files):
        why = self.chosen.wait(until, _ending)
        self.steps = self.chosen.steps
        try:
            return why or self.chosen.save(base, files, _write)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def disarm(self):
        if self.chosen is not None:
            self.chosen.disarm()


def _write(path, text):
    try:
        with open(path + ".new", "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(path + ".new", path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path + ".new")  # of a full disk nothing is taken that nobody reads
        raise


# --- where Python is -------------------------------------------------------------------------------

def _sample(seconds, tick):
    own = threading.get_ident()
    counts = {}
    samples = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and not _ending.is_set():
        tick()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident == own:
                continue
            key = [names.get(ident, "thread")]
            calls = []
            while frame is not None and len(calls) < _FRAMES:
                code = frame.f_code
                calls.append((code.co_name, code.co_filename, frame.f_lineno))
                frame = frame.f_back
            key = (key[0], tuple(calls))
            if key in counts or len(counts) < _STACKS:
                counts[key] = counts.get(key, 0) + 1
        samples += 1
        time.sleep(_EVERY)
    lines = []
    for (name, calls), count in sorted(counts.items(), key=lambda item: -item[1]):
        words = [name, *(f"{call} ({os.path.basename(file)}:{line})" for call, file, line in reversed(calls))]
        lines.append(";".join(word.replace(";", ",").replace("\n", " ") for word in words) + f" {count}\n")
    return samples, "".join(lines)
