"""Every C++ file is as clang-format 19 writes it. Skips aloud without the tool."""

import re
import shutil
import subprocess
import sys

import tree


def main():
    root = tree.root_argument(__doc__)
    tool = shutil.which("clang-format-19")
    if not tool:
        print("format: SKIPPED: clang-format-19 is not installed (deploy/install-deps --test)")
        sys.exit(77)
    names = tree.cpp_files(root)
    run = subprocess.run([tool, "--dry-run", "-Werror", "--style=file", *map(str, names)], cwd=root,
                         capture_output=True, text=True, check=False) if names else None
    wrong = {}
    for match in re.finditer(r"^(.+?):(\d+):\d+: error:", run.stderr if run else "", re.MULTILINE):
        wrong.setdefault(match.group(1), match.group(2))
    problems = [f"{name}:{line}: not formatted; clang-format-19 -i {name}"
                for name, line in wrong.items()]
    if run and run.returncode != 0 and not problems:
        problems.append(f"clang-format-19: {run.stderr.strip()}")
    tree.verdict("format", problems, len(names))


if __name__ == "__main__":
    main()
