"""Bodies that are too large, differ from their announced length, or are never read."""

import asyncio
import contextlib
import re
from pathlib import Path

import httpx
import pytest

from tests.service.abuse.conftest import WITHIN_S, problem
from tests.waiting import eventually

PIECE = b" " * 65536
LARGE_BYTES = 200_000_000
JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\n" + JSON
PUT = b"PUT /v1/jobs/job_00000000000000000000000000/artifacts/a.txt HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % LARGE_BYTES


def plain():
    for _ in range(LARGE_BYTES // len(PIECE)):
        yield PIECE


def chunks():
    for piece in plain():
        yield b"%x\r\n" % len(piece) + piece + b"\r\n"


def peak_bytes(pid):
    """The process' peak memory since `forget_peak`."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return 1024 * int(found[1])


def forget_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@pytest.mark.parametrize(
    ("head", "body", "status", "code"),
    [
        (POST + LENGTH, plain, 413, "body-too-large"),
        (POST + CHUNKED, chunks, 413, "body-too-large"),
        pytest.param(PUT + LENGTH, plain, 401, "not-authorized", marks=pytest.mark.verify),
        pytest.param(
            *(b"POST /v1/nowhere HTTP/1.1\r\n" + JSON + CHUNKED, chunks, 404, "not-found"), marks=pytest.mark.verify
        ),
    ],
    ids=["with a length", "in chunks", "an unknown job's file", "to nowhere"],
)
def test_two_hundred_megabytes_are_refused_and_not_kept(api, head, body, status, code):
    forget_peak(api.pid)
    before = peak_bytes(api.pid)
    callers = [api.call().send(head) for _ in range(4)]
    for caller in callers:
        for piece in body():
            if caller.is_closed():
                break
            caller.send(piece)
    assert peak_bytes(api.pid) - before < 30_000_000
    with (caller := api.call().trickle(head, next(body()))).socket:
        answer = caller.answer()
    assert (answer.status_code, problem(answer)["code"]) == (status, code)


@pytest.mark.parametrize("size_bytes", [1_000_000, 5_000_000])
def test_a_client_that_sends_too_much_gets_the_problem_while_sending(api, size_bytes):
    """Unread bytes at the end of a connection make the kernel discard the response."""

    async def send():
        async with httpx.AsyncClient(base_url=api.http.base_url, timeout=WITHIN_S) as http:
            json = {"Content-Type": "application/json"}
            return (await http.post("/v1/jobs", content=b" " * size_bytes, headers=json)).status_code

    assert [asyncio.run(send()) for _ in range(5)] == [413] * 5


def test_a_client_that_keeps_sending_is_cut_off(api):
    with api.call().send(POST + CHUNKED).socket as line, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            line.sendall(next(chunks()))


def test_bytes_beyond_the_content_length_are_not_part_of_the_request(api):
    first, *rest = api.call().send(POST + b"Content-Length: 2\r\n\r\n{}{}{}").answers()
    assert (first.status_code, problem(first)["code"]) == (422, "invalid-spec")
    assert rest == []


def test_a_connection_stays_open_after_complete_requests(api):
    caller = api.call()
    for _ in range(3):
        assert caller.send(POST + b"Content-Length: 2\r\n\r\n{}").answer().status_code == 422
    assert not caller.is_closed()
    caller.socket.close()


def test_disconnects_and_malformed_requests_are_not_logged(api):
    before = api.log.read_text()
    for said in (POST + b"Content-Length: 100\r\n\r\n{", POST + CHUNKED + b"1\r\n{", b"GET /livez HTTP/1.1\r\nX"):
        api.call().send(said).socket.close()
    for said in (b"\0\r\n\r\n", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\n\r\n"):
        api.call().send(said).answers()
    eventually(lambda: api.connections() == 1)
    assert api.log.read_text() == before == ""
