"""Malformed requests and oversized heads: each gets a problem, and no other client is affected."""

import pytest

from service.server import MAX_FIELDS
from tests.service.abuse.conftest import problem
from tests.waiting import eventually

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FIELDS = b"".join(b"X-%d: y\r\n" % number for number in range(MAX_FIELDS))

NO_REQUESTS = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "zeros": bytes(1000),
    "words": b"how do you do?\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": b"GET /livez HTTP/9.9\r\n\r\n",
    "no path": b"GET  HTTP/1.1\r\n\r\n",
    "a relative path": b"GET livez HTTP/1.1\r\n\r\n",
    "a path of bytes": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a proxy's method": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space in a name": b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n",
    "a zero in a field": b"GET /livez HTTP/1.1\r\nX: a\0b\r\n\r\n",
    "a folded field": b"GET /livez HTTP/1.1\r\n folded: x\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length of words": POST + b"Content-Length: two\r\n\r\n{}",
    "a length and chunks": POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a chunk of no length": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
}


@pytest.mark.parametrize("said", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_malformed_requests_get_a_problem(api, said):
    [answer] = api.call().send(said).answers()
    assert (answer.status_code, problem(answer)["code"]) == (400, "bad-request")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"GET /", b"x" * 5000),
        (GET + b"X: ", b"x" * 5000),
        (GET, b"x" * 5000),
        (GET, b"X: " + b"y" * 5000 + b"\r\n"),
        (GET + FIELDS + b"\r\n", b""),
        (b"", b"\r\n" * 2500),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", b"x" * 5000),
    ],
    ids=["a path", "a field", "a name", "fields", "small fields", "ends of lines", "a field behind the body"],
)
def test_an_endless_head_is_refused(api, first, piece):
    [answer] = api.call().trickle(first, piece).answers()
    assert (answer.status_code, problem(answer)["code"]) == (431, "head-too-large")
    assert answer.headers["connection"] == "close"


def test_a_head_at_the_limit_is_read(api):
    as_many = b"".join(b"X-%d: y\r\n" % number for number in range(MAX_FIELDS - 2))  # and Host, and Connection
    for fields, status in ((as_many, 200), (as_many + b"X: y\r\n", 431), (b"X: %b\r\n" % (b"x" * 3900), 200)):
        [answer] = api.call().send(GET + b"Connection: close\r\n" + fields + b"\r\n").answers()
        assert answer.status_code == status


@pytest.mark.parametrize("path", ["/nope", "/v1/jobs/job_nope/cancel"])
def test_a_malformed_body_after_an_early_response_is_not_logged(api, path):
    before = api.log.read_text()
    asked = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
    for _ in range(10):
        caller = api.call().send(asked.encode())
        assert all(answer.status_code in (400, 404) for answer in caller.answers())
    eventually(lambda: api.connections() == 1, what="all have left")
    assert api.log.read_text() == before


@pytest.mark.parametrize("garbage", [b"\0\0\0\0", b"HELO mail\r\n\r\n", GET + b"X: " + b"x" * 5000 + b"\r\n\r\n"])
def test_requests_before_a_malformed_one_are_answered(api, garbage):
    answers = api.call().send(GET + b"\r\n" + GET + b"\r\n" + garbage).answers()
    assert [answer.status_code for answer in answers] == [200, 200]


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_upgrade_requests_are_answered_in_http_1_1(api, protocol):
    asked = GET + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
    with (caller := api.call().send(asked)).socket:
        assert caller.answer().status_code == 200


def test_trailers_are_ignored(api):
    asked = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    [answer] = api.call().send(asked + b"2\r\n{}\r\n0\r\nX-Request-ID: mine\r\n\r\n").answers()
    assert answer.status_code == 422
    assert answer.headers["x-request-id"].startswith("req_")
