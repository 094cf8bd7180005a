"""Lint of the generated OpenAPI document: python3 openapi.py FILE (standard library only).

Every $ref resolves, every path parameter is declared, every operation has a summary, a described tag and a unique
operationId, every header of an answer is described, what a status always answers with is there, every 4xx and 5xx is problem+json, every parameter and schema property is well-formed.
Every property has a description; that of a number says of what it is one: its unit, what is counted,
or that it is a ratio, a number of something or the like. Every operation has an example of what it
takes and of what it answers, unless there is nothing to show. What may be sent and what is answered
is described apart.
Ends 1 and names each mistake, otherwise 0.
"""

import json
import re
import sys

METHODS = {"get", "head", "post", "put", "patch", "delete", "options", "trace"}
# A number's description has one of these words: a unit, what is counted, or what it is without a unit.
UNITS = re.compile(
    r"\b(seconds?|days|bytes?|MiB|°C|watts|steps?|micro-steps?|ranks?|nodes?|GPUs?|CPUs?|threads?|"
    r"processes|jobs?|samples?|images|lines?|files?|attempts?|allocations?|generations?|faults|"
    r"parts|passes|items|events?|columns|rows|buckets|points|"
    r"ratio|share|probability|step size|score|deviations|metric's|factor|seed|number of|"
    r"how (many|often)|exit code|signal number|status|counts? of|id)\b", re.IGNORECASE)
TYPES = {"string", "integer", "number", "boolean", "object", "array", "null"}


