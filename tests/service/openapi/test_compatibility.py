"""Breaking changes of schemas in requests and responses, and of whole documents.

Each test makes one change to a document that has some of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from service.openapi.compatibility import Containment, breaks

Schema = dict[str, Any]

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
JOB = {"$ref": "#/components/schemas/Job"}
WORK = {"$ref": "#/components/schemas/Work"}
TREE = {"$ref": "#/components/schemas/Tree"}
MODEL = {"type": "object", "properties": {"id": STRING, "next": {"anyOf": [JOB, NULL]}}, "required": ["id"]}
DOCUMENT = {
    "components": {
        "schemas": {
            "Job": MODEL,
            "Work": MODEL,
            "Tree": {"anyOf": [{"type": "array", "items": TREE}, STRING]},
            "Any": {},
        }
    }
}


def a(kind: str, **properties: Schema) -> Schema:
    """An event of a stream."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": an(**properties)}
    return {"type": "object", "properties": {"event": {"const": kind}, "data": data}}


def an(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def mapping(others: object) -> Schema:
    return {"type": "object", "additionalProperties": others}


def named(**names: object) -> Schema:
    return {"type": "object", "propertyNames": names}


def pair(*items: Schema) -> Schema:
    return {"type": "array", "prefixItems": list(items)}


def taken(before: Schema, after: Schema) -> list[str]:
    return list(Containment(DOCUMENT, DOCUMENT).beyond(before, after, "at"))


def told(before: Schema, after: Schema) -> list[str]:
    return list(Containment(DOCUMENT, DOCUMENT, of_responses=True).beyond(after, before, "at"))


TAKEN: list[tuple[Schema, Schema, str]] = [
    (named(maxLength=63), named(maxLength=8), "at names: maxLength was 63, is 8"),
    ({"type": "object"}, named(pattern="^a"), "at names: pattern was None, is ^a"),
    (INTEGER | {"default": 50}, INTEGER | {"default": 1}, "at: default was 50, is 1"),
    (INTEGER | {"default": 50}, INTEGER, "at: default was 50, is None"),
    (INTEGER | {"default": None}, INTEGER | {"default": 1}, "at: default was None, is 1"),
    (JOB | {"default": {"id": "a"}}, JOB | {"default": {"id": "b"}}, "at: default was {'id': 'a'}, is {'id': 'b'}"),
    ({"anyOf": [INTEGER, NULL], "default": 1}, {"anyOf": [INTEGER, NULL], "default": 2}, "at: default was 1, is 2"),
    (MODEL, MODEL | {"allOf": [{"required": ["next"]}]}, "at: can't be compared: allOf"),
    (INTEGER, INTEGER | {"not": {"const": 0}}, "at: can't be compared: not"),
    (MODEL, MODEL | {"dependentRequired": {"id": ["next"]}}, "at: can't be compared: dependentRequired"),
    (mapping(True) | {"patternProperties": {"^x": STRING}}, mapping(True), "at: can't be compared: patternProperties"),
    ({"anyOf": [INTEGER, NULL]}, {"anyOf": [INTEGER, NULL], "maximum": 5}, "at: maximum was None, is 5"),
    ({"type": "object"}, mapping(STRING), "at/*: type was any, is string"),
    (mapping(True), mapping(False), "at: takes no other fields"),
    (an(x=INTEGER), an() | {"additionalProperties": STRING}, "at/x: type was integer, is string"),
    ({"type": "string"}, {"type": "string", "contentSchema": an(x=INTEGER)}, "at: type was any, is object"),
    ({"type": ["string", "null"]}, STRING, "at: type was null, is string"),
    ({"enum": [1, "a"]}, {"type": "integer", "enum": [1, "a"]}, "at: type was any, is integer"),
    (pair(STRING, STRING), pair(STRING, INTEGER), "at/[]: type was string, is integer"),
    (JOB, WORK, "at: model was Job, is Work"),
    (JOB, MODEL, "at: model was Job, is None"),
]
TOLD: list[tuple[Schema, Schema, str]] = [
    ({"anyOf": [JOB, STRING]}, JOB, "at: string is gone"),
    ({"oneOf": [JOB, STRING]}, {"oneOf": [STRING]}, "at: Job is gone"),
    ({"anyOf": [JOB, NULL]}, NULL, "at: Job is gone"),
    ({"type": ["integer", "string"]}, INTEGER, "at: string is gone"),
    ({}, STRING, "at: type was any, is string"),
    (mapping(True), mapping(False), "at/*: is gone"),
    (mapping(STRING), mapping(False), "at/*: is gone"),
    (mapping({"$ref": "#/components/schemas/Any"}), mapping(STRING), "at/*: type was any, is string"),
    (mapping(STRING), mapping(True), "at/*: type was string, is any"),
    (a("status", done=INTEGER), a("status"), "at/data/done: is gone"),
    (a("status", done=INTEGER), a("status", done=STRING), "at/data/done: type was integer, is string"),
    ({"oneOf": [a("status"), a("log")]}, {"oneOf": [a("status")]}, "at: object is gone"),
    (an(id=JOB), an(id=WORK), "at/id: model was Job, is Work"),
    (pair(STRING, INTEGER), pair(STRING), "at/[]: type was integer, is any"),
    (named(maxLength=8), named(maxLength=63), "at names: maxLength was 8, is 63"),
    (INTEGER, INTEGER | {"if": {"const": 1}}, "at: can't be compared: if"),
]
BOTH_WAYS: list[tuple[Schema, Schema]] = [
    (INTEGER, INTEGER | {"title": "N", "description": "Other words", "examples": [1]}),
    (INTEGER, INTEGER | {"x-shown": False}),
    ({"anyOf": [STRING, NULL]}, {"type": ["string", "null"]}),
    ({"anyOf": [JOB, STRING]}, {"anyOf": [STRING, JOB]}),
    ({"type": "string", "const": "a"}, {"enum": ["a"]}),
    (TREE, TREE | {"description": "Other words"}),
    (mapping({}), mapping(True)),
]


@pytest.mark.parametrize(("before", "after", "said"), TAKEN, ids=[said for *_, said in TAKEN])
def test_requests_no_longer_accepted_are_named(before: Schema, after: Schema, said: str) -> None:
    assert said in taken(before, after)


@pytest.mark.parametrize(("before", "after", "said"), TOLD, ids=[said for *_, said in TOLD])
def test_data_missing_from_responses_is_named(before: Schema, after: Schema, said: str) -> None:
    assert said in told(before, after)


@pytest.mark.parametrize(("before", "after"), BOTH_WAYS)
def test_equivalent_schemas_are_no_break(before: Schema, after: Schema) -> None:
    assert taken(before, after) == taken(after, before) == []
    assert told(before, after) == told(after, before) == []


@pytest.mark.parametrize("schema", [JOB, TREE, {"anyOf": [JOB, WORK, NULL]}, a("status", job=JOB)])
def test_a_schema_contains_itself(schema: Schema) -> None:
    assert taken(schema, schema) == told(schema, schema) == []


def test_integers_may_replace_numbers_and_null_may_go() -> None:
    assert told({"type": "number"}, INTEGER) == []
    assert told({"anyOf": [JOB, NULL]}, JOB) == []


def test_only_the_nearest_alternative_is_reported() -> None:
    before = {"anyOf": [an(a=STRING, b=STRING, c=STRING), an(x=STRING)]}
    assert told(before, {"anyOf": [an(a=STRING, b=STRING), an(x=STRING)]}) == ["at/c: is gone"]


def test_a_new_default_is_no_break() -> None:
    assert taken(INTEGER, INTEGER | {"default": 5}) == []


Document = dict[str, Any]

THING = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "state": {"type": "string", "enum": ["new", "old"]},
        "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
    },
    "required": ["id", "state"],
}
ASKED = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "n": {"type": "number", "minimum": 0},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "of": {"oneOf": [{"type": "object", "properties": {"x": {"const": 1}}}, {"type": "string"}]},
    },
    "required": ["name"],
}
POST = {
    "operationId": "makeThing",
    "tags": ["things"],
    "security": [{"key": ["submit"]}],
    "parameters": [
        {"in": "query", "name": "wait", "required": False, "schema": {"type": "integer", "maximum": 60, "default": 10}}
    ],
    "requestBody": {"required": False, "content": {"application/json": {"schema": ASKED}}},
    "responses": {
        "201": {
            "headers": {"Location": {"$ref": "#/components/headers/Location"}},
            "links": {"listThings": {"operationId": "listThings"}},
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}, "text/csv": {}},
        },
        "404": {"$ref": "#/components/responses/404.no-box.no-room"},
        "422": {"content": {"application/problem+json": {"schema": {"type": "object"}}}},
    },
}
BEFORE: Document = {
    "paths": {"/things": {"post": POST, "get": {"operationId": "listThings", "responses": {"200": {}}}}},
    "webhooks": {
        "thingMade": {
            "post": {
                "parameters": [{"in": "header", "name": "webhook-id", "required": True, "schema": {"type": "string"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Sent"}}}},
            }
        }
    },
    "components": {
        "schemas": {"Thing": THING, "Sent": deepcopy(THING)},
        "headers": {"Location": {"schema": {"type": "string"}}},
        "responses": {"404.no-box.no-room": {"description": "`no-box`, `no-room`"}},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key"}},
    },
}


def post(document: Document) -> Document:
    return document["paths"]["/things"]["post"]  # type: ignore[no-any-return]


def asked(document: Document) -> Document:
    return post(document)["requestBody"]["content"]["application/json"]["schema"]  # type: ignore[no-any-return]


def thing(document: Document) -> Document:
    return document["components"]["schemas"]["Thing"]  # type: ignore[no-any-return]


def sent(document: Document) -> Document:
    return document["components"]["schemas"]["Sent"]  # type: ignore[no-any-return]


def wait(document: Document) -> Document:
    return post(document)["parameters"][0]  # type: ignore[no-any-return]


def answer(document: Document) -> Document:
    return post(document)["responses"]["201"]  # type: ignore[no-any-return]


def header(document: Document) -> Document:
    return document["components"]["headers"]["Location"]  # type: ignore[no-any-return]


def missing(document: Document) -> Document:
    return document["components"]["responses"]["404.no-box.no-room"]  # type: ignore[no-any-return]


def sign(document: Document) -> Document:
    return document["webhooks"]["thingMade"]["post"]["parameters"][0]  # type: ignore[no-any-return]


BREAKING: list[tuple[Callable[[Document], object], str]] = [
    (lambda d: d["paths"].pop("/things"), "POST /things: is gone"),
    (lambda d: d["paths"]["/things"].pop("get"), "GET /things: is gone"),
    (lambda d: post(d).update(operationId="addThing"), "POST /things: operationId was makeThing, is addThing"),
    (lambda d: post(d).update(tags=["boxes"]), "POST /things: tags was ['things'], is ['boxes']"),
    (
        lambda d: d["paths"]["/things"]["get"].update(security=[{"key": ["read"]}]),
        "GET /things: security was [{}], is [{'key': ['read']}]",
    ),
    (
        lambda d: post(d).update(security=[{"key": ["admin"]}]),
        "POST /things: security was [{'key': ['submit']}], is [{'key': ['admin']}]",
    ),
    (
        lambda d: post(d).update(security=[{"attempt": []}]),
        "POST /things: security was [{'key': ['submit']}], is [{'attempt': []}]",
    ),
    (
        lambda d: post(d).update(security=[{"key": ["submit"], "attempt": []}]),
        "POST /things: security was [{'key': ['submit']}], is [{'key': ['submit'], 'attempt': []}]",
    ),
    (lambda d: d["components"]["securitySchemes"]["key"].update(scheme="basic"), "security key: was {'type': 'http'"),
    (lambda d: post(d)["parameters"].clear(), "POST /things query wait: is gone"),
    (lambda d: wait(d).update(required=True), "POST /things query wait: is required"),
    (lambda d: wait(d)["schema"].update(maximum=30), "POST /things query wait: maximum was 60, is 30"),
    (lambda d: wait(d)["schema"].update(type="string"), "POST /things query wait: type was integer, is string"),
    (
        lambda d: post(d)["parameters"].append({"in": "header", "name": "x", "required": True, "schema": {}}),
        "POST /things header x: is required",
    ),
    (lambda d: wait(d).update(style="simple"), "POST /things query wait: style was None, is simple"),
    (lambda d: wait(d)["schema"].update(default=5), "POST /things query wait: default was 10, is 5"),
    (lambda d: post(d)["requestBody"].update(required=True), "POST /things body: is required"),
    (lambda d: post(d)["requestBody"]["content"].clear(), "POST /things body: application/json is gone"),
    (lambda d: asked(d)["required"].append("kind"), "POST /things body/kind: is required"),
    (lambda d: asked(d)["properties"].pop("kind"), "POST /things body/kind: is gone"),
    (lambda d: asked(d)["properties"]["kind"]["enum"].pop(), "body/kind: values was ['a', 'b'], is ['a']"),
    (lambda d: asked(d)["properties"]["n"].update(type="integer"), "body/n: type was number, is integer"),
    (lambda d: asked(d)["properties"]["n"].update(minimum=1), "body/n: minimum was 0, is 1"),
    (lambda d: asked(d)["properties"]["name"].update(maxLength=4), "body/name: maxLength was 8, is 4"),
    (lambda d: asked(d)["properties"]["name"].update(pattern="^a"), "body/name: pattern was None, is ^a"),
    (
        lambda d: asked(d)["properties"]["labels"]["additionalProperties"].update(maxLength=3),
        "body/labels/*: maxLength was None, is 3",
    ),
    (lambda d: asked(d)["properties"]["of"]["oneOf"].pop(), "body/of: type was string, is object"),
    (lambda d: post(d)["responses"].pop("201"), "POST /things 201: is gone"),
    (lambda d: answer(d)["content"].pop("text/csv"), "POST /things 201: text/csv is gone"),
    (lambda d: answer(d)["headers"].clear(), "POST /things 201 header Location: is gone"),
    (lambda d: header(d)["schema"].update(type="integer"), "201 header Location: type was string, is integer"),
    (lambda d: answer(d)["links"].clear(), "POST /things 201 link listThings: is gone"),
    (lambda d: post(d)["responses"].update({"204": {}}), "POST /things 204: is new"),
    (lambda d: missing(d).update(description="`no-box`"), "POST /things 404: code no-room is gone"),
    (lambda d: missing(d).update(description="`no-box`, `full`"), "POST /things 404: code no-room is gone"),
    (lambda d: post(d)["responses"].pop("404"), "POST /things 404: code no-box is gone"),
    (lambda d: thing(d)["properties"].pop("size"), "POST /things 201/size: is gone"),
    (lambda d: thing(d)["properties"].pop("id"), "POST /things 201/id: is gone"),
    (lambda d: thing(d)["required"].remove("id"), "POST /things 201/id: may be missing"),
    (lambda d: thing(d)["properties"]["id"].update(type=["string", "null"]), "201/id: type was string, is"),
    (lambda d: thing(d)["properties"]["state"]["enum"].append("odd"), "201/state: values was ['new', 'old'], is"),
    (lambda d: thing(d)["properties"]["state"]["enum"].pop(), "201/state: values was ['new', 'old'], is ['new']"),
    (
        lambda d: thing(d)["properties"]["parts"].update(items={"type": "string"}),
        "201/parts/[]: type was object, is string",
    ),
    (lambda d: d.pop("webhooks"), "webhook thingMade: is gone"),
    (
        lambda d: d["webhooks"]["thingMade"]["post"]["parameters"].clear(),
        "webhook thingMade header webhook-id: is gone",
    ),
    (lambda d: sign(d).update(required=False), "webhook thingMade header webhook-id: may be missing"),
    (lambda d: sign(d)["schema"].update(type="integer"), "thingMade header webhook-id: type was string, is integer"),
    (lambda d: sent(d)["properties"].pop("id"), "webhook thingMade/id: is gone"),
]
HARMLESS: list[Callable[[Document], object]] = [
    lambda d: d["paths"].update({"/more": {"get": {"responses": {}}}}),
    lambda d: post(d)["parameters"].append({"in": "query", "name": "x", "schema": {}}),
    lambda d: wait(d)["schema"].update(maximum=120),
    lambda d: wait(d)["schema"].update(type="number"),
    lambda d: asked(d)["properties"].update(more={"type": "string"}),
    lambda d: asked(d)["required"].clear(),
    lambda d: asked(d)["properties"]["kind"]["enum"].append("c"),
    lambda d: asked(d)["properties"]["of"]["oneOf"].append({"type": "null"}),
    lambda d: asked(d).update(description="Other words"),
    lambda d: post(d)["responses"].pop("422"),
    lambda d: post(d)["responses"].update({"409": {}}),
    lambda d: missing(d).update(description="`too-late`, `no-room`, `no-box`"),
    lambda d: post(d).update(security=[{"key": ["read"]}]),
    lambda d: post(d).update(security=[{"attempt": []}, {"key": ["submit"]}]),
    lambda d: post(d).pop("security"),
    lambda d: d["components"]["securitySchemes"]["key"].update(description="Another word for it"),
    lambda d: header(d).update(required=True),
    lambda d: thing(d)["properties"].update(more={"type": "string"}),
    lambda d: thing(d)["required"].append("size"),
    lambda d: thing(d)["properties"].update(size={"type": "integer"}),
    lambda d: sent(d)["properties"].update(more={"type": "string"}),
    lambda d: d["webhooks"].update(thingLost=deepcopy(d["webhooks"]["thingMade"])),
]


@pytest.mark.parametrize(("change", "said"), BREAKING, ids=[said for _, said in BREAKING])
def test_a_breaking_change_is_named_with_its_place(change: Callable[[Document], object], said: str) -> None:
    after = deepcopy(BEFORE)
    change(after)
    found = breaks(BEFORE, after)
    assert [line for line in found if said in line], found


@pytest.mark.parametrize("change", HARMLESS)
def test_additions_are_no_break(change: Callable[[Document], object]) -> None:
    after = deepcopy(BEFORE)
    change(after)
    assert after != BEFORE
    assert breaks(BEFORE, after) == []
