"""Answers that stay open: what they tell to whom."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pytest
import redis

from dyno.access import Scope
from dyno.settings import Settings
from dyno.store.keys import Keys
from service import streams
from tests.service.keys.conftest import Caller

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}
WITHIN_S = 30  # a stream that should end, and goes on, is not waited for

One = TypeVar("One")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_EVERY_S", 0.02)


def soon(given: Iterable[One]) -> Iterator[One]:
    end_s = time.monotonic() + WITHIN_S
    return itertools.takewhile(lambda _: time.monotonic() < end_s, given)


def canceled(who: Caller) -> str:
    job = who.http.post("/v1/jobs", json=BODY).raise_for_status().json()
    return str(who.http.post(f"{job['urls']['self']}/cancel").raise_for_status().json()["id"])


def told_of(who: Caller, last: str) -> dict[str, str | None]:
    """The jobs of the events up to the end of `last`, from the first event on, and their owners."""
    told: dict[str, str | None] = {}
    with who.http.stream("GET", "/v1/events", headers={"Last-Event-ID": "0-0"}) as answer:
        for line in soon(answer.iter_lines()):
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                told[event["job"]] = event["owner"]
                if event["job"] == last and event["done"]:
                    return told
    raise AssertionError(f"{last} has not ended")


def test_of_all_events_a_key_is_told_those_of_its_own_jobs(
    caller: Callable[..., Caller], client: redis.Redis, settings: Settings
) -> None:
    one, other, admin = caller(Scope.SUBMIT), caller(Scope.SUBMIT), caller(Scope.ADMIN)
    unowned = {"job": "job_0", "event": "stop", "status": "canceled", "version": 1, "at": 1}
    client.xadd(Keys(settings.namespace).events, unowned)  # as a worker from before there were keys tells it
    first, foreign, last = canceled(one), canceled(other), canceled(one)
    assert told_of(one, last) == dict.fromkeys((first, last), one.id)
    assert told_of(other, foreign) == {foreign: other.id}
    everything = {"job_0": None, first: one.id, foreign: other.id, last: one.id}
    assert told_of(admin, last).items() >= everything.items()


def test_who_is_not_told_of_what_happens_goes_on_behind_it(caller: Callable[..., Caller]) -> None:
    one, other = caller(), caller()
    with one.http.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()
        begun = next(line for line in lines if line.startswith("id: "))
        canceled(other)
        assert any(line.startswith("id: ") and line != begun for line in soon(lines))
