"""Events that are dropped before a reader has been told of them: the reader is told that much."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
import redis

from dyno.client import Client
from dyno.settings import Settings
from dyno.store.redis import Keys
from service.answers import streams
from service.state import State
from tests.service.routes.test_events import Claimed, beat, succeed


def test_a_reader_who_comes_back_too_late_is_told_of_the_gap(
    http: httpx.Client, claimed: Claimed, client: redis.Redis, settings: Settings
) -> None:
    leases, claim = claimed()
    beat(leases, claim, range(3))
    stream = Keys(settings.namespace).job_events(claim.job_id)
    entries = [entry for entry, _ in client.xrange(stream)]  # type: ignore[union-attr]
    client.xtrim(stream, minid=entries[2], approximate=False)
    succeed(leases, claim)
    with Client(str(http.base_url)) as api:
        late = [event.kind for event in api.events(claim.job_id, after=entries[0])]
        assert late[:3] == ["gap", "log", "progress"]
        assert "gap" not in [event.kind for event in api.events(claim.job_id, after=entries[2])]


def test_a_reader_is_told_of_what_is_dropped_while_it_reads(
    http: httpx.Client,
    claimed: Claimed,
    client: redis.Redis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leases, claim = claimed()
    stream, waits = Keys(settings.namespace).job_events(claim.job_id), threading.Semaphore(0)

    async def until_the_end(state: State, told: asyncio.Event, timeout_s: float) -> None:
        """Instead of news: the reader comes back when all is over, as one does who takes long over what it was told."""
        waits.release()
        await asyncio.to_thread(over.wait)

    over = threading.Event()
    monkeypatch.setattr(streams, streams.pause.__name__, until_the_end)
    with http.stream("GET", f"/v1/jobs/{claim.job_id}/events") as answer:
        assert waits.acquire(timeout=30)
        beat(leases, claim, range(3))
        succeed(leases, claim)
        newest = client.xrevrange(stream, count=1)[0][0]  # type: ignore[index]
        client.xtrim(stream, minid=newest, approximate=False)
        over.set()
        kinds = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert kinds == [f"event: {kind}" for kind in ("status", "status", "gap", "metric", "metric", "status")]
