"""Includes go one way only: job <- scheduler-integration <- daemon, and from a level to a lower one.

Also: quoted includes are paths from the root, each big library is included in one folder, so that
replacing it touches one folder, and a source includes the header of its own name before all others,
so that building it proves that the header needs nothing before it. And what is above the seam to
schedulers does not know one of them: it asks scheduler-integration/scheduler.hpp.
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


def check_first(path, text, own):
    """`own`: the header of the source's name. Its own name in quotes, before every other include."""
    first = INCLUDE.search(text)
    if first is None or first.group(2) != own:
        return f'{path}:{tree.line_of(text, first.start()) if first else 1}: "{own}" comes first'
    return None


def main():
    root = tree.root_argument(__doc__)
    problems = []
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
            problem = check_own(path, target) if quoted else check_library(path, target)
            if problem:
                problems.append(f"{path}:{tree.line_of(text, match.start())}: {problem}")
    tree.verdict("layers", problems, checked)


if __name__ == "__main__":
    main()
