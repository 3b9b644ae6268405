"""Responses that don't come from Dyno, and responses of newer versions."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dyno.client import Refused, ServerUnreachable
from tests.client.stub_server import Handler, canceled, problem

CALLS: list[Callable[[Any], Any]] = [
    lambda client: client.job("job_1"),
    lambda client: client.jobs(),
    lambda client: client.submit({"workload": "matmul"}),
    lambda client: client.validate({"workload": "matmul"}),
    lambda client: client.result("job_1"),
    lambda client: client.results(),
    lambda client: client.samples("job_1"),
    lambda client: client.artifacts("job_1"),
    lambda client: client.comparison("cmp_1"),
    lambda client: client.workloads(),
    lambda client: client.devices(),
    lambda client: client.workers(),
    lambda client: client.cordon("cpu"),
    lambda client: client.me(),
    lambda client: client.keys(),
    lambda client: client.deliveries(),
]


@pytest.mark.parametrize(
    "payload",
    [b"<html>", b'{"ok": true}', b"[1]", b"null", b'"\xff"', b"", b"[" * 100_000],
    ids=["a page", "another object", "a list", "null", "no UTF-8", "nothing", "deep"],
)
def test_a_response_that_dyno_cannot_have_sent_is_server_unreachable(through_all, payload):
    Handler.answers = [(200, payload)] * len(CALLS)
    for ended in through_all(CALLS):
        assert isinstance(ended, ServerUnreachable)
        assert "not Dyno" in ended.detail


@pytest.mark.parametrize("payload", [b'{"status": "error", "message": "x"}', b"[]", b"oops", b"\xff"])
def test_an_error_without_a_problem_is_server_unreachable(through_all, payload):
    asks = [*CALLS, lambda client: client.delete("job_1"), lambda client: client.logs("job_1")]
    Handler.answers = [(500, payload)] * len(asks)
    for ended in through_all(asks):
        assert isinstance(ended, ServerUnreachable)
        assert ("not Dyno" in ended.detail, ended.status) == (True, 500)


def test_a_redirect_is_server_unreachable(through):
    for ask in (lambda client: client.delete("job_1"), lambda client: client.logs("job_1")):
        Handler.answers = [(302, b"<html>", {"Location": "/login"})]
        with pytest.raises(ServerUnreachable, match="not Dyno"):
            through(ask)


@pytest.mark.parametrize("said", ["error", None, 200, [500]])
def test_a_refusal_has_the_status_of_its_response(through, said):
    Handler.answers = [(422, problem(said, errors=said))]
    with pytest.raises(Refused, match="something is wrong") as raised:
        through(lambda client: client.submit({"workload": "matmul"}))
    assert raised.value.status == 422


@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:port", "127.0.0.1"])
def test_an_invalid_url_is_unreachable(through, url):
    with pytest.raises(ServerUnreachable):
        through(lambda client: client.job("job_1"), url=url)


def newer(**spec):
    """A job with fields of a newer version."""
    job = json.loads(canceled())
    job["spec"]["measure"]["later"] = job["spec"]["later"] = job["later"] = 1
    job["spec"]["webhook"] = {"url": "https://hooks.example.org/", "later": 1}
    job["spec"] |= spec
    return json.dumps(job).encode()


def test_unknown_fields_of_a_spec_are_ignored(through):
    page = b'{"data": [' + newer() + b'], "next_cursor": null, "later": 1}'
    Handler.answers = [(202, newer()), (200, newer()), (200, page)]
    jobs = [through(lambda client: client.submit({"workload": "matmul"})), through(lambda client: client.wait("job_1"))]
    jobs += through(lambda client: client.jobs())
    assert {job.spec.workload for job in jobs} == {"matmul"}
    assert {job.spec.webhook.url for job in jobs} == {"https://hooks.example.org/"}


def test_unknown_fields_of_two_specs_and_of_a_key_are_ignored(through):
    two = {"against": {"workload": "matmul", "later": 1}, "pairs": 4, "control": True, "metric": "throughput"}
    key = {
        "id": "key_1",
        "prefix": "dyno_",
        "name": "ci",
        "scope": "read",
        "high_priority": False,
        "created_at": "2026-11-22T04:05:06Z",
    }
    me = {"key": key | {"limits": {"queued_jobs": 3, "later": 1}}, "scopes": ["read"], "later": 1}
    Handler.answers = [(200, newer(**two)), (200, json.dumps(me).encode())]
    assert through(lambda client: client.job("job_1")).spec.against.workload == "matmul"
    assert through(lambda client: client.me()).key.limits.queued_jobs == 3
