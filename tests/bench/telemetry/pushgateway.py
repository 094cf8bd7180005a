"""The peer: the load of history.py pushed into Debian's prometheus-pushgateway, on the same machine in the same run.

It is asked for less: it keeps the last value of each series and no history, in memory only, and acknowledges before
anything is on disk.
"""

import contextlib
import shutil
import socket
import subprocess
import time

import watching

# By default every push is checked against all that is there; the flag is its authors' way out.
KINDS = (("as it comes", []), ("without its consistency check", ["--push.disable-consistency-check"]))


@contextlib.contextmanager
def gateway(program, arguments):
    """(process, port)."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    process = subprocess.Popen([program, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error", *arguments])
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("pushgateway does not listen")
            time.sleep(0.02)
        yield process, port
    finally:
        process.kill()
        process.wait()


def measure(table, program, seconds, ours, nodes=1250, ranks=8, metrics=20):
    """`ours`: (samples/s, cores) of lockstepd in this run."""
    found = shutil.which("prometheus-pushgateway")
    if found is None:
        table.note("history: the peer's rows were SKIPPED: prometheus-pushgateway is not installed "
                   "(deploy/install-deps --bench)")
        return
    scraped = max(1, min(30, seconds // 2))
    for kind, arguments in KINDS:
        with gateway(found, arguments) as (process, port):
            run = watching.Run(process.pid, "127.0.0.1", port)
            command = [program, *map(str, (port, nodes, ranks, metrics, seconds, scraped))]
            with watching.under_load(command, run, patience=60):
                add(table, kind, run, seconds, nodes, ranks * metrics, ours)
    table.note("Pushgateway keeps the last value of a series and no history, in memory only: it does less than lockstepd.")


def add(table, kind, run, seconds, nodes, samples, ours):
    figures = run.figures
    table.add(f"peer: Pushgateway {kind} (last value only, no history), {nodes:,} clients × {samples} at 1 Hz for "
              f"{seconds} s: accepted", [figures["rate"]], "samples/s")
    table.add("  pushes due and not accepted, the scraped part included",
              [sum(figures[part + "due"] - figures[part + "accepted"] for part in ("", "scraped_"))], "pushes")
    table.add("  Pushgateway, all threads", [run.cores(0)], "cores")
    table.add("  the load generator", [run.cores(0, 2)], "cores")
    table.add("  due to answered, p50", [figures["push_p50"]], "ms")
    table.add("    p99", [figures["push_p99"]], "ms")
    table.add("  resident after it", [run.resident_after[0]], "MiB")
    run.add_scrapes(table)
    if figures["rate"] and ours[0] and ours[1]:
        table.add("  processor time per sample, Pushgateway / lockstepd",
                  [run.cores(0) / figures["rate"] / (ours[1] / ours[0])], "×")
