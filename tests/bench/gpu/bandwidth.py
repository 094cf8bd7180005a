"""The bus bandwidth of our all-reduce, as nccl-tests counts it (2 (n - 1) / n × bytes / time), beside nccl-tests' all_reduce_perf
and torch's all_reduce, as many ranks of each.

all_reduce_perf is LOCKSTEP_NCCL_TESTS, else that of PATH. Where the ranks share one GPU it has to be a build with MPI, with an mpirun: in
one process it takes no GPU twice. `tests/gpu` builds one."""

import os
import re
import shutil
import subprocess

import meeting
import setup

SECONDS = 60
RATIO = "all-reduce bus bandwidth: ours ÷ nccl-tests'"
TORCH = "all-reduce bus bandwidth: ours ÷ torch's"
FIGURES = ((RATIO, "≥", 1), (TORCH, "≥", 1))
OURS = re.compile(r"all-reduce of (\d+) bytes: ([\d.]+) s")


def bus(ranks, size, seconds):
    """GB/s."""
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


def perf_command(found, ranks, size):
    program = os.environ.get("LOCKSTEP_NCCL_TESTS") or shutil.which("all_reduce_perf")
    if not program or not os.access(program, os.X_OK):
        raise setup.NotRun("no nccl-tests: no all_reduce_perf in PATH or LOCKSTEP_NCCL_TESTS")
    options = ["-b", str(size), "-e", str(size), "-n", "20", "-w", "5", "-c", "0"]
    if found.gpus >= ranks:
        return [program, *options, "-g", str(ranks)]
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise setup.NotRun(f"{ranks} ranks of nccl-tests on {found.gpus or 'no'} GPU need its build with MPI, and an mpirun")
    return [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), program, *options, "-g", "1"]


def parse_perf(text):
    """The out-of-place bus bandwidth, GB/s, of the last size."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+float\s", line)]
    if not rows:
        raise RuntimeError("nccl-tests said nothing that is known: " + text.strip()[-300:])
    # size count type redop root time algbw busbw #wrong, then the same in place.
    return float(rows[-1][7])


def nccl_tests(found, ranks, size):
    command = perf_command(found, ranks, size)
    more = {**found.variables(ranks), **({"NCCL_TESTS_DEVICE": "0"} if found.gpus < ranks else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=found.within(SECONDS),
                          env={**os.environ, **more})
    if done.returncode:
        raise RuntimeError("nccl-tests: " + (done.stderr or done.stdout).strip()[-300:])
    return parse_perf(done.stdout)


def measure(figures, found, daemon):
    ranks = max(found.gpus, 4) if not found.rehearse else 2
    size = 128 << 20 if not found.rehearse else 1 << 20
    what = f"  all-reduce of {size >> 20} MiB, {ranks} ranks on {found.gpus or 'no'} GPU{'s' * (found.gpus > 1)}: "
    found.needs_nccl_rank(ranks)
    mine, kept = [], {RATIO: [], TORCH: []}
    problems = {}
    for _ in range(found.rounds):
        with daemon(*found.cores(ranks)) as service:
            _, logs = meeting.run_ranks(found, service, ranks, "--bandwidth", str(size))
        mine.append(bus(ranks, size, max(float(OURS.search(log)[2]) for log in logs)))
        for figure, ask in ((RATIO, lambda: nccl_tests(found, ranks, size)), (TORCH, lambda: of_torch(found, ranks, size))):
            if figure not in problems:
                try:
                    kept[figure].append(ask())
                except Exception as error:  # ours counts without it
                    problems[figure] = error
    figures.add(what + "ours" + found.of_nccl(), mine, "GB/s")
    for figure, name in ((RATIO, "nccl-tests'"), (TORCH, f"torch's ({found.backend})")):
        if kept[figure]:
            figures.add(figure, [a / b for a, b in zip(mine, kept[figure])], "×")
            figures.add(what + name, kept[figure], "GB/s")
        else:
            figures.skip(figure, str(problems[figure]).strip()[-300:])


def of_torch(found, ranks, size):
    found.needs_torch(ranks)
    seconds = [meeting.peer_numbers(text, "seconds") for text in meeting.run_peer(found, ranks, str(size))]
    if not all(seconds):
        raise RuntimeError("torch's ranks gave no time")
    return bus(ranks, size, max(one[0] for one in seconds))
