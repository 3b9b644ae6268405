"""Schemas of what is told: a newer service may tell more, so none of them says that there are no other fields.

What is asked stays closed. Of a model that is part of both, requests get a schema of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

_REF = "#/components/schemas/"
_OWN = "Submit"  # as the bodies of requests are named

Schemas = dict[str, Any]


def open_answers(document: dict[str, Any]) -> None:
    """Let every schema that an answer, or what a webhook is sent, leads to have fields that aren't listed."""
    schemas: Schemas = document["components"]["schemas"]
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    told = _within([[operation["responses"] for operation in operations], document.get("webhooks", {})], schemas)
    asked = _within([operation.get("requestBody") for operation in operations], schemas)
    closed = {name for name in told if schemas[name].get("additionalProperties") is False}
    for name in closed & asked:
        schemas[f"{_OWN}{name}"] = schemas[name] | {"title": f"{_OWN}{name}"}
    for operation in operations:
        if "requestBody" in operation:
            operation["requestBody"] = _renamed(operation["requestBody"], closed & asked)
    for name in asked - told:
        schemas[name] = _renamed(schemas[name], closed & asked)
    for name in closed:
        schemas[name] = {key: value for key, value in schemas[name].items() if key != "additionalProperties"}


def _within(value: Any, schemas: Schemas) -> set[str]:
    """The names of all schemas that `value` leads to."""
    found: set[str] = set()
    left = [value]
    while left:
        names = {part["$ref"].removeprefix(_REF) for part in _parts(left.pop()) if _is_schema(part.get("$ref"))}
        left += [schemas[name] for name in names - found]
        found |= names
    return found


def _renamed(value: Any, names: Collection[str]) -> Any:
    """The same with references to requests' own; models' parts of a document may be shared, so none is changed."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    if _is_schema(value.get("$ref")) and value["$ref"].removeprefix(_REF) in names:
        return value | {"$ref": value["$ref"].replace(_REF, _REF + _OWN)}
    return {key: _renamed(each, names) for key, each in value.items()}


def _is_schema(reference: object) -> bool:
    return isinstance(reference, str) and reference.startswith(_REF)


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in it."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(each)
