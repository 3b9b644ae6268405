"""Find breaking changes between two OpenAPI documents: narrower requests, and responses with less or other content.

Additions don't break clients: a route, an optional parameter or field of a request, a field of a response, an error
code. A new value in a closed list of a response is a break, and so is a new success status: clients may switch over
them. So is a changed name that generated clients use: of an operation, its module or a model.

JSON Schema is compared as far as Dyno's documents use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from dyno.models.api_key import Scope
from service.openapi.components import problem_codes

Schema = Mapping[str, Any]

ANNOTATIONS = frozenset({"title", "description", "examples", "example", "deprecated", "discriminator", "$defs"})
_COMPONENTS = "#/components/schemas/"
_ALTERNATIVES = ("anyOf", "oneOf")
_TYPES = {list: "array", bool: "boolean", int: "integer", type(None): "null", float: "number", dict: "object"}
_ANY = frozenset({*_TYPES.values(), "string"})


class Alternative(NamedTuple):
    """A schema without alternatives of its own. `place`: its position in the components; None elsewhere."""

    place: str | None
    schema: Schema

    @property
    def model(self) -> str | None:
        """The name of the component; None for a part of one."""
        name = (self.place or "/").removeprefix(_COMPONENTS)
        return None if "/" in name else name


def resolved(part: Schema, document: Schema) -> Schema:
    """Any part of a document with its reference resolved, merged with the keywords beside the reference."""
    beside: Schema = {}
    while "$ref" in part:
        beside = {**{name: value for name, value in part.items() if name != "$ref"}, **beside}
        part = _at(part["$ref"], document)
    return {**part, **beside}


def alternatives(schema: Schema, document: Schema, place: str | None = None) -> Iterator[Alternative]:
    """Each alternative, with the keywords that apply to all. Each type of a list of types is an alternative."""
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
    """All allowed types; without `type`, those of the enumerated values."""
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


_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "contentMediaType", "contentEncoding")
_STRUCTURE = ("properties", "required", "additionalProperties", "propertyNames", "items", "prefixItems")
_COMPARED = {*_LOWER, *_UPPER, *_EXACT, *_STRUCTURE, "type", "enum", "const", "contentSchema", "default", *ANNOTATIONS}


class Containment:
    """Compare schemas of two documents, `inner` and `outer`, into which their references point.

    With `of_responses` the schemas are of responses, and `inner` is the newer document. Clients skip what is new, but
    need what was there: a field, a value of a closed list, one of several types. Otherwise the schemas are of requests,
    and `inner` is the older document; what clients leave out must keep its meaning.
    """

    def __init__(self, inner: Schema, outer: Schema, *, of_responses: bool = False) -> None:
        self._inner, self._outer, self._responses = inner, outer, of_responses
        self._within = set[tuple[str | None, str | None]]()  # pairs being compared: schemas may be recursive

    def beyond(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        """Why `outer` doesn't allow something that `inner` allows; empty if it allows everything."""
        if not self._responses:
            yield from self._default(resolved(inner, self._inner), resolved(outer, self._outer), at)
        others = list(alternatives(outer, self._outer))
        found = set[int]()
        for each in alternatives(inner, self._inner):
            reasons = [list(self._one(each, other, at)) for other in others]
            nearest = min(range(len(others)), key=lambda index: len(reasons[index]))
            found |= {nearest, *(index for index, reason in enumerate(reasons) if not reason)}
            yield from reasons[nearest]
        for index, other in enumerate(others if self._responses else ()):
            if index not in found and types(other.schema) != {"null"}:
                yield f"{at}: {other.model or _shown(other.schema)} is gone"

    def _default(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        if "default" in inner and ("default" not in outer or inner["default"] != outer["default"]):
            yield self._said(at, "default", inner["default"], outer.get("default"))

    def _one(self, inner: Alternative, outer: Alternative, at: str) -> Iterator[str]:
        older, newer = (outer, inner) if self._responses else (inner, outer)
        if older.model is not None and older.model != newer.model and _is_class(older.schema):
            yield f"{at}: model was {older.model}, is {newer.model}"
        pair = (inner.place, outer.place)
        if pair not in self._within:
            known = {pair} if None not in pair else set()
            self._within |= known
            yield from self._of_schemas(inner.schema, outer.schema, at)
            self._within -= known

    def _of_schemas(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        if not types(inner) <= types(outer) or (self._responses and self._lost(inner, outer)):
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
        """Types that responses no longer have. Clients that read numbers also read integers."""
        lost = types(outer) - types(inner) - {"null"}
        return lost - {"number"} if "integer" in types(inner) else lost

    def _values(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        given, allowed = enumerated(inner), enumerated(outer)
        if allowed is not None and (given is None or [value for value in given if value not in allowed]):
            yield self._said(at, "values", given or "any", allowed)
        elif self._responses and given is not None and allowed and [value for value in allowed if value not in given]:
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
        for name in sorted(allowed.keys() - given.keys()) if self._responses else ():
            yield f"{at}/{name}: is gone"
        for name in sorted(set(outer.get("required", ())) - set(inner.get("required", ()))):
            if name in given or not self._responses:
                yield f"{at}/{name}: " + ("may be missing" if self._responses else "is required")
        for name in sorted(given.keys() & allowed.keys()):
            yield from self.beyond(given[name], allowed[name], f"{at}/{name}")
        more = outer.get("additionalProperties")
        for name in sorted(given.keys() - allowed.keys()):
            if more is False and not self._responses:
                yield f"{at}/{name}: is gone"
            elif isinstance(more, Mapping):
                yield from self.beyond(given[name], more, f"{at}/{name}")

    def _more_fields(self, inner: Schema, outer: Schema, at: str) -> Iterator[str]:
        """Fields without a schema of their own, and their names."""
        if "propertyNames" in outer:
            given, allowed = ({"type": "string", **each.get("propertyNames", {})} for each in (inner, outer))
            yield from self.beyond(given, allowed, f"{at} names")
        more, others = (each.get("additionalProperties", True) for each in (inner, outer))
        if others is False and more is not False and not self._responses:
            yield f"{at}: takes no other fields"
        elif more is False and others is not False and self._responses and "additionalProperties" in outer:
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
        before, after = (outer, inner) if self._responses else (inner, outer)
        return f"{at}: {what} was {before}, is {after}"


def _of(schema: object) -> Schema:
    """The schema; empty if anything is allowed, which may be True, None or an empty schema."""
    return schema if isinstance(schema, Mapping) else {}


def _shown(schema: Schema) -> object:
    return schema.get("type", "any")


def _is_class(schema: Schema) -> bool:
    """Whether client generators make a class of it, named after the component."""
    return "properties" in schema or "enum" in schema


Document = Mapping[str, Any]
_SUCCESS = ("2", "3")


class ResponseChanges:
    def __init__(self, before: Document, after: Document) -> None:
        self._before, self._after = before, after
        self._schemas = Containment(after, before, of_responses=True)

    def of_answers(self, old: Document, new: Document, at: str) -> Iterator[str]:
        """Changes of responses. Clients don't expect a new status, unless it is an error."""
        for status, answer in old.items():
            was, now = resolved(answer, self._before), resolved(new.get(status, {}), self._after)
            if status.startswith(_SUCCESS):
                yield from self.of_answer(was, now, f"{at} {status}") if status in new else [f"{at} {status}: is gone"]
            else:
                yield from self._of_error(was, now, f"{at} {status}")
        for status in sorted(new.keys() - old.keys()):
            if status.startswith(_SUCCESS):
                yield f"{at} {status}: is new"

    def _of_error(self, old: Document, new: Document, at: str) -> Iterator[str]:
        """Codes never change: a missing code may have been renamed, or moved to another status."""
        for code in problem_codes(old):
            if code not in problem_codes(new):
                yield f"{at}: code {code} is gone"
        if new:
            yield from self.of_answer(old, new, at)

    def of_answer(self, old: Document, new: Document, at: str) -> Iterator[str]:
        """Changes of one response, or of the request body that a webhook's receiver gets."""
        yield from self.of_headers(old.get("headers", {}), new.get("headers", {}), at)
        for name in sorted(old.get("links", {}).keys() - new.get("links", {}).keys()):
            yield f"{at} link {name}: is gone"
        for media_type, content in old.get("content", {}).items():
            now = new.get("content", {}).get(media_type)
            if now is None:
                yield f"{at}: {media_type} is gone"
            else:
                for schema in ("schema", "itemSchema"):
                    if schema in content:
                        yield from self._schemas.beyond(now.get(schema, {}), content[schema], at)

    def of_headers(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name, header in old.items():
            if name not in new:
                yield f"{at} header {name}: is gone"
                continue
            was, now = resolved(header, self._before), resolved(new[name], self._after)
            if was.get("required") and not now.get("required"):
                yield f"{at} header {name}: may be missing"
            yield from self._schemas.beyond(now.get("schema", {}), was.get("schema", {}), f"{at} header {name}")


_NAMES = ("operationId", "tags")
_HOW_WRITTEN = ("style", "explode", "allowReserved")


def breaks(before: Document, after: Document) -> list[str]:
    """One line per breaking change, which begins with its place; empty for equal documents."""
    return [] if before == after else list(dict.fromkeys(_Comparison(before, after).breaks()))


class _Comparison:
    def __init__(self, before: Document, after: Document) -> None:
        self._before, self._after = before, after
        self._sent = Containment(before, after)  # requests that were accepted must still be
        self._received = ResponseChanges(before, after)

    def breaks(self) -> Iterator[str]:
        for path, methods in self._before["paths"].items():
            for method, operation in methods.items():
                at = f"{method.upper()} {path}"
                now = self._after["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{at}: is gone"
                else:
                    yield from self._of_operation(operation, now, at)
        for name, webhook in self._before.get("webhooks", {}).items():
            yield from self._of_webhook(webhook, self._after.get("webhooks", {}).get(name), f"webhook {name}")
        before, after = (each["components"].get("securitySchemes", {}) for each in (self._before, self._after))
        for name in before:
            if _plain(before[name]) != _plain(after.get(name, {})):
                yield f"security {name}: was {_plain(before[name])}, is {_plain(after.get(name, {}))}"

    def _of_webhook(self, old: Document, new: Document | None, at: str) -> Iterator[str]:
        """Changes of a webhook, whose parameters and body are data that clients receive."""
        if new is None:
            yield f"{at}: is gone"
            return
        before, after = (
            {each["name"]: each for each in webhook["post"].get("parameters", [])} for webhook in (old, new)
        )
        yield from self._received.of_headers(before, after, at)
        yield from self._received.of_answer(old["post"]["requestBody"], new["post"]["requestBody"], at)

    def _of_operation(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name in _NAMES:
            if old.get(name) != new.get(name):
                yield f"{at}: {name} was {old.get(name)}, is {new.get(name)}"
        if not all(any(_lets_in(each, other) for other in _ways_in(new)) for each in _ways_in(old)):
            yield f"{at}: security was {_ways_in(old)}, is {_ways_in(new)}"
        yield from self._of_parameters(_parameters(old), _parameters(new), at)
        yield from self._of_body(old.get("requestBody"), new.get("requestBody"), at)
        yield from self._received.of_answers(old["responses"], new["responses"], at)

    def _of_parameters(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name, parameter in new.items():
            if parameter.get("required") and not old.get(name, {}).get("required"):
                yield f"{at} {name}: is required"
        for name, parameter in old.items():
            if name not in new:
                yield f"{at} {name}: is gone"
                continue
            for how in _HOW_WRITTEN:
                if parameter.get(how) != new[name].get(how):
                    yield f"{at} {name}: {how} was {parameter.get(how)}, is {new[name].get(how)}"
            yield from self._sent.beyond(parameter["schema"], new[name]["schema"], f"{at} {name}")

    def _of_body(self, old: Document | None, new: Document | None, at: str) -> Iterator[str]:
        if new is not None and new.get("required") and not (old or {}).get("required"):
            yield f"{at} body: is required"
        for media_type, content in (old or {}).get("content", {}).items():
            now = (new or {}).get("content", {}).get(media_type)
            if now is None:
                yield f"{at} body: {media_type} is gone"
            else:
                yield from self._sent.beyond(content.get("schema", {}), now.get("schema", {}), f"{at} body")


def _parameters(operation: Document) -> dict[str, Document]:
    return {f"{each['in']} {each['name']}": each for each in operation.get("parameters", [])}


def _ways_in(operation: Document) -> list[dict[str, list[str]]]:
    """The security requirements, one of which is enough; an empty one means public."""
    return operation.get("security") or [{}]


def _lets_in(known: Mapping[str, list[str]], needed: Mapping[str, list[str]]) -> bool:
    """Whether credentials that met the `known` requirement meet the `needed` one."""
    return all(scheme in known and set(scopes) <= _implied(known[scheme]) for scheme, scopes in needed.items())


def _implied(scopes: list[str]) -> set[str]:
    return set(scopes).union(*(Scope(each).implied for each in scopes if each in list(Scope)))


def _plain(scheme: Document) -> dict[str, Any]:
    return {name: value for name, value in scheme.items() if name != "description"}
