"""daemon/control/machine is a job without I/O, job/agent/machine a node: nothing that their files include, however far, is Asio,
SQLite or another library of the outside, and none of their own asks a clock, the environment or for random numbers, reads a
file or waits. So their tests and the simulation drive what is shipped, with time and the world as arguments. (The token of a
pre-flight's pair is random_secret()'s: nothing is decided by it.)
"""

import re

import tree

# A machine's folder, and where a chain of its includes may lead: values and pure functions.
FOLDERS = {
    "daemon/control/machine/": ("daemon/control/machine/", "daemon/telemetry/", "job/base/", "job/model/",
                                "scheduler-integration/observation.hpp"),
    "job/agent/machine/": ("job/agent/machine/", "job/base/", "job/model/"),
}
OUTSIDE = re.compile(r"(?:boost|SQLiteCpp|openssl|curl|sys|prometheus)/|sqlite3\.h|unistd\.h|fcntl\.h|(?:fstream|filesystem|thread|mutex|future)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# selftest.py has an example of each.
ASKS = (
    r"\w+::now\b", r"\bSystemClock\b", r"(?<![\w.>])wall_seconds\(\)(?! const)", r"\bstd::(?:time|clock)\s*\(",
    r"(?<![\w.>:])(?:::)?time\s*\(\s*(?:nullptr|NULL|0|&)", r"\bclock_gettime\b", r"\bgettimeofday\b", r"\bstd::this_thread\b",
    r"\bgetenv\b", r"\bsecure_getenv\b", r"\benviron\b",
    r"\brandom_device\b", r"\bgetrandom\b", r"\bmake_job_id\b", r"(?<![\w.>])s?rand\s*\(",
    r"\bread_file\b", r"\bwrite_file\b", r"\bfopen\b", r"(?<![\w:])::open\s*\(", r"\bstd::filesystem::(?!path\b)",
    r"\bco_await\b", r"\bco_return\b", r"\bco_yield\b",
)


def problems_of(root, folder, name, seen, chain):
    """Of what `name` includes; `chain`: how the folder comes to it."""
    text = (root / name).read_text(encoding="utf-8")
    for quote, target in INCLUDE.findall(text):
        if quote == "<":
            # What headers of other folders need for themselves is theirs, unless it does I/O.
            if OUTSIDE.match(target) and (name.startswith(folder) or target.startswith(("boost/", "SQLiteCpp", "sqlite3"))):
                yield f"{chain[0]}:1: reaches <{target}> by {' → '.join(chain[1:] + [name])}"
        elif not target.startswith(FOLDERS[folder]):
            yield f"{chain[0]}:1: reaches {target} by {' → '.join(chain[1:] + [name])}"
        elif target not in seen and (root / target).is_file():
            seen.add(target)
            yield from problems_of(root, folder, target, seen, chain + ([name] if name != chain[0] else []))


def main():
    root = tree.root_argument(__doc__)
    problems, checked, seen = [], 0, {folder: set() for folder in FOLDERS}
    for name in map(str, tree.cpp_files(root)):
        folder = next((one for one in FOLDERS if name.startswith(one)), None)
        if folder is None:
            continue
        checked += 1
        problems += problems_of(root, folder, name, seen[folder], [name])
        code = tree.code_only((root / name).read_text(encoding="utf-8"))
        problems += [f"{name}:{tree.line_of(code, found.start())}: asks the world: {found.group(0)}"
                     for found in re.finditer("|".join(ASKS), code)]
    tree.verdict("machine", problems, checked)


if __name__ == "__main__":
    main()
