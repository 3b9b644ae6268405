"""Clients leave no garbage that only Python's collector would free, as it rarely runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.service.abuse import uncollected
from tests.service.abuse.conftest import JOB, Api, Caller
from tests.service.abuse.uncollected import TOLD
from tests.waiting import eventually

Run = Callable[..., AbstractContextManager[Api]]
CALLERS = 20
TELLING = ("service.", "uvicorn.", "anyio.", "contextlib.AsyncExitStack")  # at least one per client
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module", params=["plain", "tls"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    run: Run = request.getfixturevalue("run_api" if request.param == "plain" else "run_tls")
    with run(program=Path(uncollected.__file__)) as api:
        api.http.post("/v1/jobs", json=JOB).raise_for_status()  # the first one connects to the broker
        told(api)
        yield api


def told(api: Api) -> tuple[list[str], int]:
    """Types of objects left over from clients and requests, and the number of connections."""
    before = api.log.read_text().count(TOLD)
    os.kill(api.pid, signal.SIGUSR1)
    eventually(lambda: api.log.read_text().count(TOLD) > before, what="it has looked")
    left, connections = json.loads(api.log.read_text().rpartition(TOLD)[2].splitlines()[0])
    return [name for name in left if name.startswith(TELLING)], connections


def silent(caller: Caller) -> None:
    """Send nothing."""


def in_its_head(caller: Caller) -> None:
    caller.send(b"GET /v1/jobs HTT")


def in_its_body(caller: Caller) -> None:
    caller.send(POST + b"Content-Length: 60000\r\n\r\n" + b" " * 50_000)


def answered(caller: Caller) -> None:
    assert caller.get("/v1/jobs").answer().status_code == 200


def submitted(caller: Caller) -> str:
    job = json.dumps(JOB).encode()
    answer = caller.send(POST + b"Content-Length: %d\r\n\r\n%s" % (len(job), job)).answer()
    path: str = answer.json()["urls"]["self"]
    return path


def polling(caller: Caller) -> None:
    caller.get(f"{submitted(caller)}?wait=60")


def following_a_log(caller: Caller) -> None:
    assert b"200 OK" in caller.get(f"{submitted(caller)}/logs?follow=true").some()


def told_of_its_mistake(caller: Caller) -> None:
    assert caller.send(POST + b"Content-Length: 12000\r\n\r\n" + b"[" * 12_000).answer().status_code == 400


def told_before_all_was_sent(caller: Caller) -> None:
    assert caller.send(POST + b"Content-Length: 999999999\r\n\r\n" + b" " * 50_000).answer().status_code == 413


def with_more_to_ask(caller: Caller) -> None:
    caller.send(GET * 8 + b"rubbish\r\n\r\n").some()


def reading_events(caller: Caller) -> None:
    assert b"200 OK" in caller.get("/v1/events").some()


LEAVING: list[Callable[[Caller], None]] = [
    silent,
    in_its_head,
    in_its_body,
    answered,
    told_of_its_mistake,
    told_before_all_was_sent,
    with_more_to_ask,
    reading_events,
    polling,
    following_a_log,
]


@pytest.mark.parametrize("resetting", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("leaving", LEAVING)
def test_disconnected_clients_leave_no_garbage(api: Api, leaving: Callable[[Caller], None], resetting: bool) -> None:
    for _ in range(CALLERS):
        caller = api.call()
        with caller.socket:
            leaving(caller)
            if resetting:
                caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: api.connections() == 1, what="all have left")

    def only_the_asking_one() -> bool:
        left, connections = told(api)
        assert left == []
        return connections == 1

    eventually(only_the_asking_one, within_s=30, what="what was under way for them has ended, too")
