"""Includes go one way only: job <- scheduler-integration <- daemon, and from a level to a lower one.

Also: quoted includes are paths from the root, each big library is included in one folder, so that
replacing it touches one folder, and a source includes the header of its own name before all others,
so that building it proves that the header needs nothing before it. And what is above the seam to
schedulers does not know one of them: it asks scheduler-integration/scheduler.hpp. Within the largest libraries, the
folders in their folder, and what lies directly in it, include each other one way, too: no two are in a circle.
"""

import re

import tree

LEVELS = {  # longest prefix wins
    "job/base": 0,
    "job/model": 1,
    "job/async": 1,
    "job/cli/manual": 1,  # lockstep_manual: any program prints its man page with it
    "job/agent": 2,
    "job/agent/manual": 4,  # of the program: lockstep-agent(1)
    "job/agent/rank_commands": 4,  # of the program: `lockstep-agent report` is a rank's client
    "job/rank": 2,
    "job/collective": 2,
    "scheduler-integration": 2,
    "daemon/store": 2,
    "daemon/telemetry": 2,
    "job/nccl_test": 3,
    "job/trainer": 3,
    "daemon/control": 3,
    "daemon/backup": 3,
    "daemon/http": 4,
    "job/cli": 5,
    "daemon/lockstepd": 5,
}
AREAS = {"job": 0, "scheduler-integration": 1, "daemon": 2, "tests": 3}
HOMES = {  # a library's headers -> the folders that may include them
    r"boost/asio": ("job/async",),
    r"boost/beast": ("job/async", "daemon/http"),
    r"spdlog|fmt": ("job/base",),
    r"SQLiteCpp|sqlite3\.h": ("daemon/store",),
    r"torch|ATen|c10": ("job/trainer",),
    r"gloo": ("job/collective",),
    r"prometheus": ("daemon/telemetry", "daemon/lockstepd"),
    r"snappy": ("daemon/telemetry",),
    r"re2": ("job/model",),
    r"CLI": ("job/cli", "job/agent", "job/trainer", "daemon/lockstepd"),
}
IN_ROOMS = ("job/model", "job/agent", "daemon/control", "daemon/http", "daemon/telemetry")  # no circles within
ANY_SCHEDULER = ("daemon/control", "daemon/store", "daemon/telemetry")
# Not of the scheduler, but of the specification (a section) and of lockstepd's settings (a flag).
OF_THE_USER = re.compile(r"\bspec\.slurm\.|--on-slurm-node-fail\b")
# A scheduler's name anywhere, also within an identifier; its programs; a decision by what the driver is called.
_ASKED = r"scheduler\w*(?:\(\))?\s*(?:\.|->)\s*(?:name|title)\(\)"
ONE_SCHEDULER = re.compile(
    r"(?i:slurm|sbatch|squeue|scancel|scontrol|sacct|sbcast|munge|kubectl|kubernetes)"
    r"|(?:(?<![A-Za-z])[Ss]|(?<=[a-z])S)(?:run|info|alloc)(?![a-z])|(?<![A-Za-z])[bq]sub(?![a-z])"
    r'|"local"|include "scheduler-integration/\w+/'
    rf"|{_ASKED}\s*(?:[=!]=|\.)|[=!]=\s*[\w.>()-]*{_ASKED}|scheduler_(?:name|title)\s*[=!]=")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def module(path):
    """The entry of LEVELS that owns the path, or None."""
    fitting = [prefix for prefix in LEVELS
               if path.startswith(prefix + "/") or path.startswith(prefix + ".")]
    return max(fitting, key=len, default=None)


def level(path):
    return 5 if path.endswith("/main.cpp") else LEVELS[module(path)]


