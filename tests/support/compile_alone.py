"""Compiles sources by themselves, as no build does that compiles them in batches: one that lacks an include, and is given it
by the file before it, fails here.

    compile_alone.py BUILD SECONDS JOBS [OVER] < FILES     a path a line; those that BUILD does not compile are left out

With the options that BUILD has for the batch, without output. What has not begun after SECONDS, or
when there is a file OVER, is left out aloud. Exit status: 1 if one does not compile."""

import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time


def commands(build):
    """{source: (words, directory)}, of a batch the words with the source in the place of the batch."""
    out = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        compiled, words = entry["file"], shlex.split(entry["command"])
        if not compiled.endswith(".cxx") and not compiled.endswith(".cpp"):
            continue  # nvcc's
        words = words[pathlib.Path(words[0]).name == "ccache":]
        at = words.index("-o")
        words[at:at + 2] = ["-fsyntax-only"]
        batch = "/Unity/unity_" in compiled
        sources = re.findall(r'#include "(.*)"', pathlib.Path(compiled).read_text(encoding="utf-8")) if batch else [compiled]
        for source in sources:
            out.setdefault(source, ([source if word == compiled else word for word in words], entry["directory"]))
    return out


def main():
    build, until, jobs = pathlib.Path(sys.argv[1]).resolve(), time.monotonic() + float(sys.argv[2]), int(sys.argv[3])
    over = pathlib.Path(sys.argv[4]).resolve() if len(sys.argv) > 4 else None
    known = commands(build)
    files = [path for path in (str(pathlib.Path(line.strip()).resolve()) for line in sys.stdin) if path in known]

    def compile_one(path):
        if time.monotonic() > until or (over and over.exists()):
            return None
        words, directory = known[path]
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{path} does not compile by itself:\n{done.stderr}", flush=True)
        return done.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        seen = [good for good in pool.map(compile_one, files) if good is not None]
    print(f"sources by themselves: {len(seen)} of {len(files)}" + ("" if len(seen) == len(files) else "; no time for the others"))
    sys.exit(not all(seen))


if __name__ == "__main__":
    main()
