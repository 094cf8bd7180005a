"""What the documents name is there: links, paths of the tree, source files, anchors, programs.

Names in code, too: what has an underscore or begins as a constant does (`kMost`) is somewhere in the tree, a `Class::member` in one
file of C++, and what stands in brackets after a source file (`a.cpp` (`f`, `g`)) in that file or its header.

Read is every page. `--links-only` for a tree that holds documents alone, as `cmake --install` lays them out. Flags of
the scripts in deploy/ and tests/ are looked for in the script; those of programs, fields and examples need the
programs: tests/integration.
Also, in every file: references to texts that are not in the repository.
"""

import argparse
import pathlib
import re

import tree

TOP = {"job", "daemon", "scheduler-integration", "deploy", "tests", "web"}
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:[\w.+-]+/)+[\w.+-]*")
SOURCE = re.compile(r"[\w-]+\.(?:hpp|cpp|yml|service|cmake|sql|tsx?|mjs)")
NAME = re.compile(r"(?:k[A-Z]\w*|[a-z]\w*_\w+)(?:\(\))?")
MEMBER = re.compile(r"([A-Z]\w*)::(\w+)(?:\(\))?")
NAMED_IN = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:cpp|hpp|py|tsx?|mjs))` \(((?:(?:, )?`[\w:]+(?:\(\))?`)+)\)")
# Prometheus's, Slurm's two, submitit's.
FOREIGN = {"relabel_config", "rl_enable", "disable_token_creation", "map_array"}
# What is searched for references to texts elsewhere; scripts have no suffix.
WRITTEN = {"", ".c", ".cmake", ".cu", ".h", ".html", ".md", ".mjs", ".py", ".sh", ".toml", ".ts", ".tsx", ".txt", ".yml"}
FENCE = re.compile(r"^\s*```(\w*)")
README_LINES = 200
# A section whose table follows one thing through the sources, and how many files that may take.
WALK, WALK_FILES = ("daemon/README.md", "## One lost node"), 6
HEADING = re.compile(r"^#+ +(.*)")
# Not of another program's words, not in another folder: `sudo deploy/install-deps --bench`.
SCRIPT = re.compile(r"(?<![\w/.<>$}~-])(?:lockstep/)?((?:deploy|tests)/[\w/.-]+)((?: +[^\s;&|#)`]+)*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"^\s*(?:\$ |sudo )*(lockstep[\w-]*)\b(?!/)")
# Put together from halves, so that this file passes its own check.
ELSEWHERE = re.compile(r"\bdesi" + r"gn(?: §|'s\b|\.md\b)|\brendezv" + r"ous\.md\b|\brese" + r"arch(?:/[\w-]+\.md|:| on launch)|"
                       r"\brevi" + r"ew(?: finding|-[a-z-]+\.md)", re.IGNORECASE)


def documents(names):
    return [name for name in names if name.suffix == ".md"]


def anchor(heading):
    """As the hosting sites make it of a heading."""
    # An underscore within a word is one of its letters, beside it emphasis.
    text = re.sub(r"[`*]|(?<!\w)_|_(?!\w)|\[([^\]]*)\]\([^)]*\)", lambda match: match.group(1) or "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def lines_of(text):
    """(number, line, kind of the fenced block it is in or None)."""
    kind = None
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if fence:
            kind = None if kind is not None else fence.group(1)
            continue
        yield number, line, kind


def programs(root, names):
    found = set()
    for name in names:
        if name.name == "CMakeLists.txt":
            found.update(re.findall(r"lockstep_program\(([\w-]+)", (root / name).read_text(encoding="utf-8")))
    return found


def anchors(text):
    return {anchor(match.group(1)) for _, line, kind in lines_of(text)
            if kind is None and (match := HEADING.match(line))}


def walked(text, heading):
    """The sources that the table of a section names."""
    lines = text.partition(f"{heading}\n")[2].partition("\n## ")[0].split("\n")
    return {pathlib.PurePath(piece).name for line in lines if line.startswith("|") for piece in CODE.findall(line)
            if SOURCE.fullmatch(pathlib.PurePath(piece).name)}


class Words:
    """Which words are in which of the tree's own files; documents and these lints are none of them."""

    def __init__(self, root, names):
        self.of = {name: frozenset(re.findall(r"\w+", (root / name).read_text(encoding="utf-8", errors="replace")))
                   for name in names if name.suffix in tree.CPP | WRITTEN | {".sql", ".in"} and name.suffix != ".md"
                   and name.parts[:2] != ("tests", "lint")}
        self.all = frozenset().union(*self.of.values())

    def together(self, *words):
        return any(found.issuperset(words) for name, found in self.of.items() if name.suffix in tree.CPP)

    def inside(self, path, word):
        """None: there is no such file, which others tell."""
        stem = path.rpartition(".")[0]
        found = [words for name, words in self.of.items() if f"/{name}".rpartition(".")[0].endswith(f"/{stem}")]
        return any(word in words for words in found) if found else None


class Document:
    def __init__(self, root, name, names, links_only, words=None):
        self.root, self.name, self.links_only, self.words = root, name, links_only, words
        self.folder = (root / name).parent
        self.text = (root / name).read_text(encoding="utf-8")
        self.basenames = {other.name for other in names}

    def exists(self, path):
        path = path.removeprefix("lockstep/").rstrip("/")
        bases = (self.root, (self.root / self.name).parent)
        # job/agent/claim.hpp is also named without its suffix, as a part of the program.
        return any((base / path).exists() or any(base.glob(f"{path}.*")) for base in bases)

    def problems(self, known_programs):
        for number, line, kind in lines_of(self.text):
            where = f"{self.name}:{number}: "
            if kind is None:
                for target in LINK.findall(line):
                    if problem := self.link(target):
                        yield where + problem
            if self.links_only:
                continue
            if kind is None:
                yield from (where + problem for problem in self.names(line))
            pieces = CODE.findall(line) if kind is None else [line]
            for piece in pieces:
                for path in PATH.findall(piece):
                    first = path.removeprefix("lockstep/").split("/")[0]
                    before = piece[:piece.index(path)][-1:]
                    # What begins with a folder beside the page is meant to be there, too.
                    near = kind is None and first not in ("", ".", "..") and (self.folder / first).is_dir()
                    if (first in TOP or near) and before not in ("/", "<", "$", ">", "}", ".", "~", "-") \
                            and not self.exists(path):
                        yield f"{where}there is no {path}"
                if kind is None and SOURCE.fullmatch(piece) and piece not in self.basenames:
                    yield f"{where}there is no file {piece}"
                yield from (where + problem for problem in self.script_flags(piece))
            command = COMMAND.match(line) if kind not in (None, "c", "cpp") else None
            if command and known_programs and command.group(1) not in known_programs:
                yield f"{where}there is no program {command.group(1)}"

    def names(self, line):
        for piece in CODE.findall(line):
            member = MEMBER.fullmatch(piece)
            word = piece.removesuffix("()")
            if (member and not self.words.together(*member.groups())) or (
                    NAME.fullmatch(piece) and word not in self.words.all and word not in FOREIGN):
                yield f"nothing in the tree is called {piece}"
        for path, named in NAMED_IN.findall(line):
            for word in (piece.removesuffix("()").rpartition(":")[2] for piece in CODE.findall(named)):
                if self.words.inside(path, word) is False:
                    yield f"there is no {word} in {path}"

    def script_flags(self, piece):
        """Flags that a script of the tree is given and that it does not have."""
        for script, rest in SCRIPT.findall(piece):
            if (self.root / script).is_file() and not pathlib.Path(script).suffix:
                text = (self.root / script).read_text(encoding="utf-8")
                for flag in FLAG.findall(rest):
                    if not re.search(rf"(?<![\w-]){flag}(?![\w-])", text):
                        yield f"{script} has no {flag}"

    def link(self, target):
        if re.match(r"[a-z]+:", target):
            return None
        path, _, part = target.partition("#")
        there = (self.root / self.name).parent / path if path else self.root / self.name
        if not there.exists():
            return f"the link {target} leads nowhere"
        if part and there.suffix == ".md" and part not in anchors(there.read_text(encoding="utf-8")):
            return f"there is no heading for {target}"
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path.cwd())
    parser.add_argument("--links-only", action="store_true")
    options = parser.parse_args()
    root = options.root.resolve()
    names = tree.files(root)
    known = programs(root, names)
    problems = []
    checked = documents(names)
    words = None if options.links_only else Words(root, names)
    for name in checked:
        problems += Document(root, name, names, options.links_only, words).problems(known)
        text = (root / name).read_text(encoding="utf-8")
        if name.as_posix() == WALK[0] and len(files := walked(text, WALK[1])) > WALK_FILES:
            problems.append(f"{name}:1: {WALK[1]}: a reader needs {len(files)} files for it, more than {WALK_FILES}")
        lines = text.count("\n")
        if name.as_posix() == "README.md" and lines > README_LINES:
            problems.append(f"{name}:{lines}: over {README_LINES} lines: what not everybody needs belongs into a page that it links")
    if not options.links_only:
        for name in names:
            if name.suffix in tree.CPP | WRITTEN and "fixtures" not in name.parts:
                text = (root / name).read_text(encoding="utf-8")
                problems += [f"{name}:{tree.line_of(text, match.start())}: {match.group(0)}: not in the repository"
                             for match in ELSEWHERE.finditer(text)]
    tree.verdict("documents", problems, len(checked))


if __name__ == "__main__":
    main()
