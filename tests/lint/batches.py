"""Sources of a library or a test program are compiled together, in batches of any size (LOCKSTEP_UNITY_BATCH; the quick start takes all at
once), so what is in an anonymous namespace of one is seen by the next: no two may define a constant, a variable, a
type or a function of the same parameters by the same name there, or by one that another has with `using a::name;`. A compiler says so only of those that share
a batch today.
"""

import os
import pathlib
import re
import sys

import tree

TARGET = re.compile(r"lockstep_(?:library|program|test)\(\s*([\w-]+)(.*?)\)", re.DOTALL)
SET = re.compile(r"^[ \t]*(?:set\(|list\(APPEND )(\w+)\s([^)]*)\)", re.MULTILINE)
VARIABLE = re.compile(r"\$\{(\w+)\}")
OBJECTS = "$<TARGET_OBJECTS:"  # of a library that has had its own batches
SOURCES = re.compile(r"\bSOURCES\b(.*?)(?=\b(?:HEADERS|DEPS|PCH)\b|$)", re.DOTALL)
BRACE = re.compile(r"[{}]")
NAMESPACE = re.compile(r"namespace(?:\s+([\w:]+))?\s*\{")
TYPE = re.compile(r"^(?:class|struct|union|enum(?:\s+class)?)\s+(\w+)[^;(]*\{")
ALIAS = re.compile(r"^using\s+(\w+)\s*=\s*([^;]+);")
BORROWED = re.compile(r"^using\s+([\w:]+::(\w+))\s*;")
FUNCTION = re.compile(r"^(?!template\b)[\w:<>,&*\s\[\]\"]*?[\s&*>](\w+)\((.*?)\)\s*(?:const\s*)?(?:noexcept\s*)?(?:->[^{]*)?\{",
                      re.DOTALL)
NO_VALUE = ("using", "template", "extern", "namespace", "class", "struct", "enum", "union")
VALUE = re.compile(r"^[\w:<>,&*\s]*?[\s&*>](\w+)(?:\[[^\]]*\])*\s*(?:=|\{|;)")


def expanded(text, known, within=()):
    """`text` with the variables that are known; one that is not stays as it stands."""
    def value(one):
        name = one.group(1)
        return "" if name in within else expanded(known[name], known, (*within, name)) if name in known else one.group(0)
    return VARIABLE.sub(value, text)


def targets(text, root):
    """(name, sources) of the libraries and programs of a CMakeLists.txt. Of a variable that is set more than once, say in
    the branches of an if(), all that it may be."""
    text = re.sub(r"#[^\n]*", "", text)
    known = {"PROJECT_SOURCE_DIR": str(root), "CMAKE_CURRENT_SOURCE_DIR": "."}
    for name, words in SET.findall(text):
        known[name] = f"{known[name]} {words}" if name in known else words
    for name, words in TARGET.findall(text):
        found = SOURCES.search(words)
        sources = expanded(found.group(1), known).split() if found else []
        yield name, [word for word in dict.fromkeys(sources) if (word.endswith(".cpp") or "$" in word) and not word.startswith(OBJECTS)]


def closing(code, start):
    depth = 0
    for brace in BRACE.finditer(code, start):
        depth += 1 if brace.group(0) == "{" else -1
        if depth == 0 and brace.group(0) == "}":
            return brace.start()
    return len(code)


def parameter_types(text):
    """The types of a parameter list, without names and default values."""
    types, depth, begun = [], 0, 0
    for position, char in enumerate(text + ","):
        depth += (char in "(<[{") - (char in ")>]}")
        if char == "," and depth <= 0:
            one = " ".join(text[begun:position].split("=")[0].split())
            types.append(re.sub(r"(?<=[\w>&*])\s*(?<=[\s&*>])\w+$", "", one).replace(" ", ""))
            begun = position + 1
    return ",".join(types)


def statements(code, start, end):
    """(position, text) of what stands directly in code[start:end], up to and with its first brace or semicolon."""
    at = start
    while at < end:
        semicolon, brace = code.find(";", at, end), code.find("{", at, end)
        if semicolon < 0 and brace < 0:
            return
        stop = min(one for one in (semicolon, brace) if one >= 0)
        head = code[at:stop + 1]
        yield at + len(head) - len(head.lstrip()), head.strip()
        at = stop + 1
        if code[stop] == "{":
            at = closing(code, stop) + 1
            while at < end and code[at] in "; \n":
                at += 1


def defined(code, start=0, end=None, scope="", hidden=False):
    """(position, key): what the anonymous namespaces define; two equal keys clash."""
    for position, head in statements(code, start, len(code) if end is None else end):
        # A function's head has what stands before it: directives of the preprocessor.
        text = re.sub(r"(?:^|\n)#(?:[^\n]*\\\n)*[^\n]*", "", head).strip()
        opened = position + len(head) - 1
        namespace = NAMESPACE.search(text) if text.startswith(("namespace", "inline namespace")) else None
        if namespace and "=" not in text:
            name = namespace.group(1)
            yield from defined(code, opened + 1, closing(code, opened), scope + "::" + name if name else scope,
                               hidden or name is None)
            continue
        borrowed = BORROWED.match(text)  # hides nothing and is hidden by nothing, wherever it stands
        if borrowed:
            yield position + len(head) - len(text), (scope, borrowed.group(2), "=", borrowed.group(1).removeprefix("::"))
        if borrowed or not hidden:
            continue
        at = position + len(head) - len(text)
        if found := TYPE.match(text):
            yield at, (scope, found.group(1))
        elif found := ALIAS.match(text):
            yield at, (scope, found.group(1), "=", found.group(2).replace(" ", ""))
        elif found := FUNCTION.match(text):
            yield at, (scope, found.group(1), "(" + parameter_types(found.group(2)) + ")")
        elif "(" not in text.split("=")[0] and not text.startswith(NO_VALUE):
            if found := VALUE.match(text):
                yield at, (scope, found.group(1))


def main():
    root = tree.root_argument(__doc__)
    problems, checked = [], 0
    for lists in [name for name in tree.files(root) if name.name == "CMakeLists.txt"]:
        for target, sources in targets((root / lists).read_text(encoding="utf-8"), root):
            first = {}
            for source in sources:
                path = pathlib.PurePosixPath(os.path.relpath(root / lists.parent / source, root))
                if not (root / path).is_file():
                    problems.append(f"{lists}: {target} has a source that is not found: {source}")
                    continue
                checked += 1
                code = tree.code_only((root / path).read_text(encoding="utf-8"))
                for position, key in defined(code):
                    where = f"{path}:{tree.line_of(code, position)}"
                    # An alias takes its name from every other type too; only the same alias twice is none too many.
                    name, meaning = (key[:2], key[3]) if "=" in key else (key, "")
                    there = first.setdefault(name, (where, meaning))
                    if there[0].split(":")[0] != str(path) and (not meaning or meaning != there[1]):
                        problems.append(f"{where}: {target} has {''.join(name[1:])} already: {there[0]}")
    tree.verdict("batches", problems, checked)


if __name__ == "__main__":
    sys.exit(main())
