"""daemon/control/machine is a job without I/O: nothing that its files include, however far, is Asio, SQLite or another
library of the outside, and none of them asks a clock, reads a file or waits. So its tests and the simulation drive what is
shipped, with time and the world as arguments.
"""

import re

import tree

FOLDER = "daemon/control/machine/"
# Where a chain of includes may lead: values and pure functions.
PURE = (FOLDER, "daemon/telemetry/", "job/base/", "job/model/", "scheduler-integration/observation.hpp")
OUTSIDE = re.compile(r"(?:boost|SQLiteCpp|openssl|curl|sys|prometheus)/|sqlite3\.h|unistd\.h|fcntl\.h|(?:fstream|filesystem|thread|mutex|future)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ASKS = re.compile(r"\b(?:\w+_clock::now|SystemClock|wall_seconds\(\)|read_file|write_file|co_await|co_return|std::this_thread)\b")


def problems_of(root, name, seen, chain):
    """Of what `name` includes; `chain`: how the folder comes to it."""
    text = (root / name).read_text(encoding="utf-8")
    for quote, target in INCLUDE.findall(text):
        if quote == "<":
            # What headers of other folders need for themselves is theirs, unless it does I/O.
            if OUTSIDE.match(target) and (name.startswith(FOLDER) or target.startswith(("boost/", "SQLiteCpp", "sqlite3"))):
                yield f"{chain[0]}:1: reaches <{target}> by {' → '.join(chain[1:] + [name])}"
        elif not target.startswith(PURE):
            yield f"{chain[0]}:1: reaches {target} by {' → '.join(chain[1:] + [name])}"
        elif target not in seen and (root / target).is_file():
            seen.add(target)
            yield from problems_of(root, target, seen, chain + ([name] if name != chain[0] else []))


def main():
    root = tree.root_argument(__doc__)
    problems, checked, seen = [], 0, set()
    for name in map(str, tree.cpp_files(root)):
        if not name.startswith(FOLDER):
            continue
        checked += 1
        problems += problems_of(root, name, seen, [name])
        code = tree.code_only((root / name).read_text(encoding="utf-8"))
        problems += [f"{name}:{tree.line_of(code, found.start())}: asks the world: {found.group(0)}"
                     for found in ASKS.finditer(code)]
    tree.verdict("machine", problems, checked)


if __name__ == "__main__":
    main()
