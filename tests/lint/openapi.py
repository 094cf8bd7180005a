"""Lint of the generated OpenAPI document: python3 openapi.py FILE (standard library only).

Every $ref resolves, every path parameter is declared, every operation has a summary and a unique
operationId, every 4xx and 5xx is problem+json, every parameter and schema property is well-formed.
Ends 1 and names each mistake, otherwise 0.
"""

import json
import re
import sys

METHODS = {"get", "head", "post", "put", "patch", "delete", "options", "trace"}
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
        check_schema(parameter.get("schema"), f"{where}: parameter {name}", errors)
    in_path = set(re.findall(r"\{([^}]+)\}", path))
    listed = {name for name, place in declared if place == "path"}
    for name in in_path ^ listed:
        errors.append(f"{where}: path parameter {name} is not both in the path and declared")


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
            if method in {"get", "head", "delete"} and "requestBody" in operation:
                errors.append(f"{where}: must not have a body")
            for kind, body in operation.get("requestBody", {}).get("content", {}).items():
                check_schema(body.get("schema"), f"{where}: body {kind}", errors)
    if not seen:
        errors.append("paths: are missing")
    schemas = document.get("components", {}).get("schemas", {})
    text = json.dumps(document)
    for name, schema in schemas.items():
        check_schema(schema, f"schema {name}", errors)
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