def check_own(path, target):
    area, target_area = path.split("/")[0], target.split("/")[0]
    if target_area not in AREAS:
        return f'"{target}" is not a path from the root'
    if area == "tests":
        return None
    if AREAS[target_area] > AREAS[area]:
        return f"{area} may not include {target_area} ({target})"
    owner = module(target)
    if owner is None:
        return f"{target} belongs to no known library"
    if owner != module(path) and LEVELS[owner] >= level(path):
        return f"level {level(path)} may not include level {LEVELS[owner]} ({target})"
    return None


def check_library(path, target):
    if path.startswith("tests/"):
        return None
    for pattern, homes in HOMES.items():
        if re.match(rf"(?:{pattern})(?:/|$)", target):
            if not any(path.startswith(home + "/") for home in homes):
                return f"<{target}> may be included in {', '.join(homes)} only"
    return None


def check_seam(path, text):
    """Names of one scheduler where any may be; a name in comments leads to the next in code."""
    if path.startswith(tuple(folder + "/" for folder in ANY_SCHEDULER)):
        text = OF_THE_USER.sub(lambda match: " " * len(match.group(0)), text)
        for match in ONE_SCHEDULER.finditer(text):
            yield f"{path}:{tree.line_of(text, match.start())}: {match.group(0)}: any scheduler may be there"


def room(path):
    """(library, the folder within it that holds the file, or the file's name without its ending)."""
    owner = next((library for library in IN_ROOMS if path.startswith(library + "/")), None)
    inner = path[len(owner) + 1:] if owner else ""
    return owner, inner.split("/")[0].split(".")[0]


def circles(edges):
    """Groups of rooms that reach each other, as sorted lists. `edges`: room -> the rooms that it includes."""
    def reach(start):
        seen, left = set(), [start]
        while left:
            for one in edges.get(left.pop(), ()):
                if one not in seen:
                    seen.add(one)
                    left.append(one)
        return seen
    reached = {one: reach(one) for one in edges}
    return sorted({tuple(sorted(b for b in reached if b in reached[a] and a in reached[b]))
                   for a in reached if a in reached[a]})


def check_rooms(includes):
    """`includes`: (path, line, target) of every include from one room of a library to another one of it."""
    edges = {}
    for path, _, target in includes:
        edges.setdefault(room(path), set()).add(room(target))
    for group in circles(edges):
        for path, line, target in includes:
            if room(path) in group and room(target) in group:
                names = ", ".join(f"{owner}/{inner}" for owner, inner in group)
                yield f"{path}:{line}: {target} closes a circle of {names}"


def check_first(path, text, own):
    """`own`: the header of the source's name. Its own name in quotes, before every other include."""
    first = INCLUDE.search(text)
    if first is None or first.group(2) != own:
        return f'{path}:{tree.line_of(text, first.start()) if first else 1}: "{own}" comes first'
    return None


def main():
    root = tree.root_argument(__doc__)
    problems = []
    between_rooms = []
    checked = 0
    for name in tree.cpp_files(root):
        path = str(name)
        if path.split("/")[0] not in AREAS:
            continue
        checked += 1
        if not path.startswith("tests/") and module(path) is None:
            problems.append(f"{path}:1: belongs to no level; add its folder to layers.py")
            continue
        text = (root / name).read_text(encoding="utf-8")
        problems += check_seam(path, text)
        own = path.removesuffix(".cpp") + ".hpp"
        if path.endswith(".cpp") and (root / own).exists():
            problem = check_first(path, text, own)
            if problem:
                problems.append(problem)
        for match in INCLUDE.finditer(text):
            quoted, target = match.group(1) == '"', match.group(2)
            line = tree.line_of(text, match.start())
            problem = check_own(path, target) if quoted else check_library(path, target)
            if problem:
                problems.append(f"{path}:{line}: {problem}")
            if quoted and not path.startswith("tests/") and room(path)[0] == room(target)[0] in IN_ROOMS and room(target) != room(path):
                between_rooms.append((path, line, target))
    problems += check_rooms(between_rooms)
    tree.verdict("layers", problems, checked)


if __name__ == "__main__":
    main()
