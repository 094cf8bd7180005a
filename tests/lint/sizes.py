"""Files: at most 600 lines; more than 400 need a line `size: why it stays one file` in a comment,
which a file of fewer must not have: it would excuse what is not there.
Functions of C++: at most 90 lines (measured on formatted code: a heuristic that errs on the kind
side). Classes in headers: at most 40 methods and, where there are 10 methods or more, 20 members: what has fewer is a
record, which has as many fields as there are facts. Folders: at most 30 sources. What was larger when this was first
counted has its number as its ceiling, which is lowered when it shrinks and never raised.
"""

import collections
import re

import tree

HARD, SOFT, FUNCTION = 600, 400, 90
LIMITS = {"methods": 40, "members": 20, "units": 30}
RECORD = 10  # methods; with fewer its members are not counted
COUNTED = ("daemon", "job", "scheduler-integration")
CEILINGS = {
    "daemon/control/machine/attempt_run.hpp AttemptRun": {"members": 26},
    "daemon/http/server/server.hpp HttpServer": {"members": 26},
    "daemon/http/server/session.hpp Session": {"methods": 41, "members": 25},
    "daemon/telemetry/series/series.hpp JobSeries": {"methods": 42},
    "daemon/telemetry/exposition/daemon_metrics.hpp DaemonMetrics": {"members": 31},
    "job/agent/machine/node_machine.hpp NodeMachine": {"methods": 58, "members": 21},
    "job/cli": {"units": 75},
    "job/trainer": {"units": 43},
    "job/trainer/run.hpp TrainingRun": {"members": 39},
    "scheduler-integration/slurm": {"units": 35},
}
KINDS = {".cpp", ".hpp", ".py", ".sh", ".cmake", ".ts", ".tsx", ".css", ".sql"}
REASON = re.compile(r"^\s*(?://|#|--|/\*)\s*size: \S+ \S+", re.MULTILINE)
TEMPLATE = r"\btemplate\s*<(?:[^<>]|<[^<>]*>)*>"
CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[[^\]]*\]\]\s*|alignas\([^)]*\)\s*)*(\w+)[^;{}()=]*$")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
OPERATOR = re.compile(r"\boperator\b")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static_assert|enum|class|struct|union)\b")
NOT_A_FUNCTION = re.compile(r"\b(?:namespace|class|struct|enum|union|extern)\b")


def long_functions(text):
    """(line, length) of every outermost block that is code and longer than FUNCTION."""
    code = tree.code_only(text)
    stack = []  # per open brace: line where a function starts, or None for a scope
    statement = 0  # where the text that leads to the next brace begins
    inside = 0
    for position, char in enumerate(code):
        if char == "{":
            head = code[statement:position]
            is_scope = not inside and ("(" not in head or bool(NOT_A_FUNCTION.search(head)))
            stack.append(None if is_scope or inside else tree.line_of(code, position))
            inside += 0 if is_scope else 1
            statement = position + 1
        elif char == "}" and stack:
            started = stack.pop()
            if inside:
                inside -= 1
            if started is not None:
                length = tree.line_of(code, position) - started + 1
                if length > FUNCTION:
                    yield started, length
            statement = position + 1
        elif char == ";":
            statement = position + 1


def declares(statement):
    """What a statement of a class declares: "methods", "members" or None. Deleted functions and constants do not count."""
    text = re.sub(rf"{TEMPLATE}|\[\[.*?\]\]|\b(?:alignas|decltype)\s*\([^()]*\)", " ", ACCESS.sub(" ", statement)).strip()
    if not text or NO_MEMBER.match(text):
        return None
    angles, position = 0, 0
    for position, char in enumerate(text):
        angles += (char == "<") - (char == ">")
        if char == "(" and not angles and not re.match(r"\(\s*\*", text[position:]) or OPERATOR.match(text, position):
            return None if re.search(r"=\s*delete$", text) else "methods"
        if char in "={" and not angles:
            break
    return None if re.search(r"\bconstexpr\b", text[:position]) else "members"


