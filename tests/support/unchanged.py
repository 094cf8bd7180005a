"""Leaves out of the inner loop what passed before and cannot have changed since.

    unchanged.py BUILD skip     ctest's options that leave those programs of unit tests out; says which on standard error
    unchanged.py BUILD passed   after ctest: keeps of each program that all its parts have passed

A program has changed when it does, or another program or a library of BUILD that is named in it, or any file of the checkout
that is not C++, but for folders that no unit test reads: which of the others it reads is not known. What is kept is
BUILD/quick.passed, {program: digest}. Without git, in an unpacked archive say, nothing is left out."""

import hashlib
import json
import pathlib
import re
import subprocess
import sys

COMPILED = {".cpp", ".hpp", ".cu"}  # what counts of these is in the programs
UNREAD = ("web/src/", "tests/bench/", "tests/fault/", "tests/frameworks/", "tests/integration/", "tests/prometheus/", "tests/slurm/", "tests/web/")


def parts(build):
    """{program: number of its parts} of `tests/run --quick`."""
    lines = (build / "tests/unit-programs").read_text(encoding="utf-8").split("\n")
    return {name: int(many) for name, _, many in (line.split() for line in lines if line)}


def read_by_tests(source):
    """One digest of all files that a test may read beside what is compiled, those that git does not know yet, too."""
    names = subprocess.run(["git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True).stdout
    out = hashlib.sha256()
    for name in sorted(filter(None, names.split(b"\0"))):
        path = pathlib.Path(source) / name.decode()
        if path.suffix in COMPILED or name.decode().startswith(UNREAD) or not path.is_file():
            continue
        out.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return out.hexdigest()


def digest(program, build, read):
    data = program.read_bytes()
    out = hashlib.sha256(data)
    # Where other programs are is compiled in as their paths, or as the folder of a library.
    named = {pathlib.Path(one.decode()) for one in re.findall(re.escape(str(build)).encode() + rb"/[\w.+/-]+", data)}
    files = {file for path in named for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file()}
    for file in sorted(files - {program}):
        with file.open("rb") as opened:
            if opened.read(4) == b"\x7fELF":
                out.update(str(file).encode() + b"\0" + hashlib.file_digest(opened, "sha256").digest())
    out.update(read.encode())
    return out.hexdigest()


def digests(build, source):
    read = read_by_tests(source)
    return {name: digest(build / "tests" / name, build, read) for name in parts(build) if (build / "tests" / name).is_file()}


def kept(build):
    try:
        return dict(json.loads((build / "quick.passed").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def skip(build, source):
    before = kept(build)
    same = sorted(name for name, now in digests(build, source).items() if before.get(name) == now)
    if same:
        print(f"unchanged since they passed, and left out (--all runs them): {', '.join(same)}", file=sys.stderr)
        print("-E", rf"^quick\.({'|'.join(same)})\.[0-9]+$", sep="\n")


def passed(build, source):
    """From ctest's output on standard input: of which programs each part has passed."""
    done = {}
    for name, word in re.findall(r"^ *\d+/\d+ Test +#\d+: quick\.(\w+)\.\d+ \.+ *(\S+) ", sys.stdin.read(), re.MULTILINE):
        done.setdefault(name, []).append(word)
    now, many = digests(build, source), parts(build)
    out = {name: old for name, old in kept(build).items() if name not in done and now.get(name) == old}
    out |= {name: now[name] for name, words in done.items() if name in now and words == ["Passed"] * many[name]}
    (build / "quick.passed").write_text(json.dumps(out, indent=1), encoding="utf-8")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    try:
        {"skip": skip, "passed": passed}[sys.argv[2]](BUILD, pathlib.Path(__file__).resolve().parents[2])
    except (FileNotFoundError, subprocess.CalledProcessError):
        print(f"{sys.argv[0]}: git does not tell which files there are: nothing is left out", file=sys.stderr)
