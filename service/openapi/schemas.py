"""A JSON Schema of the document, read: what its references lead to, its alternatives, its types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Schema = Mapping[str, Any]

ANNOTATIONS = frozenset({"title", "description", "examples", "example", "deprecated", "discriminator", "$defs"})
_COMPONENTS = "#/components/schemas/"
_ALTERNATIVES = ("anyOf", "oneOf")
_TYPES = {list: "array", bool: "boolean", int: "integer", type(None): "null", float: "number", dict: "object"}
_ANY = frozenset({*_TYPES.values(), "string"})


class Alternative(NamedTuple):
    """A schema without alternatives of its own. `place`: where in the components it stands, null for elsewhere."""

    place: str | None
    schema: Schema

    @property
    def model(self) -> str | None:
        """The component that it is; null where it is only a part of one."""
        name = (self.place or "/").removeprefix(_COMPONENTS)
        return None if "/" in name else name


def resolved(part: Schema, document: Schema) -> Schema:
    """What the references of `part`, if it is one, lead to, and what stands beside them; any part of a document."""
    beside: Schema = {}
    while "$ref" in part:
        beside = {**{name: value for name, value in part.items() if name != "$ref"}, **beside}
        part = _at(part["$ref"], document)
    return {**part, **beside}


def alternatives(schema: Schema, document: Schema, place: str | None = None) -> Iterator[Alternative]:
    """Each with what holds for all of them; of a list of types each type is one."""
    place, whole = schema.get("$ref", place), resolved(schema, document)
    several = next((name for name in _ALTERNATIVES if name in whole), None)
    if several is not None:
        rest = {name: value for name, value in whole.items() if name not in {several, "default", *ANNOTATIONS}}
        for index, each in enumerate(whole[several]):
            yield from alternatives({**rest, **each}, document, place and f"{place}/{index}")
    elif isinstance(whole.get("type"), list):
        for each in whole["type"]:
            yield Alternative(place and f"{place}/{each}", {**whole, "type": each})
    else:
        yield Alternative(place, whole)


def types(schema: Schema) -> frozenset[str]:
    """All that are allowed; values without a type have their own."""
    if "type" in schema:
        found = frozenset([schema["type"]])
    else:
        values = enumerated(schema)
        found = _ANY if values is None else frozenset(_TYPES.get(type(value), "string") for value in values)
    return found | {"integer"} if "number" in found else found


def enumerated(schema: Schema) -> list[object] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _at(reference: str, document: Schema) -> Schema:
    found: Any = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found  # type: ignore[no-any-return]
