"""From Enter to the first line that rank 0 prints: `lockstep run --logs`, beside torchrun (if a torch is
there whose launcher works), `srun` and `sbatch` (as root, on a Slurm of its own; a batch job's line is looked for in
its output file every 10 ms). Taken in turns, one of each at
a time, so that they meet the same machine; the command is the same shell line for all. The Python of
torchrun is LOCKSTEP_TORCH_PYTHON, else the tests' own. slurmctld here starts batch jobs once a second: on Slurm each
command begins when all nodes are idle again, those of one turn at the same part of a second, and the turns go through it evenly.
"""

import contextlib
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "slurm")]

COMMAND = ["sh", "-c", "echo here"]


def first_line(command, env, cwd):
    """Seconds until the command has printed a line that ends with `here`; the command ends by itself."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                          cwd=cwd) as process:
        took = None
        for line in process.stdout:
            if line.rstrip().endswith("here") and took is None:
                took = time.monotonic() - began
        said = process.stderr.read()
    if took is None:
        raise RuntimeError(f"{command} printed no line: {said[-500:]}")
    return took


def unix_seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def parts(service, began, took):
    """Where the newest job's time went, in seconds by its own time stamps: {part: seconds}. What is
    left of the launch is the scheduler's starting the agents."""
    job = service.get("/v1/jobs?limit=1")["items"][0]
    job = service.get(f"/v1/jobs/{job['id']}")
    generation = job["attempts"][0]["generations"][0]
    spans = job["spans"]
    return {"Enter to accepted": unix_seconds(job["submitted_at"]) - began,
            "in the queue": spans["queue_seconds"],
            "agents are started and call in": spans["launch_seconds"],
            "rendezvous": spans["rendezvous_seconds"],
            "ranks run to the line on the terminal": began + took - unix_seconds(generation["running_at"])}


def in_turns(table, peers, rounds, env, cwd, service, settle=lambda part: None):
    """`peers`: {name: command}; the first is Lockstep, of which the ratios are. settle(part) comes before each command,
    with the part of all turns that is over."""
    times = {name: [] for name in peers}
    ours, *others = times
    shares = []
    for number in range(rounds):
        for name, command in peers.items():
            settle(number / rounds)
            began = time.time()
            times[name].append(first_line(command, env, cwd))
            if name == ours:
                shares.append(parts(service, began, times[name][-1]))
    for name, values in times.items():
        table.add(f"{name}: Enter to the first line", [1000 * value for value in values], "ms")
    for part in shares[0]:
        table.add(f"{ours}: {part}", [1000 * share[part] for share in shares], "ms")
    for name in others:
        ratio = statistics.median(times[ours]) / statistics.median(times[name])
        table.add(f"ratio of medians: {ours} / {name}", [ratio], "×")


# Debian's torch 1.13 does not start on Python 3.11 without this; newer ones need none of it.
LAUNCHER = """
import sys
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api
if api.Std.from_str("0") is None:
    api.Std.from_str = classmethod(lambda cls, text: cls(int(text)))
run.main(sys.argv[1:])
"""


def torchrun():
    """The start of a command line of a torchrun that works, or nothing."""
    import harness
    python = os.environ.get("LOCKSTEP_TORCH_PYTHON", harness.PYTHON)
    launch = [python, "-c", LAUNCHER, "--standalone", "--nproc_per_node", "1", "--no_python"]
    with contextlib.suppress(OSError, RuntimeError):
        first_line([*launch, *COMMAND], None, "/")
        return launch
    return None


def local(table, options, folder):
    import harness
    service = harness.Daemon(folder, "--log-level", "warn").start()
    try:
        env = {**os.environ, "LOCKSTEP_URL": service.url, "LOCKSTEP_TOKEN": service.token}
        peers = {"lockstep run, this machine": [str(options.bin / "lockstep"), "run", "--logs", "--", *COMMAND]}
        if launch := torchrun():
            peers["torchrun, this machine"] = [*launch, *COMMAND]
        else:
            table.note("torchrun: SKIPPED: no torch.distributed.run that works (LOCKSTEP_TORCH_PYTHON)")
        in_turns(table, peers, options.rounds * 3, env, folder, service)
    finally:
        service.clean_up()


# A batch job waits for slurmctld's next turn, which an interactive srun does not: the peer of what is submitted.
BATCH = """
out=$(mktemp -p "$1")
sbatch -Q -N 2 -o "$out" --wrap "srun sh -c 'echo here'" >"$out.id" || exit
until grep -q here "$out"; do sleep 0.01; done
cat "$out"
"""


def all_idle(env, part):
    """Waits until no node runs or completes a job, then until that part of a second on the clock."""
    deadline = time.monotonic() + 60
    while subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=env, capture_output=True, text=True,
                         check=True).stdout.split().count("idle") < 2:
        if time.monotonic() > deadline:
            raise RuntimeError("Slurm's nodes are not idle within 60 s")
        time.sleep(0.05)
    time.sleep((part - time.time()) % 1)


def on_slurm(table, options):
    from cluster import SlurmCluster, Unavailable
    from lockstep_slurm import SlurmDaemon
    try:
        cluster = SlurmCluster(nodes=2).start()
    except Unavailable as why:
        table.note(f"srun: SKIPPED: {why}")
        return
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.stop)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir=cluster.shared))
        service = SlurmDaemon(folder, cluster, "--log-level", "warn").start()
        stack.callback(service.clean_up)
        env = {**os.environ, **cluster.env(), "LOCKSTEP_URL": service.url, "LOCKSTEP_TOKEN": service.token}
        peers = {"lockstep run, Slurm, 2 hosts": [str(options.bin / "lockstep"), "run", "-N", "2", "--logs", "--",
                                                  *COMMAND],
                 "srun, 2 hosts": ["srun", "-N", "2", *COMMAND],
                 "sbatch of srun, 2 hosts": ["sh", "-c", BATCH, "batch", str(folder)]}
        in_turns(table, peers, options.rounds * 2, env, folder, service, lambda part: all_idle(env, part))


def measure(table, options):
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        local(table, options, folder)
    on_slurm(table, options)
