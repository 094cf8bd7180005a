"""What tests/bench/run gpu has to work with: a GPU, a torch, NCCL; or the doubles of a rehearsal; and how much time is left.

A rehearsal runs the same code on the CPU, with gloo and with the double of NCCL (tests/support/nccl_double). Its rows say so
and are not judged: they say that the bench works, and nothing of a GPU."""

import dataclasses
import json
import os
import pathlib
import subprocess
import time

import frameworks
import gpu_tests
import harness

SOURCE = pathlib.Path(__file__).resolve().parents[3]


class NotRun(Exception):
    """A figure that cannot be had here: why."""


@dataclasses.dataclass
class Setup:
    bin: pathlib.Path
    rehearse: bool
    no_gpu: str  # why there is none; "" if there is one
    gpus: int
    nccl: str  # path of the library, or of its double; "" without one
    cuda: str
    nccl_rank: pathlib.Path
    python: str  # the one with torch; "" without one
    torch: dict
    train: pathlib.Path
    train_has_cuda: bool
    rounds: int
    deadline: float

    def left(self):
        return self.deadline - time.monotonic()

    @property
    def patience(self):
        """How much longer everything may take: a rehearsal may be on a machine that compiles as well."""
        return 4 if self.rehearse else 1

    def within(self, seconds):
        """So many seconds, or those that are left: how long a program may take."""
        if self.left() < 5:
            raise NotRun("out of time (--gpu-seconds)")
        return min(seconds * self.patience, self.left())

    @property
    def backend(self):
        return "gloo" if self.rehearse else "nccl"

    def needs_sharing(self, ranks, nccl):
        if not self.rehearse and ranks > self.gpus and (why := gpu_tests.no_sharing(nccl)):
            raise NotRun(why)

    def needs_nccl_rank(self, ranks):
        if not self.nccl_rank.exists():
            raise NotRun(f"{self.nccl_rank} is not built (-DLOCKSTEP_TESTS=ON, and Gloo)")
        if not self.nccl:
            raise NotRun("no libnccl.so.2 (deploy/install-deps --cuda, or LOCKSTEP_NCCL_LIBRARY)")
        self.needs_sharing(ranks, self.nccl)

    def needs_torch(self, ranks=1):
        """Of a torch that has what `ranks` ranks on one GPU need."""
        if not self.python:
            raise NotRun("no torch 2 (deploy/install-frameworks torch, or LOCKSTEP_TORCH_PYTHON)")
        if "torch" not in self.torch:
            raise NotRun(f"{self.python} has no torch: {self.torch.get('error', '')}")
        if self.rehearse:
            return
        if not self.torch["cuda"]:
            raise NotRun(f"the torch of {self.python} can use no GPU")
        if ranks > self.gpus and tuple(self.torch["nccl"]) < gpu_tests.LEAST_NCCL:
            raise NotRun(f"torch's NCCL {self.torch['nccl']} is older than 2.30: its ranks cannot share a GPU")

    def needs_trainer(self, ranks=1):
        if not self.train.exists():
            raise NotRun(f"{self.train} is not built: no LibTorch")
        if not self.rehearse and not self.train_has_cuda:
            raise NotRun(f"{self.train} is linked with a LibTorch without CUDA (cmake -DLOCKSTEP_TORCH=…)")
        if ranks > 1:
            self.needs_sharing(ranks, gpu_tests.linked_nccl(self.train))

    def variables(self, ranks):
        """What ranks that share a GPU are started with, Lockstep's and a peer's. Of a GPU's room for NCCL each takes its
        share: without that more than two do not get in."""
        if self.rehearse or ranks <= self.gpus:
            return {}
        return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": str(max(1, 16 // ranks))}

    def resources(self, ranks):
        out = {"nodes": 1, "ranks_per_node": ranks}
        if not self.rehearse:
            out["gpus_per_node"] = min(self.gpus, ranks)
            if ranks > self.gpus:
                out["ranks_per_gpu"] = -(-ranks // self.gpus)
        return out

    def cores(self, ranks):
        """lockstepd's arguments for so many ranks on a machine that may have fewer cores."""
        return ("--local-cores", str(ranks)) if ranks > os.cpu_count() else ()

    def libraries(self):
        """nccl_rank's."""
        return ["--nccl", self.nccl, "--cuda", self.cuda]

    def of_nccl(self):
        """What a row of nccl_rank's is marked with."""
        return " (DOUBLE of NCCL)" if self.rehearse else ""


# The NCCL that torch has loaded, which may be another (LD_PRELOAD) than that it was compiled with and speaks of.
TORCH = """
import ctypes, json, torch
cuda, nccl = torch.cuda.is_available(), ctypes.c_int()
try:
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(nccl))
    nccl = [nccl.value // 10000, nccl.value // 100 % 100, nccl.value % 100]
except OSError:
    nccl = list(torch.cuda.nccl.version()) if cuda else []
print(json.dumps({"torch": torch.__version__, "cuda": cuda, "nccl": nccl, "gpu": torch.cuda.get_device_name() if cuda else ""}))
"""


def torch_of(python):
    try:
        done = subprocess.run([python, "-W", "ignore", "-c", TORCH], capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": (getattr(error, "stderr", "") or str(error)).strip()[-200:]}


def has_cuda(program):
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return "libtorch_cuda" in linked


def find(options):
    build = options.bin.parent
    no_gpu = gpu_tests.no_gpu()
    double = build / "tests" / "nccl_double" / "libnccl.so.2"
    works = options.rehearse or not no_gpu
    python = (frameworks.python() or "") if works else ""
    if works and not python and not no_gpu:
        python = harness.PYTHON  # a GPU machine's own may have it
    train = options.bin / "lockstep-train"
    return Setup(
        bin=options.bin, rehearse=options.rehearse, no_gpu=no_gpu, gpus=0 if no_gpu else gpu_tests.gpus(),
        nccl=(str(double) if double.exists() else "") if options.rehearse or no_gpu else gpu_tests.real_nccl(build, SOURCE / "build") or "",
        cuda=str(double) if options.rehearse or no_gpu else "libcuda.so.1", nccl_rank=build / "tests" / "nccl_rank",
        python=python, torch=torch_of(python) if python else {}, train=train,
        train_has_cuda=not no_gpu and train.exists() and has_cuda(train), rounds=min(options.rounds, 3),
        deadline=time.monotonic() + options.gpu_seconds)
