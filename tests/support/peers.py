"""Other launchers, for the benches beside them: where they are installed, how they are started, and that nothing of them is
left. Ray Train and torchft need a cluster and a lighthouse, which are context managers here."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import harness

ENVIRONMENTS = pathlib.Path(os.path.abspath(os.environ.get("LOCKSTEP_FRAMEWORKS", harness.SOURCE / "build" / "frameworks")))
START_SECONDS = 60
END_SECONDS = 10


class CannotRun(Exception):
    """A peer that this machine cannot run: why."""


def installed(name):
    """The Python of an environment of deploy/install-frameworks; None if it is not there, or half."""
    # What is written last.
    return ENVIRONMENTS / name / "bin" / "python" if (ENVIRONMENTS / name / "installed.txt").exists() else None


def python_of(name):
    """The same; CannotRun without it. `peers` lies over torch."""
    found = installed(name) if installed("torch") else None
    if not found:
        raise CannotRun("it is not installed (deploy/install-frameworks torch peers)")
    return found


def environment(**more):
    """What a peer is started with: nothing of Lockstep's, of Slurm's or of the Python that starts it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "SLURM", "PYTHON"))}
    return {**own, "OMP_NUM_THREADS": "1", **more}


def launched(command, folder, out, err=None, **more):
    """A process in `folder`, with environment(**more), in a session of its own, as Lockstep's ranks have: Linux shares the cores
    out by sessions. `out`, `err`: files, `out` for both without the second. CannotRun if it cannot be started."""
    try:
        return subprocess.Popen(command, stdout=out, stderr=err or out, env=environment(**more), start_new_session=True, cwd=folder)
    except OSError as error:
        raise CannotRun(f"it cannot be started: {error}") from None


def served(process, ask, what):
    """The answer of ask(), once there is one; CannotRun if the process ends before, or there is none in START_SECONDS."""
    try:
        harness.wait_until(lambda: ask() or process.poll() is not None, START_SECONDS, what)
    except AssertionError as error:
        raise CannotRun(str(error)) from None
    if not (answer := ask()):
        raise CannotRun(f"it ended with {process.poll()} before: {what}")
    return answer


def end(processes, folder):
    """Whatever came of them, they are over, and so is whoever works in their folder: torchrun starts each rank in a session of
    its own, and is given the time to end them."""
    for one in processes:
        if one.poll() is None:
            one.terminate()
    deadline = time.monotonic() + END_SECONDS
    for one in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(max(0, deadline - time.monotonic()))
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
    folder = pathlib.Path(folder).resolve()
    for link in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink() == folder:
                os.kill(int(link.parent.name), signal.SIGKILL)


@contextlib.contextmanager
def ray_cluster(cpus):
    """Its environment variables, for drivers that python_of("peers") runs."""
    # Short: Ray's sockets are below it.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as place:
        # Without the last its head drains for half a minute when it is told to end.
        more = {"RAY_TMPDIR": place, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_V2_ENABLED": "1",
                "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
        head = launched([python_of("peers"), "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--num-cpus={cpus}", "--port=0",
                         "--include-dashboard=false", f"--temp-dir={place}"], place, subprocess.DEVNULL, **more)
        try:
            found = served(head, lambda: [path.read_text(encoding="utf-8") for path in pathlib.Path(place).glob("ray_current_cluster")],
                           "Ray's cluster is there")
            # There may be other clusters on the machine.
            yield {**more, "RAY_ADDRESS": found[0].strip()}
        finally:
            end([head], place)


@contextlib.contextmanager
def torchft_lighthouse():
    """Its environment variable, for replica groups."""
    listens = re.compile(r"listening on: http://\S+:(\d+)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        path = pathlib.Path(place) / "log"
        with open(path, "wb") as log:
            lighthouse = launched([python_of("peers").parent / "torchft_lighthouse", "--bind", "127.0.0.1:0", "--min_replicas", "1",
                                   "--join_timeout_ms", "1000", "--quorum_tick_ms", "50"], place, log)
        try:
            port = served(lighthouse, lambda: listens.search(path.read_text(encoding="utf-8", errors="replace")),
                          "torchft's lighthouse listens").group(1)
            yield {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
        finally:
            end([lighthouse], place)
