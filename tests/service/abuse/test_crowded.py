"""More connections than the limit allows, and more than the system allows open files."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import httpx
import pytest

from service.openapi.components import recorded_examples
from tests.service.abuse.conftest import JOB, MOST, Api, Caller, problem
from tests.service.openapi.house import plain
from tests.waiting import eventually

IDLE = 300
Run = Callable[..., AbstractContextManager[Api]]
CLOSE = "Connection: close"
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
HALF = HEAD + b"{" + b" " * 50_000


def crowd(api: Api, stack: ExitStack, count: int) -> list[Caller]:
    callers = [api.call() for _ in range(count)]
    for caller in callers:
        stack.enter_context(caller.socket)
    return callers


@pytest.fixture(scope="module")
def patient(run_api: Run) -> Iterator[Api]:
    """An API with long timeouts and few connections."""
    with run_api(max_connections=str(MOST), head_timeout_s="600", body_timeout_s="600") as api:
        yield api


def test_the_longest_idle_connection_makes_room_and_new_requests_are_served(patient: Api) -> None:
    with ExitStack() as stack:
        [regular] = crowd(patient, stack, 1)
        assert regular.get("/livez").answer().status_code == 200
        idle = crowd(patient, stack, IDLE)
        with httpx.Client(base_url=patient.http.base_url) as newcomer:
            assert newcomer.get("/v1/jobs").status_code == 200
            assert regular.get("/livez").answer().status_code == 200
            eventually(lambda: sum(not each.is_closed() for each in idle) <= MOST - 2, what="room is made")
            assert all(each.is_closed() for each in idle[: IDLE - MOST])
            assert not idle[-1].is_closed()
            assert patient.ended()["made_room"] >= IDLE - MOST
            assert len(list(Path(f"/proc/{patient.pid}/fd").iterdir())) < 2 * MOST


def test_when_all_connections_are_busy_a_new_one_gets_retry_after(patient: Api) -> None:
    with ExitStack() as stack:
        job = patient.http.post("/v1/jobs", json=JOB).json()["urls"]["self"]
        senders = [caller.send(HALF) for caller in crowd(patient, stack, MOST // 4)]
        pollers = [caller.get(f"{job}?wait=60") for caller in crowd(patient, stack, MOST // 2)]
        readers = [caller.get("/v1/events") for caller in crowd(patient, stack, MOST // 4)]
        assert all(b"200 OK" in reader.some() for reader in readers)
        assert not any(each.is_closed() for each in (*senders, *pollers))
        [answer] = patient.call().answers()
        assert (answer.status_code, problem(answer)["code"]) == (503, "too-many-connections")
        assert plain(problem(answer)) == plain(recorded_examples()["problems"]["too-many-connections"])
        assert int(answer.headers["retry-after"]) > 0
        readers[0].socket.close()
        eventually(lambda: 200 in [each.status_code for each in patient.call().get("/livez", CLOSE).answers()])


def test_a_quarter_of_the_connections_may_be_sending_a_body(patient: Api) -> None:
    """The connection that was silent longest is closed; its bytes were held in memory."""
    with ExitStack() as stack:
        senders = crowd(patient, stack, MOST // 2)
        for sender in senders:
            sender.send(HALF)
        eventually(lambda: sum(not each.is_closed() for each in senders) == MOST // 4, what="the first ones are let go")
        assert not senders[-1].is_closed()


def test_it_reserves_files_for_its_work_and_raises_the_soft_limit(run_api: Run) -> None:
    most = 2 * MOST
    with run_api(files=(most, most), head_timeout_s="600") as api, ExitStack() as stack:
        crowd(api, stack, IDLE)
        assert api.http.get("/v1/jobs").status_code == 200
        assert resource.prlimit(api.pid, resource.RLIMIT_NOFILE) == (most, most)
        assert api.ended()["made_room"] >= IDLE - MOST
        assert f"allows {MOST} connections" in api.log.read_text()
    with run_api(files=(50, 1000), max_connections="300") as api:
        assert resource.prlimit(api.pid, resource.RLIMIT_NOFILE) == (600, 1000)
        assert api.log.read_text() == ""
