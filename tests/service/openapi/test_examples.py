"""The examples are recorded responses: they match their schemas, and the same requests still get them."""

import json
import re

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import TypeAdapter

from dyno.settings import Settings
from service.app import create_app
from service.openapi import each_operation
from service.openapi.components import recorded_examples
from service.problems import PROBLEMS
from tests.schemas import validator
from tests.service.openapi.conftest import answers
from tests.service.openapi.house import elsewhere, house, plain
from tests.service.openapi.provoked import AT_THE_EDGE, PROVOKED, UNPROVOKED

STREAM = "text/event-stream"
STREAMS = {"followJob": "/v1/jobs/{job_id}/events", "followAll": "/v1/events"}
SAME_EACH_TIME = {
    "getWorkload": "/v1/workloads/matmul",
    "getMe": "/v1/me",
    "getLiveness": "/livez",
    "getReadiness": "/readyz",
}
MODELLED = [
    (operation_id, status, name)
    for operation_id, by_status in recorded_examples()["answers"].items()
    for status, by_name in by_status.items()
    for name, value in by_name.items()
    if not isinstance(value, str)
]


@pytest.fixture(scope="module")
def document(http):
    return http.get("/openapi.json").json()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("house")


@pytest.fixture(scope="module")
def here(settings, serve, folder):
    apart = settings.model_copy(update={"namespace": f"{settings.namespace}-house"})
    with house(apart, folder, serve) as here:
        yield here


@pytest.fixture(scope="module")
def models():
    """The models of responses, by operationId and status."""
    found = {}
    for each in iter_route_contexts(create_app(Settings()).routes):
        route = each.original_route
        if isinstance(route, APIRoute) and route.operation_id is not None:
            found[route.operation_id, str(route.status_code or 200)] = route.response_model
            more = {str(status): more["model"] for status, more in route.responses.items() if "model" in more}
            found |= {(route.operation_id, status): model for status, model in more.items()}
    return found


def fits(document, schema, value):
    validator({**schema, "components": document["components"]}).validate(value)


def test_every_example_fits_its_schema(document):
    seen = 0
    bodies = [operation["requestBody"] for _, _, operation in each_operation(document) if "requestBody" in operation]
    for body in [*bodies, *(answer for *_, answer in answers(document))]:
        for media in body.get("content", {}).values():
            for example in media.get("examples", {}).values():
                if "value" in example:
                    fits(document, media["schema"], example["value"])
                    seen += 1
    assert seen >= 30


def test_every_documented_problem_has_a_valid_example(document):
    shown = document["components"]["examples"]
    for code, example in shown.items():
        fits(document, {"$ref": "#/components/schemas/Problem"}, example["value"])
        found = example["value"]
        assert (found["code"], (found["status"], found["title"])) == (code, PROBLEMS[code])
    named = {
        name
        for *_, status, answer in answers(document)
        if status >= "400"
        for name in answer["description"].replace("`", "").split(", ")
    }
    assert named == shown.keys() == recorded_examples()["problems"].keys()


@pytest.mark.parametrize("code", PROVOKED)
def test_repeating_the_request_gives_the_recorded_problem(here, folder, code):
    told = elsewhere(PROVOKED[code](here).json(), folder)
    shown = recorded_examples()["problems"][code]
    assert told["request_id"] != shown["request_id"]
    assert plain(told) == plain(shown)


def test_every_example_of_a_problem_is_repeated_except_bugs():
    assert PROVOKED.keys() | AT_THE_EDGE | UNPROVOKED == recorded_examples()["problems"].keys()


@pytest.mark.parametrize(("operation_id", "status", "name"), MODELLED)
def test_recorded_responses_have_the_current_fields(models, operation_id, status, name):
    shown = recorded_examples()["answers"][operation_id][status][name]
    model = TypeAdapter(models[operation_id, status])
    assert form(model.dump_python(model.validate_python(shown), mode="json", by_alias=True)) == form(shown)


def form(value):
    """Field names and types. Times have several notations, and numbers two types."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items()}
    if isinstance(value, list):
        return [form(item) for item in value]
    return "number" if type(value) in (int, float) else type(value).__name__


@pytest.mark.parametrize("operation_id", SAME_EACH_TIME)
def test_constant_responses_match_their_examples(here, operation_id):
    told = here.http.get(SAME_EACH_TIME[operation_id]).json()
    assert [told] == list(recorded_examples()["answers"][operation_id]["200"].values())


def test_example_workloads_exist(here):
    there = here.http.get("/v1/workloads").json()["data"]
    [shown] = recorded_examples()["answers"]["listWorkloads"]["200"].values()
    assert shown["data"]
    assert [each for each in shown["data"] if each not in there] == []


@pytest.mark.parametrize(("operation_id", "path"), STREAMS.items())
def test_example_streams_have_the_described_events(document, operation_id, path):
    media = document["paths"][path]["get"]["responses"]["200"]["content"][STREAM]
    data = {each["properties"]["event"]["const"]: each["properties"]["data"] for each in media["itemSchema"]["oneOf"]}
    [shown] = recorded_examples()["answers"][operation_id]["200"].values()
    assert [example["value"] for example in media["examples"].values()] == [shown]
    events = re.findall(r"^event: (.+)\ndata: (.+)\nid: .+\n$", shown, re.MULTILINE)
    assert {kind for kind, _ in events} == {"status", "progress", "metric", "log"}
    for kind, text in events:
        fits(document, data[kind]["contentSchema"], json.loads(text))


@pytest.mark.parametrize("operation_id", ["submitJob", "createComparison", "createSweep"])
def test_example_requests_are_accepted(http, offered, operation_id):
    paths = {"submitJob": "/v1/jobs?validate_only=true", "createSweep": "/v1/sweeps"}
    path = paths.get(operation_id, "/v1/comparisons")
    for name, body in recorded_examples()["requests"][operation_id].items():
        answer = http.post(path, json=body)
        assert answer.status_code in (200, 202) or answer.json()["code"] == "job-not-found", (name, answer.text)
        if answer.status_code == 202:
            begun = answer.json()
            http.post(begun["urls"].get("cancel") or f"/v1/jobs/{begun['job']}/cancel").raise_for_status()
