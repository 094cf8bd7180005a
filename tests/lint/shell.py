"""Every shell script parses and passes shellcheck. Skips aloud without shellcheck."""

import shutil
import subprocess
import sys

import tree

SHEBANGS = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash", b"#!/usr/bin/env sh")


def is_script(path):
    with open(path, "rb") as file:
        return path.suffix == ".sh" or file.readline(64).strip().startswith(SHEBANGS)


def main():
    root = tree.root_argument(__doc__)
    if not shutil.which("shellcheck"):
        print("shell: SKIPPED: shellcheck is not installed (deploy/install-deps --test)")
        sys.exit(77)
    names = [name for name in tree.files(root)
             if name.suffix in ("", ".sh") and is_script(root / name)]
    problems = []
    for name in names:
        for command in (["bash", "-n", str(name)], ["shellcheck", "-f", "gcc", "-x", str(name)]):
            run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                problems += (run.stdout + run.stderr).strip().split("\n")
    tree.verdict("shell", problems, len(names))


if __name__ == "__main__":
    main()
