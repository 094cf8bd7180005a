"""The history part of tests/bench/run: telemetry of 10,000 ranks into a real lockstepd and out again."""

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

SLURM = {
    "sbatch": """[ "$1" = --version ] && { echo slurm 22.05.8; exit; }
for file; do :; done
sed -n 's/^#SBATCH --job-name=//p' "$file" | tr -d "'" > "$here/name"
echo 1""",
    "squeue": """[ -s "$here/name" ] || exit 0
while [ "$1" != -o ]; do shift; done
now=$(date +%s)
printf '%s\\n' "$2" | sed "s/%A/1/;s/%U/$(id -u)/;s/%u/$(id -un)/;s/%T/RUNNING/;s/%r/None/;s/%N/n1/;s/%P/p/
s/%S/$now/;s/%V/$now/;s/%e/$now/;s/%j/$(cat "$here/name")/" """,
    "sacct": ":", "scancel": ":", "sinfo": ":",
    "scontrol": """case "$*" in
*config*) printf 'ClusterName = bench\\nSLURM_VERSION = 22.05.8\\n' ;;
*partition*) echo PartitionName=p State=UP Default=YES TotalNodes=16384 MaxNodes=UNLIMITED TotalCPUs=4000000 ;;
esac"""}


@contextlib.contextmanager
def waiting_job(daemon, nodes, ranks):
    """(daemon, job, ticket) of a job that a Slurm of six scripts says runs; whoever has the ticket is its agents."""
    with tempfile.TemporaryDirectory(prefix="lockstep-slurm-") as folder:
        for name, text in SLURM.items():
            path = pathlib.Path(folder) / name
            path.write_text(f'#!/bin/sh\nhere=$(dirname "$0")\n{text}\n')
            path.chmod(0o755)
        with daemon("--scheduler", "slurm", "--slurm-bin-dir", folder) as service:
            job = service.submit({"name": "bench", "framework": "command", "command": ["/bin/true"],
                                  "resources": {"nodes": nodes, "ranks_per_node": ranks}})["id"]
            file = service.data / "runs" / job / "a1" / "agent.json"
            service.wait_state(job, "starting", seconds=60)
            yield service, job, json.loads(file.read_text())["ticket"]


def ask(service, path, rounds=9):
    """(median ms, bytes) of a GET."""
    times = []
    for _ in range(rounds):
        request = urllib.request.Request(service.url + path, headers={"Authorization": f"Bearer {service.token}"})
        began = time.monotonic()
        with urllib.request.urlopen(request) as answer:
            size = len(answer.read())
        times.append((time.monotonic() - began) * 1000)
    return sorted(times)[len(times) // 2], size


def gauge(service, name):
    with urllib.request.urlopen(service.url + "/metrics") as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.M))


def measure(table, daemon, program, seconds, rss_mib, nodes=1250, ranks=8, metrics=20):
    with waiting_job(daemon, nodes, ranks) as (service, job, ticket):
        load = subprocess.Popen([program, service.url, ticket, str(nodes), str(ranks), str(metrics), str(seconds),
                                 str(service.process.pid)], stdout=subprocess.PIPE, text=True)
        figures = {}
        for line in load.stdout:
            name, value, _ = line.split()
            if name == "done":
                break
            figures[name] = float(value)
        try:
            if "acknowledged" not in figures:
                raise SystemExit(f"history: the load ended early\n{service.log_tail()}")
            what = f"history, {nodes * ranks:,} ranks × {metrics} metrics at 1 Hz for {seconds} s"
            target = nodes * ranks * metrics * 0.95
            table.add(f"{what}: in", [figures["rate"]], "samples/s", target)
            table.add("  lockstepd, all threads", [figures["cores"]], "cores", 1, higher_is_better=False)
            table.add("  not acknowledged", [figures["sent"] - figures["acknowledged"]], "samples", 0, False)
            table.add("  dropped", [gauge(service, "lockstep_ingest_dropped_samples_total")], "samples", 0, False)
            table.add("  report to acknowledged, p99", [figures["ack_p99"]], "ms")
            table.add("  resident after it", [rss_mib(service.process.pid)], "MiB", 300, False)
            stored = gauge(service, "lockstep_store_samples")
            if stored:
                table.add("  chunks on disk", [disk_bytes(service) / stored], "bytes/sample")
            for name, path in (("series, 1 rank", "series?metric=loss&ranks=77"),
                               ("series, 256 ranks", "series?metric=loss&ranks=0-255"),
                               ("heatmap, all ranks", "heatmap?metric=busy_seconds")):
                took, size = ask(service, f"/v1/jobs/{job}/{path}")
                table.add(f"  {name}: {size / 1024:,.0f} KiB", [took], "ms")
        finally:
            load.kill()
            load.wait()


def pushgateway(table, seconds=10, nodes=1250, ranks=8, metrics=20):
    """The peer: the same reports, one push per node, to Debian's prometheus-pushgateway if it is there."""
    program = shutil.which("prometheus-pushgateway")
    if program is None:
        print("history: peer row SKIPPED: prometheus-pushgateway is not installed")
        return
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    process = subprocess.Popen([program, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        wait_for_port(port)
        began, pushes = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            node = pushes % nodes
            body = "".join(f"# TYPE metric_{m} gauge\n" + "".join(
                f'metric_{m}{{rank="{node * ranks + r}"}} {pushes * 0.001 + m + r}\n' for r in range(ranks))
                for m in range(metrics))
            connection.request("PUT", f"/metrics/job/bench/node/{node}", body)
            answer = connection.getresponse()
            answer.read()
            if answer.status not in (200, 202):
                raise SystemExit(f"pushgateway: {answer.status}")
            pushes += 1
        took = time.monotonic() - began
        table.add(f"  peer: Pushgateway, first {min(pushes, nodes):,} of {nodes:,} groups, one client",
                  [pushes * ranks * metrics / took], "samples/s")
    finally:
        process.kill()
        process.wait()


def wait_for_port(port):
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def disk_bytes(service):
    with urllib.request.urlopen(service.url + "/metrics") as answer:
        text = answer.read().decode()
    return float(re.search(r'^lockstep_store_bytes\{tier="disk"\} (\S+)$', text, re.M).group(1))