def classes(text):
    """(name, line, counts of methods and members) of every class that is not within a function."""
    code = re.sub(r"^\s*#.*$", "", tree.code_only(text), flags=re.MULTILINE)
    stack = []  # per open brace: ("class", name, line, counts), ("scope",) or ("block",)
    start = 0  # where the statement begins
    for position, char in enumerate(code):
        outer = stack[-1][0] if stack else "scope"
        if char == "{":
            head = re.sub(TEMPLATE, " ", code[start:position])
            found = None if re.search(r"\benum\b", head) or outer == "block" else CLASS.search(head)
            if found:
                counts = dict.fromkeys(("methods", "members"), 0)
                stack.append(("class", found[1], tree.line_of(code, position), counts))
            else:
                stack.append(("scope",) if re.search(r"\b(?:namespace|extern)\b", head) and "(" not in head else ("block",))
            start = start if stack[-1][0] == "block" else position + 1
        elif char == "}" and stack:
            ended = stack.pop()
            if ended[0] == "class":
                yield ended[1:]
            elif ended[0] == "block" and stack and stack[-1][0] == "class":
                # The body of a function ends its declaration; an initializer goes on, to the semicolon.
                if declares(code[start:position + 1]) != "methods" or re.match(r"\s*[;,:{]", code[position + 1:position + 100]):
                    continue
                stack[-1][3]["methods"] += 1
            elif ended[0] == "block" and stack and stack[-1][0] == "block":
                continue
            start = position + 1
        elif char == ";" and outer != "block":
            if outer == "class" and (kind := declares(code[start:position])):
                stack[-1][3][kind] += 1
            start = position + 1


def judged(counts, of):
    """What is said of the counts of a class or a folder."""
    for kind, number in counts.items():
        ceiling = CEILINGS.get(of, {}).get(kind)
        if number > (ceiling or LIMITS[kind]):
            yield f"{number} {kind}; at most {ceiling or LIMITS[kind]}" + (", as it had: it may shrink, not grow" if ceiling else "")
        elif ceiling and number < ceiling:
            yield f"{number} {kind}; its ceiling in sizes.py is {ceiling} and goes with it" + (
                "" if number > LIMITS[kind] else f": {LIMITS[kind]} need none")


def main():
    root = tree.root_argument(__doc__)
    problems = []
    names = [name for name in tree.files(root) if name.suffix in KINDS]
    for name in names:
        text = (root / name).read_text(encoding="utf-8")
        lines = text.count("\n")
        reason = REASON.search(text)
        if lines > HARD:
            problems.append(f"{name}:1: {lines} lines; more than {HARD} is a split not made")
        elif lines > SOFT and not reason:
            problems.append(f"{name}:1: {lines} lines; more than {SOFT} needs `size: reason`")
        elif lines <= SOFT and reason:
            problems.append(f"{name}:{tree.line_of(text, reason.end())}: {lines} lines need no `size: reason`")
        if name.suffix in tree.CPP:
            problems += [f"{name}:{line}: function of {length} lines; at most {FUNCTION}"
                         for line, length in long_functions(text)]
        if name.suffix == ".hpp" and name.parts[0] in COUNTED:
            found = list(classes(text))
            problems += [f"{name}:{line}: {word} has {said}" for word, line, counts in found
                         for said in judged(counts if counts["methods"] >= RECORD else {"methods": counts["methods"]}, f"{name} {word}")]
            problems += [f"{name}:1: sizes.py has a ceiling for {of.split()[1]}, which is not here" for of in CEILINGS
                         if of.split()[0] == str(name) and of.split()[1] not in {word for word, _, _ in found}]
    units = collections.Counter(str(name.parent) for name in names if name.suffix == ".cpp" and name.parts[0] in COUNTED)
    problems += [f"{folder}: {said}" for folder, number in sorted(units.items()) for said in judged({"units": number}, folder)]
    tree.verdict("sizes", problems, len(names))


if __name__ == "__main__":
    main()
