"""What the lints share: the files of the source tree, C++ without comments, and the verdict."""

import argparse
import pathlib
import re
import subprocess
import sys

CPP = {".cpp", ".hpp"}
SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__", ".cache"}


def root_argument(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path.cwd())
    return parser.parse_args().root.resolve()


def files(root):
    """Every file of the tree as relative paths: what git tracks or would track, else a walk."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True, check=False)
    top = subprocess.run(["git", "-C", str(root), "rev-parse", "--show-toplevel"],
                         capture_output=True, text=True, check=False)
    if listed.returncode == 0 and top.stdout.strip() == str(root):
        names = [pathlib.PurePosixPath(name) for name in listed.stdout.decode().split("\0") if name]
    else:
        names = [pathlib.PurePosixPath(path.relative_to(root)) for path in root.rglob("*")]
        names = [name for name in names if not SKIPPED_FOLDERS.intersection(name.parts)
                 and not name.parts[0].startswith("build")]
    return sorted({name for name in names if (root / name).is_file()})


def cpp_files(root):
    return [name for name in files(root) if name.suffix in CPP]


_NOISE = re.compile(
    r'R"(?P<tag>[^()\s\\]{0,16})\((?:.|\n)*?\)(?P=tag)"'  # raw string
    r'|//[^\n]*'
    r'|/\*(?:.|\n)*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'")  # not the ' of 10'000


def code_only(text):
    """C++ with comments, strings and characters blanked out; line numbers stay."""
    def blank(match):
        found = match.group(0)
        quote = '""' if found[0] in 'R"' else ("0" if found[0] == "'" else "")
        return quote + "\n" * found.count("\n")
    return _NOISE.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def verdict(name, problems, checked):
    """Prints the problems as file:line: text and ends the program: 0 clean, 1 not."""
    for problem in problems:
        print(problem)
    print(f"{name}: {checked} files, {len(problems)} problems")
    if checked == 0:
        print(f"{name}: found nothing to check; that is a problem too")
        sys.exit(1)
    sys.exit(1 if problems else 0)
