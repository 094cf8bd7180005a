"""What this process does for some seconds, because `python3 -m lockstep.profile` asks.

Imported when the first question comes, never before. The question is a file beside the report socket,
profile.<pid>.ask: {"id", "seconds", "until" (time.monotonic())}; SIGURG says that it is there: a process that does not
catch that signal never notices it. The answer is profile.<pid>.done, renamed into its place when all is written:
{"id", "files": [name, ...], "missing": [{"what", "why"}, ...], "steps", "samples"}. The files are

  profile.<pid>.stacks.txt      where its Python threads were, every 10 ms: folded stacks, as flamegraph.pl reads them
  profile.<pid>.trace.json.gz   torch.profiler's trace of whole steps, for Perfetto and chrome://tracing
  profile.<pid>.operations.txt  the operations that took longest, from the same

A step is what an optimizer's step() ends. Each optimizer of torch runs its step inside
torch.autograd.profiler.record_function, looked up when it is called: that name stands for a subclass while somebody
asks. torch's profiler sees the thread that starts it, so it is started and stopped there, between two steps.
The script's own profiler goes first: torch has one at a time, a second one would end the first one's recording, whose
own stop() would then raise in the training. One that is on is waited for, and one that begins ends ours.
One step is looked at first, for how many operations it has: so many steps are recorded that they are not too many.
"""

import contextlib
import json
import os
import sys
import threading
import time

_EVERY = 0.01  # seconds between two samples
_STEP_SECONDS = 10.0  # so long is the first step's end waited for
_FILES_SECONDS = 10.0  # kept for the files before who asks gives up
_OPERATIONS = 40_000  # recorded at most; torch 1.13 spends 60 us on each when the recording ends
_TRACE_BYTES = 64 << 20  # of the trace, before it is packed
_STACKS = 20_000  # different ones
_FRAMES = 128  # of a stack
_ROWS = 40  # of the table

_OTHERS = "the script's own torch profiler is on"

_busy = threading.Lock()


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
    if late:
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

    recording = None
    try:
        if "torch" in sys.modules:
            recording = _Recording(seconds)
            recording.arm()
        done["samples"], text = _sample(seconds)
        _write(base + "stacks.txt", text)
        done["files"].append("stacks.txt")
        if recording is None:
            missing("trace", "this process has not imported torch")
        else:
            why = recording.wait(until - _FILES_SECONDS)
            done["steps"] = recording.steps
            if not why:
                why = recording.save(base, done["files"])
            if why:
                missing("trace", why)
    except Exception as error:
        missing("all", f"{type(error).__name__}: {error}")
    finally:
        if recording is not None:
            recording.disarm()
        _busy.release()
        try:
            _write(base + "done", json.dumps(done))
        except OSError:
            pass


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

def _sample(seconds):
    own = threading.get_ident()
    counts = {}
    samples = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
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


# --- what torch does -------------------------------------------------------------------------------

def _other_profiler_is_on(torch):
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(enabled is not None and enabled())


