"""A repeated single-value header is refused or ignored, even if both values are equal."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from dyno.settings import Settings
from dyno.tracing import tracer_for
from service import pages
from service.app import create_app
from service.auth import Keyless, route_rules
from service.dependencies import LIST_HEADERS
from service.middleware import TracingMiddleware
from service.openapi import each_operation
from service.openapi.__main__ import REVIEWED

APP = create_app(Settings())
DOCUMENT = json.loads((Path(__file__).parents[2] / REVIEWED).read_text())  # faster than to make it
OF_HEADERS = [
    (method, path, each["name"].lower())
    for method, path, operation in each_operation(DOCUMENT)
    for each in operation.get("parameters", [])
    if each["in"] == "header"
]
PAGES = route_rules(pages.router.routes).keys()
TAKING_KEYS = sorted(row for row, rule in APP.state.rules.items() if rule.needs is not Keyless.TO_ALL)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "00-{}-b7ad6b7169203331-01"
VALUES = {"last-event-id": "1-0"}


def answered(http, method, path, *headers):
    asked = re.sub(r"{[a-z_]+}", f"job_{'0' * 26}", path)
    content = b'{"workload": "none"}' if method == "POST" else None
    typed = [] if "content-type" in {name.lower() for name, _ in headers} else [("Content-Type", "application/json")]
    return http.request(method, asked, content=content, headers=[*typed, *headers])


@pytest.mark.parametrize(("method", "path", "name"), [each for each in OF_HEADERS if each[2] not in LIST_HEADERS])
def test_a_repeated_header_is_named_as_a_parameter(http, method, path, name):
    twice = [(name.title(), VALUES.get(name, "1"))] * 2
    answer = answered(http, method, path, *twice)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == (f"/header/{name}", "duplicate-parameter")


@pytest.mark.parametrize(("method", "path", "name"), [each for each in OF_HEADERS if each[2] in LIST_HEADERS])
def test_list_headers_may_have_several_lines(http, method, path, name):
    answer = answered(http, method, path, (name, "wait=0"), (name, "other"))
    assert f"/header/{name}" not in answer.text


def test_the_document_has_header_parameters():
    assert {name for _, _, name in OF_HEADERS} == {"idempotency-key", "last-event-id", *LIST_HEADERS}


@pytest.mark.parametrize("row", TAKING_KEYS, ids=" ".join)
def test_two_keys_are_refused(http, row):
    answer = answered(http, *row, *[("Authorization", f"Bearer dyno_{'0' * 64}")] * 2)
    assert answer.status_code == 400
    if row[0] != "HEAD":
        told = answer.text if row in PAGES else json.dumps(answer.json())
        assert "bad-request" in told
        assert "authorization" in told


def test_two_job_headers_are_refused(http):
    path = "/v1/jobs/{job_id}/artifacts/{name}"
    answer = answered(http, "GET", path, ("Authorization", "Bearer 1"), *[("Dyno-Job", f"job_{'0' * 26}")] * 2)
    assert (answer.status_code, "dyno-job" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize("second", ["application/json", "text/plain"])
def test_two_content_types_are_refused(http, second):
    twice = [("Content-Type", "application/json"), ("Content-Type", second)]
    assert answered(http, "POST", "/v1/jobs", *twice).json()["code"] == "unsupported-media-type"
    encoded = [("Content-Encoding", "identity"), ("Content-Encoding", "gzip")]
    assert answered(http, "POST", "/v1/jobs", *encoded).json()["code"] == "unsupported-media-type"


def test_two_request_ids_are_ignored(http):
    assert http.get("/livez", headers=[("X-Request-ID", "one")]).headers["x-request-id"] == "one"
    twice = http.get("/livez", headers=[("X-Request-ID", "one"), ("X-Request-ID", "two")])
    assert twice.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(("parents", "goes_on"), [([TRACE], True), ([TRACE, TRACE[::-1]], False), ([TRACE] * 2, False)])
def test_two_traceparents_start_a_new_trace(monkeypatch, parents, goes_on):
    pytest.importorskip("opentelemetry", reason="no tensordyno[otel]")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")  # no collector here
    traces, seen = tracer_for(Settings(traces=True), "test", sends_by_itself=False), list[str | None]()

    async def inner(*_):
        seen.append(traces.carried())

    headers = [(b"traceparent", PARENT.format(each).encode()) for each in parents]
    headers += [(b"tracestate", each.encode()) for each in ("a=1", "b=2")]
    scope = {"type": "http", "path": "/v1/jobs", "method": "GET", "scheme": "http", "headers": headers}
    asyncio.run(TracingMiddleware(inner, traces)(scope, no_message, no_message))
    assert seen[0] is not None
    assert (TRACE in seen[0]) is goes_on


async def no_message(*_):
    """Neither receive nor send anything."""
