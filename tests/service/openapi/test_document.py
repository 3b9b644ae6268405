"""The document is complete, consistent, and as strict as the service."""

import json
import re

import pytest

from dyno.bench.registry import registry
from dyno.settings import Settings
from service.app import create_app
from service.openapi import TAGS, each_operation
from service.openapi.components import problem_codes
from service.problems import MEDIA_TYPE, PROBLEMS
from tests.schemas import validator
from tests.service.openapi.conftest import answers

EDGE = {
    ("400", "bad-request"),
    ("408", "head-timeout"),
    ("431", "head-too-large"),
    ("500", "internal-error"),
    ("503", "too-many-connections"),
    ("503", "shutting-down"),
}


@pytest.fixture(scope="module")
def document():
    return create_app(Settings()).openapi()


def is_valid(document, body):
    schema = {"$ref": "#/components/schemas/SubmitJob", "components": document["components"]}
    return bool(validator(schema).is_valid(body))


def test_it_is_openapi_3_1_without_dangling_references(document):
    assert document["openapi"].startswith("3.1")
    found = references(document)
    assert {kind for _, _, kind, _ in (each.split("/") for each in found)} == {
        "schemas",
        "headers",
        "examples",
        "responses",
    }
    assert [each for each in found if each.split("/")[3] not in document["components"][each.split("/")[2]]] == []
    assert "HTTPValidationError" not in document["components"]["schemas"]


def references(value):
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_route_has_a_name_for_clients_a_summary_a_description_and_a_tag(document):
    found = [operation for _, _, operation in each_operation(document)]
    names = [operation["operationId"] for operation in found]
    assert len(set(names)) == len(names)
    assert [name for name in names if re.fullmatch("[a-z]+([A-Z][a-z0-9]*)*", name) is None] == []
    assert all(operation["summary"] and operation["description"] for operation in found)
    assert {tag for operation in found for tag in operation["tags"]} <= TAGS.keys()


def test_every_response_is_listed_and_every_error_is_a_problem(document):
    for _, _, status, answer in answers(document):
        assert status != "default"
        assert status < "400" or answer["content"].keys() == {MEDIA_TYPE}
        assert "X-Request-ID" in answer["headers"]


def test_connection_errors_are_listed_with_every_route(document):
    found = {}
    for method, path, status, answer in answers(document):
        told = found.setdefault((method, path), set())
        told |= {(status, code) for code in problem_codes(answer)} if status >= "400" else set()
    assert len(found) >= 30
    assert {row: EDGE - told for row, told in found.items() if not told >= EDGE} == {}


def test_equal_errors_are_one_component(document):
    errors = [
        answer
        for _, _, operation in each_operation(document)
        for status, answer in operation["responses"].items()
        if status >= "400"
    ]
    assert all(answer.keys() == {"$ref"} for answer in errors)
    shared = document["components"]["responses"]
    assert {answer["$ref"].split("/")[-1] for answer in errors} == shared.keys()
    assert all(name.split(".")[1:] == problem_codes(answer) for name, answer in shared.items())


def test_responses_allow_more_fields_and_requests_do_not(document):
    every = [operation for _, _, operation in each_operation(document)]
    told = led_to(document, [[operation["responses"] for operation in every], document["webhooks"]])
    asked = led_to(document, [operation.get("requestBody") for operation in every])
    assert {"Job", "Spec", "InterleavedSpec", "Measure", "Limits", "ApiKey"} <= told.keys()
    assert [name for name, schema in told.items() if '"additionalProperties": false' in json.dumps(schema)] == []
    closed = [name for name, schema in asked.items() if schema.get("additionalProperties") is False]
    assert {"SubmitMatmul", "SubmitMeasure", "SubmitLimits"} <= set(closed)
    again = create_app(Settings()).openapi()
    assert (again["components"], again["paths"]) == (document["components"], document["paths"])


def led_to(document, value):
    """All schemas that `value` refers to, directly or indirectly."""
    schemas, found, left = document["components"]["schemas"], set[str](), references(value)
    while left:
        found |= left
        left = references([schemas[each.split("/")[3]] for each in left if each.split("/")[2] == "schemas"]) - found
    return {name: schemas[name] for each in found if (name := each.split("/")[3]) in schemas}


def test_each_kind_of_event_is_described(document):
    for path in ("/v1/events", "/v1/jobs/{job_id}/events"):
        stream = document["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]
        kinds = {each["properties"]["event"]["const"] for each in stream["itemSchema"]["oneOf"]}
        assert kinds == {"status", "progress", "partial_metric", "metric", "log", "gap"}


def test_webhook_payloads_are_described_with_examples(document):
    sent = document["webhooks"]["jobDone"]["post"]["requestBody"]["content"]["application/json"]
    valid = validator(sent["schema"] | {"components": document["components"]})
    shown = [example["value"] for example in sent["examples"].values()]
    assert [event["type"] for event in shown] == ["job.succeeded"]
    for event in shown:
        valid.validate(event)
        assert not valid.is_valid({**event, "data": {**event["data"], "status": "running"}})


def test_every_code_has_the_status_of_the_table(document):
    listed = [
        (int(status), code)
        for _, _, status, answer in answers(document)
        if status >= "400"
        for code in problem_codes(answer)
    ]
    assert listed
    assert all(PROBLEMS[code][0] == status for status, code in listed)


@pytest.mark.parametrize("workload", sorted(registry()))
def test_a_body_of_each_workload_matches_exactly_one_schema(document, workload):
    assert is_valid(document, {"workload": workload})
    assert is_valid(document, {"workload": workload, "device": "cpu:0-1@host", "measure": {"processes": 3}})
    assert is_valid(document, {"workload": workload, "measure": {"processes": {"min": 1, "max": 3}}})
    defaults = registry()[workload].params().model_dump(mode="json")
    assert is_valid(document, {"workload": workload, "params": defaults})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"workload": "nonesuch"},
        {"workload": "matmul", "surprise": 1},
        {"workload": "matmul", "params": {"n": 0}},
        {"workload": "matmul", "params": {"surprise": 1}},
        {"workload": "matmul", "device": "toaster"},
        {"workload": "matmul", "measure": {"processes": 0}},
        {"workload": "matmul", "framework": "cobol"},
    ],
)
def test_the_schema_refuses_what_the_service_refuses(document, body):
    assert not is_valid(document, body)


def parts(value):
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(each)


def test_it_has_nothing_that_generators_of_clients_cannot_handle(document):
    titles = [schema.get("title", name) for name, schema in document["components"]["schemas"].items()]
    assert len(titles) == len(set(titles))
    enums = [part["enum"] for part in parts(document) if isinstance(part.get("enum"), list)]
    assert enums
    assert [enum for enum in enums if len({type(value) for value in enum}) > 1] == []
    headers = [part for part in parts(document) if part.get("in") == "header"]
    assert {"prefer", "idempotency-key"} <= {header["name"].lower() for header in headers}
    assert "array" not in {kind.get("type") for header in headers for kind in parts(header["schema"])}
