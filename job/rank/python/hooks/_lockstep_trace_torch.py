"""What torch does for some seconds: torch.profiler over whole steps. Loaded by _lockstep_profile while it answers, never
before.

A step is what an optimizer's step() ends. Each optimizer of torch runs its step inside
torch.autograd.profiler.record_function, looked up when it is called: that name stands for a subclass while somebody
asks. torch's profiler sees the thread that starts it, so it is started and stopped there, between two steps.
The script's own profiler goes first: torch has one at a time, a second one would end the first one's recording, whose
own stop() would then raise in the training. One that is on is waited for, and one that begins ends ours.
One step is looked at first, for how many operations it has: so many steps are recorded that they are not too many.
"""

import os
import threading
import time

_STEP_SECONDS = 10.0  # so long is the first step's end waited for
_OPERATIONS = 40_000  # recorded at most; torch 1.13 spends 60 us on each when the recording ends
_TRACE_BYTES = 64 << 20  # of the trace, before it is packed
_ROWS = 40  # of the table

_OTHERS = "the script's own torch profiler is on"


def _other_profiler_is_on(torch):
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(enabled is not None and enabled())


class Recording:
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

    def tick(self):
        pass  # what it does, it does when a step ends

    @property
    def made_no_step(self):
        return self.profiler is None and self.end == 0.0 and not self.others and not self.why

    def wait(self, until, ending):
        """Why there is nothing; "" = there is. The samples were taken meanwhile."""
        first = self.armed + max(self.seconds, _STEP_SECONDS)
        while not self.finished.is_set():
            now = time.monotonic()
            if ending.is_set():
                return "the process ends"
            if self.others and now >= min(first, until):
                return _OTHERS
            if self.profiler is None and self.end == 0.0 and now >= first:
                return f"no step ended within {now - self.armed:.0f} s: lockstep evidence --now tells where it is"
            if now >= until:
                return f"a step has not ended after {now - self.armed:.0f} s: lockstep evidence --now tells where it is"
            self.finished.wait(0.1)
        return self.why

    def save(self, base, files, write):
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
        write(base + "operations.txt",
              f"{self.steps} steps\n" + averages.table(sort_by=sort, row_limit=_ROWS))
        files.append("operations.txt")
        return ""
