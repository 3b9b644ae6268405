"""What callers feel of a change to a schema, in what is taken of them and in what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from service.openapi.containment import Containment

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
    """An event as streams have it."""
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
    return list(Containment(DOCUMENT, DOCUMENT, told=True).beyond(after, before, "at"))


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
def test_what_is_taken_no_more_is_named(before: Schema, after: Schema, said: str) -> None:
    assert said in taken(before, after)


@pytest.mark.parametrize(("before", "after", "said"), TOLD, ids=[said for *_, said in TOLD])
def test_what_is_told_no_more_is_named(before: Schema, after: Schema, said: str) -> None:
    assert said in told(before, after)


@pytest.mark.parametrize(("before", "after"), BOTH_WAYS)
def test_what_is_only_written_otherwise_breaks_nobody(before: Schema, after: Schema) -> None:
    assert taken(before, after) == taken(after, before) == []
    assert told(before, after) == told(after, before) == []


@pytest.mark.parametrize("schema", [JOB, TREE, {"anyOf": [JOB, WORK, NULL]}, a("status", job=JOB)])
def test_a_schema_contains_itself(schema: Schema) -> None:
    assert taken(schema, schema) == told(schema, schema) == []


def test_whoever_reads_numbers_reads_integers_and_what_may_be_null_needs_not_be() -> None:
    assert told({"type": "number"}, INTEGER) == []
    assert told({"anyOf": [JOB, NULL]}, JOB) == []


def test_only_the_nearest_alternative_says_what_it_lacks() -> None:
    before = {"anyOf": [an(a=STRING, b=STRING, c=STRING), an(x=STRING)]}
    assert told(before, {"anyOf": [an(a=STRING, b=STRING), an(x=STRING)]}) == ["at/c: is gone"]


def test_a_default_that_is_new_says_what_was_left_open() -> None:
    assert taken(INTEGER, INTEGER | {"default": 5}) == []
