"""Text that must not be in the tree: tabs, blanks at a line's end, CRLF, paths of somebody's machine,
host names of package registries, work left to do without the issue that holds it.
"""

import re

import tree

# Put together from halves, so that this file passes its own check.
MACHINE = ["/wor" + "k/", "/tmp" + "/w/", "/home/" + "(?!me\\b|user\\b|alice\\b|\\{)[a-z]", "/Users" + "/"]
REGISTRIES = ["deb\\.deb" + "ian\\.org", "registry\\.np" + "mjs\\.org", "pypi" + "\\.org",
              "files\\.python" + "hosted\\.org", "gh" + "cr\\.io", "docker" + "\\.io",
              "crates" + "\\.io", "proxy\\.go" + "lang\\.org"]
RULES = [
    (re.compile("\t"), "a tab"),
    (re.compile("[ \t\r]$"), "blank at the end of the line"),
    (re.compile("|".join(MACHINE)), "path of one machine"),
    (re.compile("|".join(REGISTRIES)), "host name of a package registry"),
    (re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b(?!\(#\d+\))"), "work left to do without (#issue)"),
    (re.compile(r"^(?:<{7}|>{7}) "), "left-over of a merge"),
]
PICTURE, PICTURE_BYTES = "web/page.png", 200_000  # the README shows it
GENERATED = {"package-lock.json"}  # npm writes the registry into it
TABS_ARE_SYNTAX = {".mk", ".tsv", ".prom"}


def check_text(name, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in RULES:
            if what == "a tab" and name.suffix in TABS_ARE_SYNTAX:
                continue
            if pattern.search(line):
                yield f"{name}:{number}: {what}"
    if text and not text.endswith("\n"):
        yield f"{name}:{text.count(chr(10)) + 1}: no newline at the end of the file"


def main():
    root = tree.root_argument(__doc__)
    problems = []
    names = [name for name in tree.files(root)
             if name.name not in GENERATED and "fixtures" not in name.parts]
    for name in names:
        data = (root / name).read_bytes()
        if name.as_posix() == PICTURE and len(data) <= PICTURE_BYTES:
            continue
        if b"\0" in data:
            problems.append(f"{name}:1: binary file; only fixtures may be")
            continue
        try:
            problems += check_text(name, data.decode("utf-8"))
        except UnicodeDecodeError as error:
            problems.append(f"{name}:{data.count(10, 0, error.start) + 1}: not UTF-8")
    tree.verdict("words", problems, len(names))


if __name__ == "__main__":
    main()
