"""Refuses what GCC 12 compiles wrongly around co_await.

A condition that awaits: `if (co_await f())`, `while (co_await f())`. In a coroutine whose outermost
block declares no variable GCC 12.2 resumes such a condition at a wrong place: an illegal instruction
or a damaged heap, at every optimisation level (clang is right). Name the result on the line before,
or in the condition: `if (const auto x = co_await f(); x)`.

A choice that awaits: `a ? co_await f(b) : c`. What a copy for the parameter holds is freed twice.

Temporaries that are destroyed twice: a lambda, `Type{…}` or a braced argument inside a co_await
expression.

GCC 12.2 copies such a temporary into the coroutine frame bit by bit and then runs its destructor
for both, so a captured or aggregated string is freed twice. Name the value on the line before.
Trivial types are harmless: durations are let through, for anything else say so on the line itself:
`// co_await: trivial`.
"""

import re

import tree

LAMBDA = re.compile(r"\[[^\[\]]*\]\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*"
                    r"(?:mutable\s*|noexcept\s*)*(?:->\s*[\w:<>,\s&*]+)?\{")
BRACED = re.compile(r"(?<![\w:])((?:::)?[A-Za-z_][\w:]*(?:<[^<>{};]*(?:<[^<>{};]*>[^<>{};]*)*>)?)\s*\{")
ARGUMENT = re.compile(r"[(,]\s*\{")
TRIVIAL = re.compile(r"^(?:std::chrono::|std::)?(?:nano|micro|milli)?seconds$|^(?:std::chrono::)?"
                     r"(?:minutes|hours)$|^(?:std::)?u?int\d*_t$|^(?:std::)?size_t$")
OPEN, CLOSE = "([{", ")]}"
CHOICE = re.compile(r"\?[^;{}]*\bco_await\b")
CONDITION = re.compile(r"\b(?:if|while|switch|LOCKSTEP_CO_TRY)\s*\(")


def awaiting_conditions(code):
    """Where a condition, without the declaration before its `;`, holds a co_await."""
    for match in CONDITION.finditer(code):
        condition = expression_in_brackets(code, match.end())
        declared = re.match(r"\s*(?:const\s+)?[\w:<>,\s&*]+\s\w+\s*=", condition)
        text = condition.split(";", 1)[1] if ";" in condition else "" if declared else condition
        if re.search(r"\bco_await\b", text):
            yield match.start()


def expression_in_brackets(code, start):
    depth = 1
    for position in range(start, len(code)):
        depth += (code[position] in OPEN) - (code[position] in CLOSE)
        if depth == 0:
            return code[start:position]
    return code[start:]


def expression(code, start):
    """From co_await to the ; or the bracket that ends its full expression."""
    depth = 0
    for position in range(start, len(code)):
        char = code[position]
        if char in OPEN:
            depth += 1
        elif char in CLOSE:
            depth -= 1
            if depth < 0:
                return code[start:position]
        elif char == ";" and depth == 0:
            return code[start:position]
    return code[start:]


def trouble(text):
    for match in LAMBDA.finditer(text):
        before = text[:match.start()].rstrip()
        if not before or before[-1] in "(,={&|?:" or before.endswith("co_await"):
            return match.start(), "a lambda inside a co_await expression"
    for match in BRACED.finditer(text):
        if not TRIVIAL.match(match.group(1)) and match.group(1) not in ("else", "do", "try"):
            return match.start(), f"temporary {match.group(1)}{{…}} inside a co_await expression"
    match = ARGUMENT.search(text)
    if match:
        return match.start(), "braced argument inside a co_await expression"
    return None


def main():
    root = tree.root_argument(__doc__)
    problems = []
    names = tree.cpp_files(root)
    for name in names:
        text = (root / name).read_text(encoding="utf-8")
        lines = text.split("\n")
        code = tree.code_only(text)
        for start in awaiting_conditions(code):
            problems.append(f"{name}:{tree.line_of(code, start)}: co_await in a condition: GCC 12 "
                            "resumes it wrongly; name the result on the line before")
        for match in CHOICE.finditer(code):
            problems.append(f"{name}:{tree.line_of(code, match.start())}: co_await in a choice: GCC 12 frees "
                            "copies in it twice; write an if")
        for match in re.finditer(r"\bco_await\b", code):
            found = trouble(expression(code, match.end()))
            if not found:
                continue
            line = tree.line_of(code, match.end() + found[0])
            if "co_await: trivial" not in lines[line - 1]:
                problems.append(f"{name}:{line}: {found[1]}: GCC 12 frees it twice; "
                                "name it on the line before")
    tree.verdict("co_await", problems, len(names))


if __name__ == "__main__":
    main()
