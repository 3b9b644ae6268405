"""A service that is away for a while, with or without a proxy: which calls retry, when, and for how long."""

import json
from email.utils import formatdate
from time import time

import pytest

from dyno.client import AsyncClient, JobNotSucceeded, Refused, ServerUnreachable, http_transport, streams
from dyno.models.job import Status
from tests.client.stub_server import CUT, Handler, canceled, problem
from tests.results import a_result

HTML = b"<html><h1>Bad Gateway</h1></html>"
AWAY = [(CUT, b""), (502, HTML), (503, problem(503)), (504, b'{"message": "upstream timed out"}')]
SPEC = {"workload": "matmul"}


def keys():
    return {request["key"] for request in Handler.seen}


def test_wait_survives_transient_errors(through, pauses):
    Handler.answers = [*AWAY, (429, problem(429)), (200, canceled())]
    seen = []
    assert through(lambda client: client.wait("job_1", seen.append)).status is Status.CANCELED
    assert [job.version for job in seen] == [3]
    assert (len(Handler.seen), pauses) == (6, [0.5, 1.0, 2.0, 4.0, 5.0])


def test_wait_goes_on_behind_a_proxy_that_cuts_every_long_poll(through, pauses):
    running = json.dumps(json.loads(canceled()) | {"status": "running", "done": False}).encode()
    Handler.answers = [(200, running), *[(504, HTML), (200, running)] * 3, (504, HTML), (200, canceled())]
    assert through(lambda client: client.wait("job_1")).status is Status.CANCELED
    assert (["wait=" in request["path"] for request in Handler.seen], pauses) == ([False, *[True, False] * 4], [])


def test_wait_ends_after_a_minute_without_a_response(through, pauses, monkeypatch):
    monkeypatch.setattr(http_transport, "PATIENCE_S", 1.9)
    Handler.answers = [(502, HTML)] * 9
    with pytest.raises(ServerUnreachable, match="502"):
        through(lambda client: client.wait("job_1"))
    assert pauses == [0.5, 1.0]  # the next pause would exceed the deadline


def test_wait_ends_at_once_after_a_permanent_error(through):
    Handler.answers = [(404, problem(404))]
    with pytest.raises(Refused):
        through(lambda client: client.wait("job_1"))
    assert len(Handler.seen) == 1


def test_a_submit_is_sent_again_under_one_key_until_the_service_is_back(through, pauses):
    Handler.answers = [*AWAY, (202, canceled())]
    assert through(lambda client: client.submit(SPEC)).id == "job_1"
    assert (len(Handler.seen), len(keys()), pauses) == (5, 1, [0.5, 1.0, 2.0, 4.0])


@pytest.mark.parametrize("answer", [(CUT, b""), (502, HTML), (503, problem(503))], ids=["cut", "proxy", "away"])
def test_a_submit_gives_up_after_five_tries(through, pauses, answer):
    Handler.answers = [answer] * 9
    with pytest.raises((Refused, ServerUnreachable)):
        through(lambda client: client.submit(SPEC))
    assert (len(keys()), pauses) == (1, [0.5, 1.0, 2.0, 4.0])


@pytest.mark.parametrize("after_s", [1, 3600])
def test_a_submit_over_a_limit_is_refused_at_once_and_says_when_to_retry(through, pauses, after_s):
    Handler.answers = [(429, problem(429, code="limit-reached"), {"Retry-After": str(after_s)})] * 2
    with pytest.raises(Refused) as raised:
        through(lambda client: client.submit(SPEC))
    assert (raised.value.status, raised.value.retry_after_s, pauses) == (429, after_s, [])


def test_the_key_of_a_caller_is_sent_as_it_is(through, pauses):
    Handler.answers = [(503, problem(503)), (202, canceled()), (202, canceled())]
    through(lambda client: client.submit(SPEC, idempotency_key="nightly-7"))
    through(lambda client: client.rerun("job_1", idempotency_key="nightly-8"))
    assert [request["key"] for request in Handler.seen] == ["nightly-7", "nightly-7", "nightly-8"]


