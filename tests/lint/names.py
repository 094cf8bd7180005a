"""Every name that a Python file uses is defined there: a file that only machines with a GPU, a Slurm or root go through ends with
a NameError there alone. By pyflakes. Skips aloud without it."""

import ast
import sys

import tree

try:
    from pyflakes import checker, messages
except ImportError:
    checker = None


def is_script(path):
    if path.suffix:
        return path.suffix == ".py"
    with open(path, "rb") as file:
        first = file.readline(64)
    return first.startswith(b"#!") and b"python" in first


def problems_of(name, text):
    try:
        parsed = ast.parse(text, str(name))
    except SyntaxError as error:
        return [f"{name}:{error.lineno}: {error.msg}"]
    undefined = (messages.UndefinedName, messages.UndefinedLocal, messages.UndefinedExport)
    return [f"{name}:{one.lineno}: {one.message % one.message_args}"
            for one in checker.Checker(parsed, filename=str(name)).messages if isinstance(one, undefined)]


def main():
    root = tree.root_argument(__doc__)
    if checker is None:
        print("names: SKIPPED: pyflakes is not installed (deploy/install-deps --test)")
        sys.exit(77)
    names = [name for name in tree.files(root) if is_script(root / name)]
    problems = [problem for name in names for problem in problems_of(name, (root / name).read_text(encoding="utf-8"))]
    tree.verdict("names", problems, len(names))


if __name__ == "__main__":
    main()
