"""What Lockstep's Python hooks cost a rank, and how soon they say where every rank hangs.

measure_hooks: the start of `python3 -c pass` and 20,000 cheap steps, with the hooks' folder on PYTHONPATH and
without, in turns; user and system time by getrusage. An agent's socket is there, so nothing is left out. The steps catch
an exception, print and import, which is what the hooks stand beside.

measure_stacks: eight ranks of one real job hang in Python; their stacks are asked for over the API, and the file of the
last one is on disk. Then py-spy looks at the same eight processes, one after another and all at once: that of PATH, else
PyPI's in a temporary folder, else none. The agent finds no debugger (its PATH is empty), so that nothing follows which
would change the next round.
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HOOKS = SOURCE / "job" / "rank" / "python" / "hooks"
STEPS = 20_000
RANKS = 8
LOOKS = 12  # of one generation; 63 are allowed

STEP_SCRIPT = f"""
import os, resource, sys
def step(number):
    import math
    try:
        raise ValueError(number)
    except ValueError as error:
        loss = math.exp(-error.args[0] / {STEPS})
    print("step", number, "loss", loss, file=out)
out = open(os.devnull, "w")
for number in range(1000):
    step(number)
began = resource.getrusage(resource.RUSAGE_SELF)
for number in range({STEPS}):
    step(number)
