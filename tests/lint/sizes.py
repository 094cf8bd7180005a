"""Files: at most 600 lines; more than 400 need a line `size: why it stays one file` in a comment,
which a file of fewer must not have: it would excuse what is not there.
Functions of C++: at most 90 lines (measured on formatted code: a heuristic that errs on the kind
side).
"""

import re

import tree

HARD, SOFT, FUNCTION = 600, 400, 90
KINDS = {".cpp", ".hpp", ".py", ".sh", ".cmake", ".ts", ".tsx", ".css", ".sql"}
REASON = re.compile(r"^\s*(?://|#|--|/\*)\s*size: \S+ \S+", re.MULTILINE)
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
    tree.verdict("sizes", problems, len(names))


if __name__ == "__main__":
    main()
