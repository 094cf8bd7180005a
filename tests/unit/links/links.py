"""links.py PROGRAM…: what none of our programs may need from the loader, read from the files themselves.

A node without GPUs has no CUDA and no NCCL, so a program that names one of their libraries does not start there; those
are loaded where they are used. lockstepd, lockstep, lockstep-agent and lockstep-nccl-test also run where there is no LibTorch and no Gloo.
"""

import pathlib
import re
import subprocess
import sys

GPU = re.compile(r"lib(cuda|cudart|nccl|nvrtc|nvidia|cublas|cudnn|nvToolsExt)\b")
TRAINER = re.compile(r"lib(torch|c10|gloo)")


def needed(program):
    out = subprocess.run(["readelf", "--dynamic", "--wide", program], check=True, capture_output=True, text=True).stdout
    names = re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", out)
    if "libc.so.6" not in names:
        sys.exit(f"{program}: readelf shows no libc.so.6 among {names}: this check sees nothing")
    return names


def main():
    wrong = []
    for program in sys.argv[1:]:
        names = needed(program)
        name = pathlib.Path(program).name
        # A LibTorch with CUDA brings its own runtime into the trainer; never the driver or NCCL.
        banned = [GPU] if name != "lockstep-train" else [re.compile(r"lib(cuda|nccl|nvidia)\b")]
        if name in ("lockstepd", "lockstep", "lockstep-agent", "lockstep-nccl-test"):
            banned.append(TRAINER)
        for library in names:
            if any(pattern.match(library) for pattern in banned):
                wrong.append(f"{name} needs {library}")
        print(f"{name}: {len(names)} libraries")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
