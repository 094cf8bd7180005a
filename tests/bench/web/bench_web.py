"""The web page at 10,000 ranks: a real lockstepd with simulated agents that report once a second, Debian's Chromium.

Steps at 10 Hz come from a relay in measure.mjs, which repeats the newest real one: lockstepd's own part of the way is not
in "emitted to seen". All of it shares the machine's cores.
"""

import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[3]
# name in measure.mjs: (what, target, is more better)
ROWS = {
    "bundle": ("page, all files, gzip", 80, False),
    "overview": ("address to first lines of a 10,000-rank job", 1000, False),
    "ranks": ("address to its heatmap", 1000, False),
    "emit_p50": ("10,000 ranks at 10 Hz, emitted to seen: p50", "", False),
    "emit_p95": ("  p95", 150, False),
    "step_cost": ("  main thread for a step: heatmap, band, table", "", False),
    "interaction": ("a click that draws every chart anew", 100, False),
    "heap": ("JavaScript heap after that", 200, False),
    "tab": ("the tab's process, memory of its own", 200, False),
    "alone": ("lockstepd without a tab", "", False),
    "hundred": ("  with the streams of a hundred", "", False),
}


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
    for line in done.stdout.splitlines():
        name, value, unit = line.split()
        figures.setdefault((name, unit), []).append(float(value))
    for (name, unit), values in figures.items():
        what, target, better = ROWS[name]
        table.add(what, values, unit, target, better)
