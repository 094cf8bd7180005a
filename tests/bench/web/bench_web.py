"""The web page at 10,000 ranks: a real lockstepd with simulated agents that report once a second, Debian's Chromium.

Steps at 10 Hz come from a relay in measure.mjs, behind lockstepd, which repeats the newest real one: "relay to pixel" is the
page's part of the way. What comes before it, from a simulated agent's batch through lockstepd to the relay, is a row of its own,
of the real steps at 1 Hz; an agent gathers rows for 20 ms before that. All of it shares the machine's cores.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[3]
# name in measure.mjs: (what, target, is more better)
ROWS = {
    "bundle": ("page, what it needs at first, gzip", 80, False),
    "overview": ("address to first lines of a 10,000-rank job", 1000, False),
    "ranks": ("address to its heatmap", 1000, False),
    "came_p50": ("10,000 ranks at 1 Hz, last batch of a step to lockstepd's event: p50", "", False),
    "came_p95": ("  p95", "", False),
    "emit_p50": ("10,000 ranks at 10 Hz, relay behind lockstepd to pixel: p50", "", False),
    "emit_p95": ("  p95", 150, False),
    "step_cost": ("  main thread for a step: heatmap, band, table", "", False),
    "interaction": ("a click that draws every chart anew", 100, False),
    "heap": ("JavaScript heap after that", 200, False),
    "tab": ("the tab's process, memory of its own", 200, False),
    "alone": ("lockstepd without a tab", "", False),
    "hundred": ("  with the streams of a hundred", "", False),
    "first_chart": ("address to first chart of a run of 4 ranks × 5,000 steps", "", False),
    "first_chart_bytes": ("  fetched for it", "", False),
    "tensorboard": ("  the same run's in TensorBoard", "", False),
    "tensorboard_bytes": ("  fetched for it", "", False),
}

REPORTER = """import lockstep, math, os
rank = int(os.environ["RANK"])
for step in range(1, 5001):
    lockstep.report(step=step, loss=2 * math.exp(-step / 900) + 0.1 + 0.01 * math.sin(step + rank), step_seconds=0.02, grad_norm=1 / step)
"""


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


def within(seconds, ask, what):
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise SystemExit(f"web: not within {seconds} s: {what}")
        time.sleep(0.2)
    return answer


def beside(options, daemon, prepared):
    """The same run here and in TensorBoard, looked at by the same browser in turn; the lines of beside.mjs."""
    program = os.environ.get("LOCKSTEP_TENSORBOARD") or shutil.which("tensorboard")
    if not program:
        print("web: TensorBoard beside it: SKIPPED: no tensorboard (pip install tensorboard; LOCKSTEP_TENSORBOARD)")
        return ""
    with daemon("--web-root", str(prepared / "dist"), "--local-cores", "64") as service, tempfile.TemporaryDirectory() as folder:
        job = service.submit({"name": "beside", "framework": "command", "command": [sys.executable, "-c", REPORTER],
                              "environment": {"PYTHONPATH": str(SOURCE / "job" / "rank" / "python")},
                              "resources": {"ranks_per_node": 4}})["id"]
        within(120, lambda: service.job(job)["state"] == "succeeded", "the run is over")
        subprocess.run([options.bin / "lockstep", "export", job, "--tensorboard", folder], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, LOCKSTEP_URL=service.url, LOCKSTEP_TOKEN=service.token))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        board = subprocess.Popen([program, "--logdir", folder, "--host", "127.0.0.1", "--port", str(port)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            # It has read the run before anybody looks.
            within(120, lambda: (answers(f"http://127.0.0.1:{port}/data/plugin/timeseries/tags") or {})
                   .get("scalars", {}).get("runTagInfo"), "TensorBoard has the run")
            return subprocess.run(["node", SOURCE / "tests" / "bench" / "web" / "beside.mjs", service.url, service.token, job,
                                   prepared, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
        finally:
            board.kill()
            board.wait()


def measure(table, options, daemon):
    program = options.bin / "bench_history"
    prepared = pathlib.Path(os.environ.get("LOCKSTEP_WEB_PREPARED", options.bin.parent / "tests" / "web" / "prepared"))
    missing = [str(path) for path in (program, pathlib.Path("/usr/bin/chromium"), prepared / "dist" / "index.html")
               if not path.exists()] + ([] if shutil.which("node") else ["node"])
    if missing:
        print(f"web: SKIPPED: {', '.join(missing)} not there (cmake -DLOCKSTEP_BENCH=ON; ctest -R web.prepare)")
        return
    sys.path.insert(0, str(SOURCE / "tests" / "bench" / "telemetry"))
    import simulated_job
    table.note(f"web: {os.cpu_count()} cores; load average at the start {os.getloadavg()[0]:.2f}")

    def with_page(*arguments):
        return daemon(*arguments, "--web-root", str(prepared / "dist"))

    with simulated_job.waiting_job(with_page, options.agents, 8) as (service, job, ticket):
        load = subprocess.Popen([program, "steady", service.url, ticket, str(options.agents), "8", "6", "600", "1", "0"],
                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            done = subprocess.run(["node", SOURCE / "tests" / "bench" / "web" / "measure.mjs", service.url, service.token, job,
                                   str(service.process.pid), prepared], capture_output=True, text=True, check=False)
        finally:
            load.kill()
            load.wait()
    if done.returncode != 0:
        raise SystemExit(f"web: {done.stderr}\n{done.stdout}")
    figures = {}
    for line in (done.stdout + beside(options, daemon, prepared)).splitlines():
        name, value, unit = line.split()
        figures.setdefault((name, unit), []).append(float(value))
    for (name, unit), values in figures.items():
        what, target, better = ROWS[name]
        table.add(what, values, unit, target, better)
