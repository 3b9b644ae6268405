"""Whether all that one JSON Schema allows is allowed by another: as far as these documents use JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from service.openapi.schemas import ANNOTATIONS, Alternative, Schema, alternatives, enumerated, resolved, types

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "contentMediaType", "contentEncoding")
_STRUCTURE = ("properties", "required", "additionalProperties", "propertyNames", "items", "prefixItems")
_COMPARED = {*_LOWER, *_UPPER, *_EXACT, *_STRUCTURE, "type", "enum", "const", "contentSchema", "default", *ANNOTATIONS}


class Containment:
    """`inner` and `outer` are the documents that references of either schema lead into.

    `told`: the schemas are of answers, `inner` of the newer one. Who reads them skips what is new to him, and misses
    what was there: a field, a value of a closed list, one of several types. Else `inner` is of the older one, and what
    is left out of a request has to mean what it meant.
    """

    def __init__(self, inner: Schema, outer: Schema, *, told: bool = False) -> None:
        self._inner, self._outer, self._is_told = inner, outer, told
        self._within = set[tuple[str | None, str | None]]()  # places that are being compared: schemas may recur

    def beyond(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        """Why something that `inner` allows isn't allowed by `outer`; nothing where all is."""
        if not self._is_told:
            yield from self._default(resolved(inner, self._inner), resolved(outer, self._outer), at)
        others = list(alternatives(outer, self._outer))
        found = set[int]()
        for each in alternatives(inner, self._inner):
            reasons = [list(self._one(each, other, at)) for other in others]
            nearest = min(range(len(others)), key=lambda index: len(reasons[index]))
            found |= {nearest, *(index for index, reason in enumerate(reasons) if not reason)}
            yield from reasons[nearest]
        for index, other in enumerate(others if self._is_told else ()):
            if index not in found and types(other.schema) != {"null"}:
                yield f"{at}: {other.model or _shown(other.schema)} is gone"

    def _default(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        if "default" in inner and ("default" not in outer or inner["default"] != outer["default"]):
            yield self._said(at, "default", inner["default"], outer.get("default"))

    def _one(self, inner: Alternative, outer: Alternative, at: str) -> Iterator[str]:
        older, newer = (outer, inner) if self._is_told else (inner, outer)
        if older.model is not None and older.model != newer.model and _is_class(older.schema):
            yield f"{at}: model was {older.model}, is {newer.model}"
        pair = (inner.place, outer.place)
        if pair not in self._within:
            known = {pair} if None not in pair else set()
            self._within |= known
            yield from self._of_schemas(inner.schema, outer.schema, at)
            self._within -= known

    def _of_schemas(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        if not types(inner) <= types(outer) or (self._is_told and self._lost(inner, outer)):
            yield self._said(at, "type", _shown(inner), _shown(outer))
            return
        yield from self._values(inner, outer, at)
        yield from self._bounds(inner, outer, at)
        yield from self._fields(inner, outer, at)
        yield from self._more_fields(inner, outer, at)
        yield from self._items(inner, outer, at)
        if "contentSchema" in outer:
            yield from self.beyond(inner.get("contentSchema", {}), outer["contentSchema"], at)
        for name in sorted((inner.keys() | outer.keys()) - _COMPARED):
            if inner.get(name) != outer.get(name) and not name.startswith("x-"):
                yield f"{at}: can't be compared: {name}"

    def _lost(self, inner: Schema, outer: Schema) -> frozenset[str]:
        """Types that are told of no more. Whoever reads numbers reads integers."""
        lost = types(outer) - types(inner) - {"null"}
        return lost - {"number"} if "integer" in types(inner) else lost

    def _values(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        given, allowed = enumerated(inner), enumerated(outer)
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
        for name in sorted(allowed.keys() - given.keys()) if self._is_told else ():
            yield f"{at}/{name}: is gone"
        for name in sorted(set(outer.get("required", ())) - set(inner.get("required", ()))):
            if name in given or not self._is_told:
                yield f"{at}/{name}: " + ("may be missing" if self._is_told else "is required")
        for name in sorted(given.keys() & allowed.keys()):
            yield from self.beyond(given[name], allowed[name], f"{at}/{name}")
        more = outer.get("additionalProperties")
        for name in sorted(given.keys() - allowed.keys()):
            if more is False and not self._is_told:
                yield f"{at}/{name}: is gone"
            elif isinstance(more, Mapping):
                yield from self.beyond(given[name], more, f"{at}/{name}")

    def _more_fields(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        """Fields that have no schema of their own, and what they may be called."""
        if "propertyNames" in outer:
            given, allowed = ({"type": "string", **each.get("propertyNames", {})} for each in (inner, outer))
            yield from self.beyond(given, allowed, f"{at} names")
        more, others = (each.get("additionalProperties", True) for each in (inner, outer))
        if others is False and more is not False and not self._is_told:
            yield f"{at}: takes no other fields"
        elif more is False and others is not False and self._is_told and "additionalProperties" in outer:
            yield f"{at}/*: is gone"
        elif more is not False and others is not False and "additionalProperties" in outer:
            yield from self.beyond(_of(more), _of(others), f"{at}/*")

    def _items(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        pairs = [(inner.get("items"), outer.get("items"))]
        pairs += zip_longest(inner.get("prefixItems", ()), outer.get("prefixItems", ()))
        for given, allowed in pairs:
            if isinstance(allowed, Mapping):
                yield from self.beyond(_of(given), allowed, f"{at}/[]")

    def _said(self, at: str, what: str, inner: object, outer: object) -> str:
        before, after = (outer, inner) if self._is_told else (inner, outer)
        return f"{at}: {what} was {before}, is {after}"


def _of(schema: object) -> Schema:
    """Where anything is allowed, that may be said in three ways."""
    return schema if isinstance(schema, Mapping) else {}


def _shown(schema: Schema) -> object:
    return schema.get("type", "any")


def _is_class(schema: Schema) -> bool:
    """Whether makers of clients make a class of it, named after the component."""
    return "properties" in schema or "enum" in schema
