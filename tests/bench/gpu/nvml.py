"""What a look at the GPUs by NVML costs: bench_gpu. Rehearsed with the fake library of tests/support."""

import os
import re
import subprocess

import setup

SECONDS = 20
TICK_SECONDS = 1
LOOK = "NVML: a look at all GPUs, of a tick of 1 s"
FIGURES = ((LOOK, "≤", 0.5),)
CALL = re.compile(r"(.+?) +([\d.]+) us +([\d.]+) us worst$")


def measure(figures, found, _daemon):
    program = found.bin / "bench_gpu"
    if not program.exists():
        raise setup.NotRun(f"{program} is not built (cmake -DLOCKSTEP_BENCH=ON)")
    command, more = [program], {}
    if found.rehearse:
        command.append(found.bin.parent / "tests" / "fake_nvml" / "new" / "libnvidia-ml.so.1")
        more["FAKE_NVML"] = os.devnull  # it has its own idea of eight GPUs
    said = subprocess.run(command, capture_output=True, text=True, timeout=found.within(SECONDS), check=True,
                          env={**os.environ, **more}).stdout
    if said.startswith("SKIPPED"):
        raise setup.NotRun(said.removeprefix("SKIPPED:").strip())
    for line in said.splitlines():
        if not (call := CALL.match(line)):
            continue
        median, worst = float(call[2]), float(call[3])
        if call[1].startswith("one look"):
            figures.add(LOOK, [100 * median / 1e6 / TICK_SECONDS], "%")
        figures.add(f"  NVML: {call[1]}, median and worst", [median, median, worst], "us")
    print(said)  # each GPU's values, to be compared with nvidia-smi's
