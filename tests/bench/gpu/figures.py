"""tests/bench/run gpu: what Lockstep does on GPUs beside what else there is, on one machine in one run.

Each part is a file here: what NVML's calls cost, how soon eight ranks have met by NCCL, the bus bandwidth of their all-reduce,
how soon all go on after one is killed, what reporting and NCCL's telemetry add to a step, and the trainer beside PyTorch. A part says
which figures it has (FIGURES: name, sign and target), so that each has its row, with a reason where it could not be measured.

All of it is bounded (--gpu-seconds, an hour if not given): what no time is left for is NOT RUN. --gpu-parts takes some. --rehearse runs all of it
without a GPU: setup.py."""

import re
import subprocess

import bandwidth
import harness
import killed
import meeting
import nvml
import overhead
import setup
import trainer

# In this order: what is cut short is the end. The trainer beside PyTorch is asked for most and takes longest, so behind others it
# would be out of time whenever that is short.
PARTS = {"nvml": nvml, "trainer": trainer, "init": meeting, "bandwidth": bandwidth, "kill": killed, "overhead": overhead}
PROBLEMS = (RuntimeError, AssertionError, OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError, harness.Unreachable)


class Figures:
    """The table, as the parts write to it."""

    def __init__(self, table, found):
        self.table = table
        self.targets = {name: (sign, target) for part in PARTS.values() for name, sign, target in part.FIGURES}
        self.setup = found
        self.before = "gpu REHEARSAL on doubles: " if found.rehearse else "gpu: "
        self.seen = set()

    def add(self, what, values, unit):
        """With its target, if a part has named it."""
        self.seen.add(what)
        sign, target = self.targets.get(what, ("", ""))
        name = what.lstrip()
        self.table.add(" " * (len(what) - len(name)) + self.before + name, values, unit, target, sign != "≤", judged=not self.setup.rehearse)

    def skip(self, what, why, word="NOT RUN"):
        """Of a figure that has no row yet. The first reason counts."""
        if what not in self.seen:
            self.seen.add(what)
            sign, target = self.targets[what]
            self.table.skip(self.before + what, word, why, f"{sign} {target:g}")

    def note(self, text):
        self.table.note(self.before + text)


def compile_seconds(build):
    """Of the CUDA sources, by the newest build's own record; None without one."""
    log = build / ".ninja_log"
    took = {}
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        fields = line.split("\t")
        if len(fields) > 3 and re.search(r"\.cu\.(o|cubin|fatbin)$", fields[3]):
            took[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return took


def without_gpu(table, found, names, daemon):
    """What can be said all the same. Nothing is claimed."""
    figures = Figures(table, found)
    for name in names:
        for what, *_ in PARTS[name].FIGURES:
            figures.skip(what, found.no_gpu, "SKIPPED")
    took = compile_seconds(found.bin.parent)
    if took:
        figures.note(f"without a GPU: {len(took)} CUDA source{'s' * (len(took) > 1)} compiled in {sum(took.values()):.1f} s")
    else:
        figures.note("without a GPU: no CUDA source was compiled in this build")
    try:
        found.rehearse = True
        found.needs_nccl_rank(meeting.RANKS)
        met = meeting.ours(found, daemon)
        figures.note(f"without a GPU: {meeting.RANKS} ranks of the DOUBLE of NCCL met and summed in {met['summed']:.2f} s")
    except (setup.NotRun, *PROBLEMS) as error:
        figures.note(f"without a GPU: nothing from the double of NCCL: {first_line(error)}")
    figures.note("nothing is claimed of a GPU; tests/bench/run --rehearse gpu shows that the bench works")


def first_line(error):
    text = str(error) or type(error).__name__
    if isinstance(error, subprocess.TimeoutExpired):
        text = f"not done within {error.timeout:.0f} s"
    return text.strip().splitlines()[-1][:300] if text.strip() else type(error).__name__


def measure(table, options, daemon):
    found = setup.find(options)
    names = options.gpu_parts.split(",")
    if unknown := set(names) - set(PARTS):
        raise SystemExit(f"gpu: no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if found.no_gpu and not found.rehearse:
        without_gpu(table, found, names, daemon)
        return
    figures = Figures(table, found)
    what = found.torch.get("torch", "none")
    if found.rehearse:
        figures.note(f"on the CPU, gloo and the DOUBLE of NCCL for a GPU and NCCL; torch {what}: nothing is claimed")
    else:
        figures.note(f"{found.gpus} × {found.torch.get('gpu') or 'GPU'}, torch {what} with NCCL {found.torch.get('nccl')}, "
                     f"Lockstep's NCCL {found.nccl or 'none'}")
    for name in names:
        part = PARTS[name]
        try:
            found.within(part.SECONDS if not found.rehearse else 5)
            part.measure(figures, found, daemon)
            why = "it gave no figure"
        except Exception as error:  # whatever it is, the other parts' figures count
            why = first_line(error)
        for figure, *_ in part.FIGURES:
            figures.skip(figure, why)
