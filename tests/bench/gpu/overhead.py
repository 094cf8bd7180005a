"""What reporting and NCCL's telemetry add to a training step. Each must be under half a percent.

Reporting: the time within the report calls over the time of all steps, by the trainer itself and by a script that trains the
same network with torch. That needs no second run, whose noise would be larger than what is looked for.

NCCL's telemetry: jobs without it, with RAS (which the agent asks all the while) and with the Inspector plugin beside RAS, in turns; a job's
figure is the mean step of its last two thirds, so that what happens once in some seconds counts. How far two jobs without
it differ has rows of its own, in each round and over all of them: the rounds go on until the latter is no more than what is asked for,
as long as there is time. Where it still is more, the others decide nothing and are told not to. What ends the rounds is this
noise alone, never what is judged.
The native trainer's step is what is judged; nccl_rank's, which is nothing but an all-reduce, shows where it would be felt most.

The Inspector is LOCKSTEP_NCCL_INSPECTOR, else that beside the programs (deploy/operator.md)."""

import math
import os
import pathlib
import re
import statistics
import time

import harness
import meeting
import setup

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 60
TARGET = 0.5  # %
RESERVED = 180  # seconds, for the all-reduces alone, behind the rounds of what is judged
RANKS = 4
NATIVE = "reporting: its share of a step of the native trainer"
SCRIPT = "reporting: its share of a step of a torch script"
RAS = "NCCL's RAS, asked by the agent: more of a step"
INSPECTOR = "NCCL's Inspector beside RAS: more of a step"
FIGURES = tuple((name, "≤", TARGET) for name in (NATIVE, SCRIPT, RAS, INSPECTOR))
OFF = {"NCCL_RAS_ENABLE": "0", "LOCKSTEP_NCCL_INSPECTOR": "off"}


def run_job(found, service, spec, seconds):
    """(the job, the end of rank 0's log) of a job that succeeds."""
    job = service.submit(spec)["id"]
    try:
        done = harness.wait_until(lambda: one if (one := service.job(job))["state"] in harness.FINAL else None,
                                  found.within(seconds), "the job has ended", patience=1)
    finally:
        meeting.cancel(service, job)
    log = service.rank_log(job, 0)
    if done["state"] != "succeeded":
        raise RuntimeError(f"{done.get('cause', {}).get('message', done['state'])}; rank 0: {log.strip()[-300:]}")
    return job, log


def native_spec(found, ranks, steps, environment=None, **more):
    train = {"model": "mnist_convnet", "train_samples": 6400, "test_samples": 200, "batch_size": 256 if not found.rehearse else 32,
             "max_steps": steps, "epochs": 100_000, "checkpoint_every_steps": 0, "export": "none",
             "devices": "cpu" if found.rehearse else "gpu", **more}
    return {"name": "bench", "framework": "native", "resources": found.resources(ranks), "train": train,
            "environment": {**found.variables(ranks), **(environment or {})}}


def of_native(found, service):
    found.needs_trainer()
    _, log = run_job(found, service, native_spec(found, 1, 2000 if not found.rehearse else 40), 60)
    return float(re.search(r"reporting took ([0-9.]+) %", log)[1])


def of_script(found, service):
    found.needs_torch()
    command = [found.python, str(HERE / "overhead_script.py"), "cpu" if found.rehearse else "cuda", str(2000 if not found.rehearse else 40)]
    spec = {"name": "bench", "framework": "command", "resources": found.resources(1), "command": command,
            "environment": {"PYTHONPATH": f"{harness.PYTHON_PACKAGE}:{HERE.parent / 'trainer'}"}}
    _, log = run_job(found, service, spec, 60)
    return meeting.peer_numbers(log, "percent")[-1]


