"""The examples are answers that were given: they fit what is said of them, and the same requests get them still."""

from __future__ import annotations

import re
from typing import Any

import httpx
import jsonschema
import pytest

from dyno.devices.device import Device
from dyno.settings import Settings
from service.app import create_app
from service.codes import PROBLEMS
from service.openapi import examples, operations
from service.openapi.examples import recorded
from tests.service.openapi.conftest import answers

Document = dict[str, Any]
NO_JOB = "job_01M80PT6VM78YWA14Q3XXHDWDJ"
JSON = {"Content-Type": "application/json"}

# (code, how to be told it): those that need no more than a request.
ASKED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("malformed-body", "POST", "/v1/jobs", {"content": '{"workload": "matmul", "params": {', "headers": JSON}),
    ("not-authorized", "GET", "/v1/keys", {}),
    ("job-not-found", "GET", f"/v1/jobs/{NO_JOB}", {}),
    ("comparison-not-found", "GET", f"/v1/comparisons/cmp_{NO_JOB[4:]}", {}),
    ("body-too-large", "POST", "/v1/jobs", {"content": b" " * 70002, "headers": JSON}),
    ("unsupported-media-type", "POST", "/v1/jobs", {"data": {"workload": "matmul"}}),
    ("invalid-request", "GET", "/v1/jobs", {"params": {"limit": 0, "status": "done"}}),
    ("invalid-spec", "POST", "/v1/jobs", {"json": {"workload": "matmul", "params": {"n": 0, "dtype": "float33"}}}),
    ("invalid-comparison", "POST", "/v1/comparisons", {"json": {"jobs": [NO_JOB]}}),
]


@pytest.fixture(scope="module")
def document(http: httpx.Client) -> Document:
    found: Document = http.get("/openapi.json").json()
    return found


def fits(document: Document, schema: Document, value: object) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def test_every_example_fits_its_schema(document: Document) -> None:
    seen = 0
    bodies = [operation["requestBody"] for _, _, operation in operations(document) if "requestBody" in operation]
    for body in [*bodies, *(answer for *_, answer in answers(document))]:
        for media in body.get("content", {}).values():
            for example in media.get("examples", {}).values():
                if "value" in example:
                    fits(document, media["schema"], example["value"])
                    seen += 1
    assert seen >= 30


def test_a_problem_that_nobody_has_recorded_has_an_example_too(
    document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "recorded", lambda: {"problems": {}, "requests": {}, "answers": {}})
    for example in create_app(Settings()).openapi()["components"]["examples"].values():
        fits(document, {"$ref": "#/components/schemas/Problem"}, example["value"])


def test_every_problem_that_is_documented_has_an_example_that_is_one(document: Document) -> None:
    shown = document["components"]["examples"]
    for code, example in shown.items():
        fits(document, {"$ref": "#/components/schemas/Problem"}, example["value"])
        found = example["value"]
        assert (found["code"], (found["status"], found["title"])) == (code, PROBLEMS[code])
    named = {
        name
        for *_, status, answer in answers(document)
        if status >= "400"
        for media in answer["content"].values()
        for name in media["examples"]
    }
    assert named == shown.keys()


@pytest.mark.parametrize("operation_id", ["submitJob", "createComparison"])
def test_the_requests_shown_are_taken(http: httpx.Client, offered: Device, operation_id: str) -> None:
    path = {"submitJob": "/v1/jobs?validate_only=true", "createComparison": "/v1/comparisons"}[operation_id]
    for name, body in recorded()["requests"][operation_id].items():
        answer = http.post(path, json=body)
        assert answer.status_code in (200, 202) or answer.json()["code"] == "job-not-found", (name, answer.text)
        if answer.status_code == 202:
            http.post(f"/v1/jobs/{answer.json()['job']}/cancel").raise_for_status()


@pytest.mark.parametrize(("code", "method", "path", "request_"), ASKED, ids=[case[0] for case in ASKED])
def test_who_asks_as_then_is_told_the_same(
    http: httpx.Client, code: str, method: str, path: str, request_: dict[str, Any]
) -> None:
    told = http.request(method, path, **request_).json()
    shown = dict(recorded()["problems"][code])
    assert told.pop("request_id") != shown.pop("request_id")
    assert _without_numbers(told) == _without_numbers(shown)


def _without_numbers(problem: Document) -> Document:
    return {key: re.sub(r"\d+", "0", value) if isinstance(value, str) else value for key, value in problem.items()}
