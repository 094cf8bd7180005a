"""What JAX does for some seconds: a session of XLA's profiler, as jax.profiler.start_trace() makes one, and its
trace.json.gz. Loaded by _lockstep_profile while it answers, never before.

XLA has one session at a time and lets any thread begin and end it; its recorders take no lock that the training waits
for. jax.profiler refuses a second trace with an exception, in the script: so ours is none that jax.profiler knows of, and
ends when it makes another session. JAX's recorder of Python's calls stays off: it takes the place of the script's own
sys.setprofile() and slows every call down; Python's stacks are in stacks.txt.
Nothing here makes JAX begin: jax.distributed.initialize() must come before that, in the script.
On processors only. A session beside work on NVIDIA's GPUs ended trainings with CUDA_ERROR_ILLEGAL_ADDRESS or within
cuptiFinalize(), which takes CUPTI down while other threads are in it (github.com/jax-ml/jax/issues/40260): with accelerators,
those that nobody has tried as well, a trace is the script's to make.
"""

import os
import shutil
import sys
from importlib import machinery

import _lockstep_trace as trace


class Recording(trace.Recording):
    NAME = "jax"
    AMOUNT = 2 << 20  # bytes of XLA's own form: some 70,000 events, six times as many bytes in a trace
    LITTLE = 16 << 10

    def hook(self):
        self.module = sys.modules["jax._src.profiler"]
        if _imports_tensorflow():
            raise trace.Refused("the profiler of a JAX before 0.10 would import TensorFlow, which is installed and not in use")
        self.native = getattr(self.module, "_profiler", None) or self.module.xla_client.profiler
        recording, before = self, self.native.ProfilerSession

        class ProfilerSession(before):
            def __init__(self, *arguments, **named):
                recording.theirs_begins(lambda: super(ProfilerSession, self).__init__(*arguments, **named))

        ProfilerSession.__module__, ProfilerSession.__qualname__ = before.__module__, before.__qualname__
        self.before, self.ours = before, ProfilerSession
        self.native.ProfilerSession = ProfilerSession

    def unhook(self):
        if self.native.ProfilerSession is self.ours:
            self.native.ProfilerSession = self.before

    def ready(self):
        """Whether JAX has its devices; who is just looking for them holds the lock."""
        bridge = sys.modules.get("jax._src.xla_bridge")
        if bridge is None or not bridge._backend_lock.acquire(blocking=False):
            return False
        try:
            platforms = set(bridge._backends)
        finally:
            bridge._backend_lock.release()
        if platforms - {"cpu"}:
            raise trace.Refused("jax's profiler can end a training beside which it is started, except on processors: only the "
                                "script knows when to use jax.profiler")
        return bool(platforms)

    def why_not(self, waited):
        return f"jax has not begun to compute within {waited:.0f} s: lockstep evidence --now tells where it is"

    def start(self):
        if self.module._profile_state.profile_session is not None:
            return False
        options = self.native.ProfileOptions()
        options.python_tracer_level = 0
        if hasattr(options, "enable_hlo_proto"):
            options.enable_hlo_proto = False  # whole programs, which a trace does not show
        self.session = self.before(options)
        return True

    def stop(self):
        return self.session.stop()

    def amount(self, recorded):
        return len(recorded)

    def save(self, base, files, write):
        folder = base + "jax"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.mkdir(folder, 0o700)
            self.session.export(self.recorded, folder)
            self.recorded = self.session = None
            found = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names
                     if name.endswith(".trace.json.gz")]
            if not found:
                return "jax's profiler has written no trace.json.gz"
            text = trace.read_trace(found[0])
            if text is None:
                return trace.too_large()
            programs, host = spans_of(trace.trace_events(text))
            if not programs.names and not host.names:
                return (f"jax did nothing within {self.recorded_seconds:.1f} s: lockstep evidence --now tells where it is")
            os.replace(found[0], base + "trace.json.gz")
            files.append("trace.json.gz")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        tables = [programs.table("Operations of compiled programs", self.recorded_seconds),
                  host.table("The rest, on the host", self.recorded_seconds)]
        write(base + "operations.txt", "\n\n".join(text for text in tables if text))
        files.append("operations.txt")
        return ""


def _imports_tensorflow():
    """An older one turns TensorFlow's annotations on, and imports it for that if it can."""
    if "tensorflow" in sys.modules or getattr(sys.modules.get("jax"), "__version_info__", (0,)) >= (0, 10):
        return False
    return machinery.PathFinder.find_spec("tensorflow") is not None  # not by the script's finders


def spans_of(events):
    """Of compiled programs, and of the rest."""
    programs, host = trace.Spans(), trace.Spans()
    for event in trace.paced(events):
        name, arguments = str(event.get("name", "")), event.get("args") or {}
        if event.get("ph") != "X" or name.startswith(("end: ", "ThreadpoolListener::")):  # names, and marks of XLA's own
            continue
        program = arguments.get("hlo_module")
        (programs if program else host).add(
            (event.get("pid"), event.get("tid")), float(event.get("ts", 0)), float(event.get("dur", 0)),
            f"{name} ({program})" if program else name)
    return programs, host