ended = resource.getrusage(resource.RUSAGE_SELF)
print(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
"""

HANG_SCRIPT = """
import sys, threading
def wait_for_data_loader():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def spin():
    while True:
        pass
print("step=1 loss=0.5", flush=True)
{"waits": wait_for_data_loader, "spins": spin}[sys.argv[1]]()
"""


def python():
    import harness
    return harness.PYTHON


@contextlib.contextmanager
def listening():
    """{what it is: the environment of a rank's Python}; somebody takes what the hooks tell."""
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        hooks, bare = pathlib.Path(folder) / "hooks", pathlib.Path(folder) / "bare"
        for one in (hooks, bare):
            shutil.copytree(HOOKS, one, ignore=shutil.ignore_patterns("__pycache__"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
            agent.bind(f"{folder}/r00000.sock")
            agent.listen(128)
            plain = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP", "PYTHON"))}
            plain.update(LOCKSTEP_SOCKET=f"{folder}/r00000.sock", LOCKSTEP_WORLD_SIZE="8")
            yield {"without the hooks": plain, "with the hooks": {**plain, "PYTHONPATH": str(hooks)},
                   # Installed by root and never started by root: nobody may write the bytecode beside them.
                   "with the hooks, no bytecode of theirs": {**plain, "PYTHONPATH": str(bare), "PYTHONDONTWRITEBYTECODE": "1"}}


def start_once(environment):
    """(seconds on the clock, seconds of user and system time) of one interpreter that does nothing."""
    began = time.perf_counter()
    process = subprocess.Popen([python(), "-c", "pass"], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = status
    if status != 0:
        raise RuntimeError(f"python3 -c pass: status {status}")
    return took, usage.ru_utime + usage.ru_stime


def measure_hooks(table, options):
    with listening() as environments:
        for environment in environments.values():  # caches, bytecode
            start_once(environment)
        starts = {name: [] for name in environments}
        for _ in range(options.rounds * 40):
            for name, environment in environments.items():
                starts[name].append(start_once(environment))
        steps = {name: [] for name in list(environments)[:2]}  # once it runs, the bytecode is the same
        for _ in range(options.rounds * 2):
            for name in steps:
                environment = environments[name]
                done = subprocess.run([python(), "-c", STEP_SCRIPT], env=environment, capture_output=True, text=True,
                                      check=True)
                steps[name].append(float(done.stdout))
    plain, *others = environments
    for index, what in ((0, "python3 -c pass, start to end"), (1, "  its user and system time")):
        both = {name: [1000 * one[index] for one in values] for name, values in starts.items()}
        table.add(f"{what}: {plain}", both[plain], "ms")
        for name in others:
            table.add(f"{what}: {name}", both[name], "ms")
            table.add("    more, in medians", [statistics.median(both[name]) - statistics.median(both[plain])], "ms", 5,
                      higher_is_better=False)
    both = {name: [1e6 * one / STEPS for one in values] for name, values in steps.items()}
    for name, values in both.items():
        table.add(f"a cheap step, user and system time: {name}", values, "µs")
    table.add("  with / without, in medians", [statistics.median(both[others[0]]) / statistics.median(both[plain])], "×")


# --- stacks ----------------------------------------------------------------------------------------

def py_spy(folder):
    """(its path, the environment that it needs), or (None, why)."""
    if found := os.environ.get("LOCKSTEP_PY_SPY") or shutil.which("py-spy"):
        return found, None
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "py-spy"],
                          capture_output=True, text=True, check=False)
    found = pathlib.Path(folder) / "bin" / "py-spy"
    return (str(found), None) if found.exists() else (None, (done.stderr.strip().splitlines() or ["no package"])[-1])


def hang(service, kind, folder):
    """The job whose ranks hang, and their processes."""
    script = folder / "hang.py"
    script.write_text(HANG_SCRIPT)
    job = service.submit({"name": "hang", "framework": "command", "command": [python(), str(script), kind],
                          "resources": {"nodes": 1, "ranks_per_node": RANKS}})["id"]
    deadline = time.monotonic() + 120
    while len(service.series(job)) < RANKS:
        if time.monotonic() > deadline:
            raise RuntimeError("the ranks do not begin")
        time.sleep(0.05)
    own = [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit() and ours(path, script, kind)]
    if len(own) != RANKS:
        raise RuntimeError(f"{len(own)} processes, not {RANKS}")
    return job, own


def ours(path, script, kind):
    try:
        return (path / "cmdline").read_bytes().split(b"\0")[1:3] == [str(script).encode(), kind.encode()]
    except OSError:
        return False


def look(service, job):
    """Milliseconds from the request to the moment when the last rank's stack is in its file."""
    before = len([event for event in service.events(job) if event["kind"] == "evidence_taken"])
    began = time.time()
    status, answer = service.api("POST", f"/v1/jobs/{job}/evidence")
    if status not in (200, 202):
        raise RuntimeError(f"{status} {answer}")
    deadline = time.monotonic() + 60
    while len([event for event in service.events(job) if event["kind"] == "evidence_taken"]) == before:
        if time.monotonic() > deadline:
            raise RuntimeError("no evidence within 60 s")
        time.sleep(0.02)
    files = list((service.data / "runs" / job / "a1").rglob("python.txt"))
    wrong = [path for path in files if "hang.py" not in path.read_text()]
    if len(files) != RANKS or wrong:
        raise RuntimeError(f"{len(files)} ranks answered, {len(wrong)} of them with nothing, not {RANKS}")
    return 1000 * (max(path.stat().st_mtime for path in files) - began)


def peer(program, pids, together):
    """Milliseconds of py-spy for all processes."""
    began = time.perf_counter()
    running = []
    for pid in pids:
        running.append(subprocess.Popen([program, "dump", "--pid", str(pid)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True))
        if not together:
            running[-1].wait()
    said = [process.communicate()[0] for process in running]
    took = 1000 * (time.perf_counter() - began)
    silent = [text for text in said if "hang.py" not in text]
    if silent:
        raise RuntimeError(f"py-spy: {silent[0][-200:]}")
    return took


def measure_stacks(table, options, daemon):
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        program, why = py_spy(folder / "peer")
        if program is None:
            table.note(f"stacks: without a peer: py-spy is not to be had: {why}")
        for kind in ("waits", "spins"):
            figures = {"lockstep": [], "py-spy, one after another": [], "py-spy, all at once": []}
            with contextlib.ExitStack() as stack:
                with unittest.mock.patch.dict(os.environ, PATH=str(folder)):
                    service = stack.enter_context(daemon("--local-cores", str(RANKS)))
                job, pids = hang(service, kind, folder)
                for _ in range(max(LOOKS, options.rounds)):
                    figures["lockstep"].append(look(service, job))
                    if program is None:
                        continue
                    for how, together in (("py-spy, one after another", False), ("py-spy, all at once", True)):
                        try:
                            figures[how].append(peer(program, pids, together))
                        except RuntimeError as error:
                            table.note(f"stacks: {json.dumps(str(error))}")
            ours_name, *others = figures
            what = f"stacks of {RANKS} ranks, each {kind} in Python"
            table.add(f"{what}: request to the last one on disk", figures[ours_name], "ms", 200, higher_is_better=False)
            for how in others:
                if figures[how]:
                    table.add(f"  {how}", figures[how], "ms")
                    table.add("    of Lockstep's", [statistics.median(figures[how]) /
                                                     statistics.median(figures[ours_name])], "×")