def resolve(document, ref):
    if not ref.startswith("#/"):
        return None
    node = document
    for part in ref[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return node


def check_refs(document, node, where, errors):
    if isinstance(node, dict):
        if "$ref" in node and resolve(document, node["$ref"]) is None:
            errors.append(f"{where}: {node['$ref']} does not resolve")
        for key, value in node.items():
            check_refs(document, value, f"{where}/{key}", errors)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            check_refs(document, value, f"{where}/{index}", errors)


def check_schema(schema, where, errors):
    if not isinstance(schema, dict):
        errors.append(f"{where}: a schema must be an object")
        return
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in TYPES:
            errors.append(f"{where}: no such type: {kind}")
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in properties:
            errors.append(f"{where}: requires {name}, which is no property")
    if "pattern" in schema:
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            errors.append(f"{where}: pattern: {error}")
    for name, value in properties.items():
        check_schema(value, f"{where}/{name}", errors)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            check_schema(schema[key], f"{where}/{key}", errors)
    for index, value in enumerate(schema.get("oneOf", [])):
        check_schema(value, f"{where}/oneOf/{index}", errors)


def kinds_of(schema):
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def numeric(schema):
    """A number, or an array whose items are numbers."""
    while "array" in kinds_of(schema) and isinstance(schema.get("items"), dict):
        schema = schema["items"]
    return bool(kinds_of(schema) & {"integer", "number"})


def check_described(document, schema, where, errors):
    """Properties, at any depth; what a $ref names is looked at where it is."""
    for name, value in schema.get("properties", {}).items():
        at = f"{where}/{name}"
        text = value.get("description")
        if not text and "$ref" in value:
            text = (resolve(document, value["$ref"]) or {}).get("description")
        if not text:
            errors.append(f"{at}: has no description")
        elif numeric(value) and not UNITS.search(text):
            errors.append(f"{at}: a number, and its description has no unit: {text}")
        check_described(document, value, at, errors)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            check_described(document, schema[key], where, errors)
    for key in ("oneOf", "anyOf", "allOf"):
        for value in schema.get(key, []):
            check_described(document, value, where, errors)


def shows(content):
    return all("example" in body or "examples" in body for body in content.values())


def check_examples(operation, where, errors):
    body = operation.get("requestBody", {}).get("content", {})
    if not shows(body):
        errors.append(f"{where}: its body has no example")
    for code, response in operation.get("responses", {}).items():
        readable = {kind: one for kind, one in response.get("content", {}).items()
                    if kind.startswith("text/") and "html" not in kind or kind == "application/json"}
        if code[0] == "2" and not shows(readable):
            errors.append(f"{where}: {code} has no example")
    for parameter in operation.get("parameters", []):
        if parameter.get("required") and "example" not in parameter:
            errors.append(f"{where}: parameter {parameter.get('name')} has no example")


def check_parameters(path, operation, where, errors):
    declared = []
    for parameter in operation.get("parameters", []):
        name, place = parameter.get("name"), parameter.get("in")
        if place not in {"path", "query", "header", "cookie"}:
            errors.append(f"{where}: parameter {name}: in must be path, query, header or cookie")
        if (name, place) in declared:
            errors.append(f"{where}: parameter {name} is declared twice")
        declared.append((name, place))
        if place == "path" and parameter.get("required") is not True:
            errors.append(f"{where}: path parameter {name} must be required")
        if not parameter.get("description"):
            errors.append(f"{where}: parameter {name} has no description")
        elif numeric(parameter.get("schema", {})) and not UNITS.search(parameter["description"]):
            errors.append(f"{where}: parameter {name} is a number, and its description has no unit")
        check_schema(parameter.get("schema"), f"{where}: parameter {name}", errors)
    in_path = set(re.findall(r"\{([^}]+)\}", path))
    listed = {name for name, place in declared if place == "path"}
    for name in in_path ^ listed:
        errors.append(f"{where}: path parameter {name} is not both in the path and declared")


# What an answer of the status always has, or has where it is known.
HEADERS = {"401": "WWW-Authenticate", "429": "Retry-After", "503": "Retry-After"}


def check_headers(operation, where, errors):
    responses = operation.get("responses", {})
    for code, response in responses.items():
        headers = response.get("headers", {})
        for name, header in headers.items():
            if not header.get("description"):
                errors.append(f"{where}: {code}: header {name} has no description")
            elif numeric(header.get("schema", {})) and not UNITS.search(header["description"]):
                errors.append(f"{where}: {code}: header {name} is a number, and its description has no unit")
            check_schema(header.get("schema"), f"{where}: {code}: header {name}", errors)
        if HEADERS.get(code) and HEADERS[code] not in headers:
            errors.append(f"{where}: {code} has no header {HEADERS[code]}")
        if code == "304" and "ETag" not in headers:
            errors.append(f"{where}: 304 has no header ETag")


def check_tags(document, operation, where, errors):
    declared = {tag.get("name"): tag.get("description") for tag in document.get("tags", [])}
    tags = operation.get("tags", [])
    if not tags:
        errors.append(f"{where}: has no tag")
    for tag in tags:
        if not declared.get(tag):
            errors.append(f"{where}: the tag {tag} is not described")


def check_responses(operation, where, errors):
    responses = operation.get("responses", {})
    if not any(code[0] in "123" for code in responses):
        errors.append(f"{where}: says nothing about success")
    for code, response in responses.items():
        if not re.fullmatch(r"[1-5]\d\d", code):
            errors.append(f"{where}: {code} is no status")
        if not response.get("description"):
            errors.append(f"{where}: {code} has no description")
        if code[0] in "45" and "application/problem+json" not in response.get("content", {}):
            errors.append(f"{where}: {code} is not problem+json")
        for kind, body in response.get("content", {}).items():
            check_schema(body.get("schema"), f"{where}: {code} {kind}", errors)


def named_in(document, node, names):
    if isinstance(node, dict):
        name = str(node.get("$ref", "")).rpartition("/")[2]
        if name and name not in names:
            names.add(name)
            named_in(document, resolve(document, node["$ref"]), names)
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            named_in(document, value, names)


def reached(document, part):
    """The schemas that the operations' bodies, or answers, are made of."""
    names = set()
    for item in document.get("paths", {}).values():
        for operation in item.values():
            named_in(document, operation.get(part), names)
    return names


def check(document):
    errors = []
    if not re.fullmatch(r"3\.1\.\d+", document.get("openapi", "")):
        errors.append("openapi: must be 3.1.x")
    for key in ("title", "version"):
        if not document.get("info", {}).get(key):
            errors.append(f"info/{key}: is missing")
    check_refs(document, document, "#", errors)
    seen = {}
    for path, item in document.get("paths", {}).items():
        if not path.startswith("/"):
            errors.append(f"{path}: must start with /")
        for method, operation in item.items():
            where = f"{method} {path}"
            if method not in METHODS:
                errors.append(f"{where}: no such method")
                continue
            if not operation.get("summary"):
                errors.append(f"{where}: has no summary")
            name = operation.get("operationId")
            if not name or name in seen:
                errors.append(f"{where}: operationId {name} is missing or that of {seen.get(name)}")
            seen[name] = where
            check_parameters(path, operation, where, errors)
            check_responses(operation, where, errors)
            check_headers(operation, where, errors)
            check_tags(document, operation, where, errors)
            check_examples(operation, where, errors)
            if method in {"get", "head", "delete"} and "requestBody" in operation:
                errors.append(f"{where}: must not have a body")
            for kind, body in operation.get("requestBody", {}).get("content", {}).items():
                check_schema(body.get("schema"), f"{where}: body {kind}", errors)
    for name in sorted(reached(document, "requestBody") & reached(document, "responses")):
        errors.append(f"schema {name}: is both what may be sent and what is answered")
    if not seen:
        errors.append("paths: are missing")
    schemas = document.get("components", {}).get("schemas", {})
    text = json.dumps(document)
    for name, schema in schemas.items():
        check_schema(schema, f"schema {name}", errors)
        check_described(document, schema, f"schema {name}", errors)
        if f'"#/components/schemas/{name}"' not in text:
            errors.append(f"schema {name}: is never used")
    used = {name for s in document.get("security", []) for name in s}
    for name in used - set(document.get("components", {}).get("securitySchemes", {})):
        errors.append(f"security scheme {name}: is not defined")
    return errors


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        errors = check(json.load(file))
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
