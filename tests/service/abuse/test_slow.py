"""Clients that are slow with a request head or a body."""

import pytest

from tests.service.abuse.conftest import JOB, problem
from tests.waiting import eventually

POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["first", "second"])
def test_a_slow_head_times_out(api, before):
    count = api.ended()
    caller = api.call()
    if before:
        assert caller.send(before).answer().status_code == 200
    [answer] = caller.trickle(b"GET /livez HTTP/1.1\r\nX-Slow: ", b"x").answers()
    assert (answer.status_code, problem(answer)["code"]) == (408, "head-timeout")
    assert answer.headers["connection"] == "close"
    assert api.ended() - count == {"slow_head": 1}


def test_a_connection_without_a_request_is_closed_without_a_response(api):
    assert api.call().answers() == []
    assert api.ended()["silent"] > 0


def test_a_trailing_newline_does_not_keep_a_connection_open(api):
    caller = api.call().get("/livez")
    assert caller.answer().status_code == 200
    assert [answer.status_code for answer in caller.send(b"\r\n").answers()] == [408]


@pytest.mark.parametrize(
    ("field", "first", "piece"),
    [
        (b"Content-Length: 1000", b"{", b" "),
        (b"Transfer-Encoding: chunked", b"1\r\n{\r\n", b"1\r\n \r\n"),
        (b"Transfer-Encoding: chunked", b"1;", b"x"),
    ],
    ids=["with a length", "in chunks", "in a chunk's extension"],
)
def test_a_slow_body_times_out(api, field, first, piece):
    [answer] = api.call().trickle(POST + field + b"\r\n\r\n" + first, piece).answers()
    assert (answer.status_code, problem(answer)["code"]) == (408, "body-timeout")
    assert answer.headers["connection"] == "close"


def test_a_long_poll_ends_when_its_client_disconnects(api):
    """Otherwise clients that request and disconnect repeatedly would leave long polls of a minute each."""
    job = api.http.post("/v1/jobs", json=JOB).json()["urls"]["self"]
    before = answered(api, "/v1/jobs/{job_id}", held="yes")
    caller = api.call().get(f"{job}?wait=60")
    with caller.socket:
        eventually(lambda: api.connections() == 2)
        assert answered(api, "/v1/jobs/{job_id}", held="yes") == before
    eventually(lambda: answered(api, "/v1/jobs/{job_id}", held="yes") == before + 1, within_s=30, what="it is over")
    api.http.post(f"{job}/cancel")


def test_a_slow_body_after_its_response_times_out(api):
    caller = api.call().send(b"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert caller.answer().status_code == 404
    eventually(lambda: caller.send(b" ").is_closed(), what="the connection is closed")


def answered(api, route, held="no"):
    """The number of requests of the route."""
    name = f'dyno_http_request_duration_seconds_count{{held="{held}",method="GET",route="{route}"'
    lines = api.http.get("/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))
