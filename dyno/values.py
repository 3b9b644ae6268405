"""What a param may be, in a line: of its JSON Schema, with its bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_LEAST = {"minimum": "from", "exclusiveMinimum": "above"}
_MOST = {"maximum": "to", "exclusiveMaximum": "below"}


def values(schema: Schema, whole: Schema) -> str:
    """As `integer from 1 to 4096, or null`; `whole` holds the definitions that `schema` refers to."""
    if "anyOf" in schema:
        return ", or ".join(values(each, whole) for each in schema["anyOf"])
    if "$ref" in schema:
        return values(whole.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {}), whole)
    if "enum" in schema or "const" in schema:
        return ", ".join(map(_plain, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"array{_count(schema)}, each {values(schema.get('items', {}), whole)}"
    if schema.get("type") == "object":
        return json.dumps(dict.fromkeys(schema.get("properties", {}), "…"), ensure_ascii=False)
    return " ".join([str(schema.get("type", "anything")), *_bounds(schema)])


def _bounds(schema: Schema) -> Iterator[str]:
    for words in (_LEAST, _MOST):
        yield from (f"{word} {schema[name]}" for name, word in words.items() if name in schema)


def _count(schema: Schema) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is None and most is None:
        return ""
    return f" of {least}" if least == most else f" with {least or 0} to {most or 'more'}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