class _Recording:
    """arm(), wait(), save(), disarm(): the answering thread. ended(): whoever ends a step."""

    def __init__(self, seconds):
        self.process = os.getpid()
        self.seconds = seconds
        self.steps = 0
        self.finished = threading.Event()
        self.why = ""
        self.profiler = None
        self.looks = False  # at the one step before the recording
        self.thread = 0
        self.most = 0
        self.end = 0.0
        self.given_up = False
        self.before = None
        self.starts = False  # the profiler that torch prepares is ours
        self.others = False  # the script's own was on when a step ended
        self.lock = threading.Lock()

    def arm(self):
        import torch

        recording, before = self, torch.autograd.profiler.record_function

        class record_function(before):
            def __exit__(self, *arguments):
                out = super().__exit__(*arguments)
                if str(getattr(self, "name", "")).startswith("Optimizer.step#"):
                    recording.ended()
                return out

        record_function.__module__, record_function.__qualname__ = before.__module__, before.__qualname__
        self.armed = time.monotonic()
        torch.autograd.profiler.record_function = record_function
        profile = torch.autograd.profiler.profile
        prepare = getattr(profile, "_prepare_trace", None)  # all of them go through it, torch 1.13 to 2.x

        def _prepare_trace(*arguments, **named):
            recording.make_way()
            return prepare(*arguments, **named)

        self.before = (before, record_function, prepare, _prepare_trace)
        if prepare is not None:
            profile._prepare_trace = _prepare_trace

    def disarm(self):
        """One that records still is stopped at the end of its step, whenever that is."""
        import torch

        with self.lock:
            self.given_up = True
            recording = self.profiler is not None and not self.finished.is_set()
        if not recording:
            self._restore(torch)

    def _restore(self, torch):
        if self.before is None:
            return
        if torch.autograd.profiler.record_function is self.before[1]:
            torch.autograd.profiler.record_function = self.before[0]
        profile = torch.autograd.profiler.profile
        if getattr(profile, "_prepare_trace", None) is self.before[3]:
            profile._prepare_trace = self.before[2]

    def make_way(self):
        """The script begins to profile: never raises into the training."""
        if self.starts or self.finished.is_set() or os.getpid() != self.process:
            return
        try:
            with self.lock:
                if self.profiler is None or threading.get_ident() != self.thread:
                    return
                self.profiler.stop()
                if self.looks or self.steps == 0:
                    self.why = _OTHERS
                self.finished.set()
                if self.given_up:
                    import torch

                    self._restore(torch)
        except Exception as error:
            self.why = f"torch's profiler: {type(error).__name__}: {error}"
            self.finished.set()

    def ended(self):
        """A step has: never raises into the training."""
        if self.finished.is_set() or os.getpid() != self.process:
            return
        try:
            with self.lock:
                self._ended()
        except Exception as error:
            self.why = f"torch's profiler: {type(error).__name__}: {error}"
            self.finished.set()

    def _ended(self):
        import torch

        if self.profiler is None:
            if not self.given_up and not self.finished.is_set():
                self.others = _other_profiler_is_on(torch)
                if self.others:
                    return
                self.thread = threading.get_ident()
                self.looks = True
                self._start(torch)
            return
        if threading.get_ident() != self.thread:
            return  # of another thread, which the profiler does not see
        self.steps += 1
        if self.looks:
            self.profiler.stop()
            self.most = max(1, _OPERATIONS // max(1, len(self.profiler.events())))
            self.looks, self.steps = False, 0
            self.profiler = None
            if self.given_up:
                self._restore(torch)
                self.finished.set()
                return
            self.end = time.monotonic() + self.seconds
            self._start(torch)
        elif self.given_up or self.steps >= self.most or time.monotonic() >= self.end:
            self.profiler.stop()
            self.finished.set()
            if self.given_up:
                self._restore(torch)

    def _start(self, torch):
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(activities=activities)
        self.starts = True
        try:
            profiler.start()
        finally:
            self.starts = False
        self.profiler = profiler

    def wait(self, until):
        """Why there is nothing; "" = there is. The samples were taken meanwhile."""
        first = self.armed + max(self.seconds, _STEP_SECONDS)
        while not self.finished.is_set():
            now = time.monotonic()
            if self.others and now >= min(first, until):
                return _OTHERS
            if self.profiler is None and self.end == 0.0 and now >= first:
                return f"no step ended within {now - self.armed:.0f} s: lockstep evidence --now tells where it is"
            if now >= until:
                return f"a step has not ended after {now - self.armed:.0f} s: lockstep evidence --now tells where it is"
            self.finished.wait(0.1)
        return self.why

    def save(self, base, files):
        import gzip

        raw = base + "trace.json"
        try:
            self.profiler.export_chrome_trace(raw)
            size = os.path.getsize(raw)
            if size > _TRACE_BYTES:
                return f"the trace has {size >> 20} MiB, {_TRACE_BYTES >> 20} are kept at most"
            with open(raw, "rb") as source, gzip.open(base + "trace.json.gz", "wb", 5) as packed:
                for piece in iter(lambda: source.read(1 << 20), b""):
                    packed.write(piece)
        finally:
            try:
                os.unlink(raw)
            except OSError:
                pass
        files.append("trace.json.gz")
        sort = "self_cpu_time_total"
        averages = self.profiler.key_averages()
        for name in ("self_cuda_time_total", "self_device_time_total"):
            if any(getattr(one, name, 0) > 0 for one in averages):
                sort = name
        _write(base + "operations.txt",
               f"{self.steps} steps\n" + averages.table(sort_by=sort, row_limit=_ROWS))
        files.append("operations.txt")
        return ""