@pytest.mark.parametrize("status", [429, 502, 503])
def test_retries_respect_retry_after(through, pauses, status):
    later = formatdate(time() + 30, usegmt=True)
    afters = ["7", later, "soon", "0"]
    Handler.answers = [*((status, problem(status), {"Retry-After": after}) for after in afters), (200, canceled())]
    through(lambda client: client.wait("job_1"))
    seven, date, soon, zero = pauses
    assert (seven, soon, zero) == (7.0, 2.0, 4.0)
    assert 1.0 < date <= 30.0


def test_a_retry_after_of_more_than_a_minute_ends_a_call_at_once(through, pauses):
    Handler.answers = [(503, problem(503), {"Retry-After": "61"})] * 2
    for ask in (lambda client: client.submit(SPEC), lambda client: client.wait("job_1")):
        with pytest.raises(Refused):
            through(ask)
    assert pauses == []


@pytest.mark.parametrize("ask", [lambda client: client.run(SPEC), lambda client: client.outcome("job_1")])
def test_an_error_from_a_proxy_does_not_lose_the_result(through, pauses, ask):
    done = json.loads(canceled()) | {"status": "succeeded"}
    result = a_result("job_1").model_dump_json(by_alias=True).encode()
    Handler.answers = [(202, json.dumps(done).encode()), (502, HTML), (200, result)]
    assert through(ask).job == "job_1"


def test_the_outcome_of_a_job_without_a_result_is_an_error(through):
    Handler.answers = [(200, canceled())]
    with pytest.raises(JobNotSucceeded) as raised:
        through(lambda client: client.outcome("job_1"))
    assert raised.value.job.status is Status.CANCELED


def collected(client, job_id):
    """A client's events as a list, or a coroutine that returns it."""

    async def awaited():
        return [event async for event in client.events(job_id)]

    return awaited() if isinstance(client, AsyncClient) else list(client.events(job_id))


STATUS = {"job": "job_1", "version": 2, "at": "2026-11-22T04:00:00Z", "event": "stop", "status": "canceled"}
EVENT = f"id: 1-0\nevent: status\ndata: {json.dumps(STATUS | {'done': True})}\n\n".encode()
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


def test_events_survive_transient_errors(through, monkeypatch):
    monkeypatch.setattr(streams, "RETRY_S", 0.0)
    Handler.answers = [*AWAY, (429, problem(429)), (200, EVENT, STREAM)]
    assert [each.kind for each in through(lambda client: collected(client, "job_1"))] == ["status"]


def test_a_retry_after_of_more_than_a_minute_ends_events_at_once(through):
    Handler.answers = [(503, problem(503), {"Retry-After": "61"})]
    with pytest.raises(Refused):
        through(lambda client: collected(client, "job_1"))


@pytest.mark.parametrize(
    ("payload", "headers"),
    [(HTML, {"Content-Type": "text/html"}), (b"id: 1-0\nevent: status\ndata: {\n\n", STREAM)],
    ids=["a page", "no event"],
)
def test_a_response_without_events_is_not_followed(through, payload, headers):
    Handler.answers = [(200, payload, headers)]
    with pytest.raises(ServerUnreachable, match="not Dyno"):
        through(lambda client: collected(client, "job_1"))
    assert len(Handler.seen) == 1


def test_a_long_poll_that_is_answered_at_once_waits_for_retry_after(through, pauses):
    """Otherwise it would poll without a pause for as long as the service has too many waiting requests."""
    running = canceled().replace(b'"done":true', b'"done":false')
    Handler.answers = [(200, running), (304, b"", {"Retry-After": "2"}), (200, canceled())]
    assert through(lambda client: client.wait("job_1")).status is Status.CANCELED
    assert (["wait=" in request["path"] for request in Handler.seen], pauses) == ([False, True, True], [2.0])
