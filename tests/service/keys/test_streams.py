"""Streams: whose data they contain, and when they end."""

import itertools
import json
import time
from contextlib import ExitStack
from typing import TypeVar

import httpx
import pytest

from dyno.models.api_key import Scope
from dyno.settings import Settings
from dyno.store.leases import LogPiece
from dyno.store.redis import Keys
from service import streaming
from service.app import create_app
from tests.service.keys.conftest import make_key, problem

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}
WITHIN_S = 30  # timeout for a stream that should end

One = TypeVar("One")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(streaming, "LOOK_EVERY_S", 0.02)


def soon(given):
    end_s = time.monotonic() + WITHIN_S
    return itertools.takewhile(lambda _: time.monotonic() < end_s, given)


def ends(pieces):
    end_s = time.monotonic() + WITHIN_S
    return not any(time.monotonic() > end_s for _ in pieces)


def canceled(who):
    job = who.http.post("/v1/jobs", json=BODY).raise_for_status().json()
    return str(who.http.post(f"{job['urls']['self']}/cancel").raise_for_status().json()["id"])


def told_of(who, last):
    """The jobs of all events up to the end of `last`, with their owners."""
    told = {}
    with who.http.stream("GET", "/v1/events", headers={"Last-Event-ID": "0-0"}) as answer:
        for line in soon(answer.iter_lines()):
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                told[event["job"]] = event["owner"]
                if event["job"] == last and event["done"]:
                    return told
    raise AssertionError(f"{last} has not ended")


def test_a_key_gets_only_events_of_its_own_jobs(caller, client, settings):
    one, other, admin = caller(Scope.SUBMIT), caller(Scope.SUBMIT), caller(Scope.ADMIN)
    unowned = {"job": "job_0", "event": "stop", "status": "canceled", "version": 1, "at": 1}
    client.xadd(Keys(settings.namespace).events, unowned)  # as written by workers older than keys
    client.hset(Keys(settings.namespace).job("job_0"), "status", "canceled")
    first, foreign, last = canceled(one), canceled(other), canceled(one)
    assert told_of(one, last) == dict.fromkeys((first, last), one.id)
    assert told_of(other, foreign) == {foreign: other.id}
    everything = {"job_0": None, first: one.id, foreign: other.id, last: one.id}
    assert told_of(admin, last).items() >= everything.items()


def test_a_reader_resumes_after_events_of_other_keys(caller):
    one, other = caller(), caller()
    with one.http.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()
        begun = next(line for line in lines if line.startswith("id: "))
        canceled(other)
        assert any(line.startswith("id: ") and line != begun for line in soon(lines))


def test_streams_are_limited_per_key_and_in_total(settings, caller, serve):
    with serve(create_app(settings.model_copy(update={"max_streams": 8}))) as http, ExitStack() as stack:

        def opened(secret):
            mine = {"Authorization": f"Bearer {secret}"}
            answer = stack.enter_context(http.stream("GET", "/v1/events", headers=mine))
            if answer.is_error:
                answer.read()
            return answer

        one, *others = (caller().secret for _ in range(5))
        assert [opened(one).status_code for _ in range(2)] == [200, 200]
        refused = opened(one)
        assert problem(refused) == (429, "limit-reached")
        assert refused.headers["RateLimit-Policy"] == '"streams";q=2'
        assert [opened(secret).status_code for secret in others[:3] * 2] == [200] * 6
        assert problem(opened(others[3])) == (503, "too-many-streams")


def revoke(key_id, caller):
    caller(Scope.ADMIN).http.delete(f"/v1/keys/{key_id}").raise_for_status()


def test_the_event_stream_of_a_browser_ends_when_it_logs_out(service, caller):
    who, own = caller(), {"Origin": str(service.base_url).rstrip("/")}
    with ExitStack() as stack:
        leaving, staying = (
            stack.enter_context(httpx.Client(base_url=service.base_url, headers=own, timeout=30)) for _ in range(2)
        )
        for browser in (leaving, staying):
            assert browser.post("/login", data={"key": who.secret}).status_code == 303
        pieces, others = (
            stack.enter_context(browser.stream("GET", "/v1/events")).iter_bytes() for browser in (leaving, staying)
        )
        assert next(pieces)
        assert next(others)
        assert leaving.post("/logout").headers["location"] == "/login"
        assert ends(pieces)
        job = canceled(who)
        assert any(job in piece.decode() for piece in soon(others)), "another browser with the same key goes on"


@pytest.mark.parametrize("end", ["revoked", "expired"])
@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/{}/events", "/v1/jobs/{}/logs?follow=true"])
def test_event_streams_end_when_their_key_is_revoked(path, end, caller, client, settings):
    """Also logs, and also when the key expires."""
    who = caller()
    job_id = who.http.post("/v1/jobs", json=BODY).json()["id"]
    with who.http.stream("GET", path.format(job_id)) as answer:
        assert answer.status_code == httpx.codes.OK
        if end == "revoked":
            revoke(who.id, caller)
        else:
            client.hset(Keys(settings.namespace).api_key(who.id), "expires_at", "1700000000.000000")
        assert ends(answer.iter_bytes())


def test_a_log_stream_ends_when_its_key_is_revoked(claimed, caller):
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "0\n"))
    admin = caller(Scope.ADMIN)
    with admin.http.stream("GET", f"/v1/jobs/{claim.job_id}/logs", params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "0"
        revoke(admin.id, caller)

        def is_told(number):
            leases.heartbeat(claim, None, LogPiece(number, f"{number}\n"))
            return next(lines, None) == str(number)

        assert not all(is_told(number) for number in soon(itertools.count(1)))


def test_streams_without_a_key_end_when_the_first_key_is_created(redis_url, namespace, serve):
    settings = Settings(redis_url=redis_url, namespace=f"{namespace}-open")
    with serve(create_app(settings)) as http, http.stream("GET", "/v1/events") as answer:
        pieces = answer.iter_bytes()
        assert next(pieces)
        make_key(settings)
        assert ends(pieces)
