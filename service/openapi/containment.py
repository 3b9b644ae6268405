"""Whether all that one JSON Schema allows is allowed by another: as far as these documents use JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_ANY = ("array", "boolean", "integer", "null", "number", "object", "string")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "contentMediaType")


class Containment:
    """`inner` and `outer` are the documents that references of either schema lead into.

    `told`: the schemas are of answers, `inner` of the newer one. Who reads them skips what is new to him, and misses
    what was there: a field, or a value of a closed list.
    """

    def __init__(self, inner: Schema, outer: Schema, *, told: bool = False) -> None:
        self._inner, self._outer, self._is_told = inner, outer, told
        self._within: set[tuple[str, str]] = set()  # pairs of references that are being compared: schemas may recur

    def beyond(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        """Why something that `inner` allows isn't allowed by `outer`; nothing where all is."""
        pair = (inner.get("$ref", ""), outer.get("$ref", ""))
        if any(pair):
            if pair in self._within:
                return
            self._within.add(pair)
        inner, outer = _resolved(inner, self._inner), _resolved(outer, self._outer)
        for option in _options(inner):
            reasons = [list(self._one(option, other, at)) for other in _options(outer)]
            yield from min(reasons, key=len)
        self._within.discard(pair)

    def _one(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        if "$ref" in inner or "$ref" in outer or len(_options(inner)) > 1 or len(_options(outer)) > 1:
            yield from self.beyond(inner, outer, at)
            return
        if not _types(inner) <= _types(outer, unless_said=_ANY):
            yield self._said(at, "type", _shown(inner), _shown(outer))
            return
        yield from self._values(inner, outer, at)
        yield from self._bounds(inner, outer, at)
        yield from self._fields(inner, outer, at)
        yield from self._items(inner, outer, at)

    def _values(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        given, allowed = _enumerated(inner), _enumerated(outer)
        if allowed is not None and (given is None or [value for value in given if value not in allowed]):
            yield self._said(at, "values", given or "any", allowed)
        elif self._is_told and given is not None and allowed and [value for value in allowed if value not in given]:
            yield self._said(at, "values", given, allowed)

    def _bounds(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        for names, looser in ((_LOWER, min), (_UPPER, max)):
            for name in names:
                given, allowed = inner.get(name), outer.get(name)
                if allowed is not None and (given is None or looser(given, allowed) != allowed):
                    yield self._said(at, name, given, allowed)
        for name in _EXACT:
            if outer.get(name) not in (None, inner.get(name)):
                yield self._said(at, name, inner.get(name), outer[name])

    def _fields(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        given, allowed = inner.get("properties", {}), outer.get("properties", {})
        for name in allowed.keys() - given.keys() if self._is_told else ():
            yield f"{at}/{name}: is gone"
        for name in sorted(set(outer.get("required", ())) - set(inner.get("required", ()))):
            if name in given or not self._is_told:
                yield f"{at}/{name}: " + ("may be missing" if self._is_told else "is required")
        for name in given.keys() & allowed.keys():
            yield from self.beyond(given[name], allowed[name], f"{at}/{name}")
        closed = outer.get("additionalProperties") is False and not self._is_told
        for name in given.keys() - allowed.keys() if closed else ():
            yield f"{at}/{name}: is gone"
        more, others = inner.get("additionalProperties", True), outer.get("additionalProperties", True)
        if isinstance(more, Mapping) and isinstance(others, Mapping):
            yield from self.beyond(more, others, f"{at}/*")
        elif closed and more is not False:
            yield f"{at}: takes no other fields"

    def _items(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        pairs = [(inner.get("items"), outer.get("items"))]
        pairs += zip(inner.get("prefixItems", ()), outer.get("prefixItems", ()), strict=False)
        for given, allowed in pairs:
            if isinstance(allowed, Mapping):
                yield from self.beyond(given if isinstance(given, Mapping) else {}, allowed, f"{at}/[]")

    def _said(self, at: str, what: str, inner: object, outer: object) -> str:
        before, after = (outer, inner) if self._is_told else (inner, outer)
        return f"{at}: {what} was {before}, is {after}"


def _resolved(schema: Schema, document: Schema) -> Schema:
    while "$ref" in schema:
        found: Any = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema


def _options(schema: Schema) -> Sequence[Schema]:
    return schema.get("anyOf") or schema.get("oneOf") or [schema]


def _types(schema: Schema, unless_said: Sequence[str] = ()) -> frozenset[str]:
    """Values say their type themselves; without any, `unless_said`, all types are allowed."""
    given = schema.get("type", unless_said if _enumerated(schema) else _ANY)
    types = frozenset([given] if isinstance(given, str) else given)
    return types | {"integer"} if "number" in types else types


def _shown(schema: Schema) -> object:
    return schema.get("type", "any")


def _enumerated(schema: Schema) -> list[object] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")