def mean_step(service, job):
    """Seconds, of the last two thirds of rank 0's steps."""
    steps = service.job(job)["step"]
    # As many columns as there may be: one for each step.
    points = service.series(job, "step_seconds", points=4000, ranks="0", **{"from": steps // 3 + 1})[0]
    if len(points) < steps // 2:
        raise RuntimeError(f"{len(points)} of {steps} steps were reported")
    return statistics.mean(point[3] for point in points)


def require_telemetry(service, job, environment):
    """A job whose NCCL took no notice of its setting would show that telemetry costs nothing."""
    if environment is OFF:
        return
    if not has_points(service, job, "nccl_collectives"):
        raise setup.NotRun("RAS gave the agent nothing of a job that had it")
    wanted = environment["LOCKSTEP_NCCL_INSPECTOR"] != "off"
    if wanted and not any(has_points(service, job, f"nccl_bus_bandwidth_all_reduce_{nodes}") for nodes in ("one", "many")):
        raise setup.NotRun("the Inspector gave the agent no bandwidth of a job that had it")


def has_points(service, job, metric):
    return any(service.series(job, metric, x="time").values())


def native_step(found, service, environment):
    found.needs_trainer(RANKS)
    spec = native_spec(found, RANKS, 3000 if not found.rehearse else 60, environment)
    job = run_job(found, service, spec, 60)[0]
    if not found.rehearse:  # whose ranks meet by Gloo
        require_telemetry(service, job, environment)
    return mean_step(service, job)


def collective_step(found, service, environment):
    found.needs_nccl_rank(RANKS)
    ranks = RANKS if not found.rehearse else 2
    steps, floats = ("4000", "1048576") if not found.rehearse else ("100", "1024")
    job, _ = meeting.run_ranks(found, service, ranks, "--steps", steps, "--floats", floats, environment=environment)
    if not found.rehearse:  # over too soon
        require_telemetry(service, job, environment)
    return mean_step(service, job)


def inspector(found):
    """Its path; NotRun without one."""
    for path in (os.environ.get("LOCKSTEP_NCCL_INSPECTOR"), found.bin.parent / "lib/lockstep/libnccl-profiler-inspector.so"):
        if path and os.access(path, os.R_OK):
            return str(path)
    raise setup.NotRun("no Inspector plugin: LOCKSTEP_NCCL_INSPECTOR (deploy/operator.md says how to build it)")


def noise_of(differences):
    """How far two settings that are the same may lie apart over all rounds, from how far they did in each, with its sign: the
    mean and twice its standard error. One round says nothing of that."""
    if len(differences) < 2:
        return math.inf
    return abs(statistics.mean(differences)) + 2 * statistics.stdev(differences) / len(differences) ** 0.5


def another_round(found, judged, differences, longest):
    if len(differences) < found.rounds:
        return found.rehearse or found.left() >= 60
    return judged and not found.rehearse and noise_of(differences) > TARGET and found.left() >= 1.5 * longest + RESERVED


def one_round(figures, found, service, step, settings, judged):
    """The seconds of a step with each setting; without the Inspector, from now on, where it does nothing."""
    took = {}
    for key, environment in list(settings.items()):
        try:
            took[key] = step(found, service, environment)
        except setup.NotRun as error:
            if key != "Inspector":
                raise
            del settings[key]
            if judged:
                figures.skip(INSPECTOR, str(error))
    return took


def telemetry(figures, found, service, step, name, judged):
    """`step` with each setting in turns."""
    port = harness.quiet_port()
    settings = {"off": OFF, "RAS": {"LOCKSTEP_NCCL_INSPECTOR": "off", "NCCL_RAS_ADDR": f"127.0.0.1:{port}"}, "off again": OFF}
    try:
        settings["Inspector"] = {"LOCKSTEP_NCCL_INSPECTOR": inspector(found), "NCCL_RAS_ADDR": f"127.0.0.1:{port}"}
    except setup.NotRun as error:
        if judged:
            figures.skip(INSPECTOR, str(error))
    seen, differences, longest = {key: [] for key in settings}, [], 0
    while another_round(found, judged, differences, longest) or not differences:
        began = time.monotonic()
        try:
            took = one_round(figures, found, service, step, settings, judged)
        except (setup.NotRun, RuntimeError, AssertionError) as error:
            if not differences:
                raise
            figures.note(f"{name}: no further round: {error}")  # those that there were count
            break
        plain = statistics.mean((took["off"], took["off again"]))
        for key, seconds in took.items():
            seen[key].append(100 * (seconds / plain - 1))
        differences.append(100 * (took["off again"] - took["off"]) / plain)
        figures.note(f"a step of {name}: " + ", ".join(f"{key} {1e3 * seconds:.4f} ms" for key, seconds in took.items()))
        longest = max(longest, time.monotonic() - began)
    noise = noise_of(differences)
    figures.add(f"  two jobs of {name} without telemetry differ by", [abs(one) for one in differences], "%")
    if len(differences) > 1:
        figures.add(f"  two jobs of {name} without telemetry, over all rounds", [noise], "%")
    for figure, key in ((RAS, "RAS"), (INSPECTOR, "Inspector")):
        if key not in settings:
            continue
        if judged and noise <= TARGET:
            figures.add(figure, seen[key], "%")
            continue
        figures.add(f"  {figure}, {name}", seen[key], "%")
        if judged:
            figures.skip(figure, f"undecided after {len(differences)} rounds: the noise is {noise:.2f} %, more than the {TARGET} % asked for"
                         if len(differences) > 1 else "undecided: there was time for one round, of which nobody knows the noise")


def measure(figures, found, daemon):
    problem = None
    with daemon(*found.cores(RANKS)) as service:
        for figure, ask in ((NATIVE, of_native), (SCRIPT, of_script)):
            try:
                figures.add(figure, [ask(found, service) for _ in range(found.rounds)], "%")
            except (setup.NotRun, RuntimeError, AssertionError) as error:
                figures.skip(figure, str(error).strip()[-300:])
        for step, name, judged in ((native_step, "the native trainer" + (", gloo" if found.rehearse else ""), True),
                                   (collective_step, "all-reduces alone" + found.of_nccl(), False)):
            try:
                telemetry(figures, found, service, step, name, judged)
            except (setup.NotRun, RuntimeError, AssertionError) as error:
                if judged:
                    problem = error
                else:  # no figure of its own could say why
                    figures.note(f"{name}: {error}")
    if problem:
        raise problem
