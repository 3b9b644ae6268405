"""One check of the store a second, however many requests ask whether the service is ready."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from math import ceil

import pytest
import redis

from dyno.artifact_store import service_store
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import async_client
from service import sharing
from service.app import create_app
from service.sharing import FRESH_S, ReadinessChecks, SharedCheck

REQUESTS = 60


def checks(client):
    """How often the service read Redis' configuration, which it does once in each check."""
    found = client.info("commandstats")
    return int(found.get("cmdstat_config|get", {"calls": 0})["calls"])


def test_many_requests_cost_one_check_a_second(serve):
    with (
        EmbeddedServer() as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
        serve(create_app(Settings(redis_url=server.url))) as http,
        ThreadPoolExecutor(10) as pool,
    ):
        before, began_s = checks(client), time.monotonic()
        answers = list(pool.map(lambda _: http.get("/readyz").status_code, range(REQUESTS)))
        took_s = time.monotonic() - began_s
        made = checks(client) - before
    assert answers == REQUESTS * [200]
    assert 1 <= made <= 1 + ceil(took_s / FRESH_S) < REQUESTS


@pytest.mark.anyio
async def test_requests_during_a_check_share_it_and_one_that_leaves_ends_it_for_no_other():
    begun, open_, made = asyncio.Event(), asyncio.Event(), list[int]()

    async def slow():
        begun.set()
        await open_.wait()
        made.append(1)
        return len(made)

    check = SharedCheck(slow)
    leaving, staying = asyncio.ensure_future(check.latest()), asyncio.ensure_future(check.latest())
    await begun.wait()
    leaving.cancel()
    late = asyncio.ensure_future(check.latest())
    open_.set()
    assert (await staying, await late) == (1, 1)
    assert leaving.cancelled()


@pytest.mark.anyio
async def test_a_check_is_made_again_after_a_second():
    made = list[int]()

    async def once_more():
        made.append(1)
        return len(made)

    now_s = 100.0
    check = SharedCheck(once_more, clock=lambda: now_s)
    assert [await check.latest() for _ in range(3)] == [1, 1, 1]
    now_s += 0.9 * FRESH_S
    assert await check.latest() == 1
    now_s += 0.2 * FRESH_S
    assert await check.latest() == 2


@pytest.mark.anyio
async def test_a_mount_that_hangs_keeps_one_thread(tmp_path, settings, monkeypatch):
    """Reading a pipe without a writer blocks, as a hung mount does."""
    monkeypatch.setattr(sharing, "FILES_WITHIN_S", 0.05)
    now_s, pipe = 0.0, tmp_path / "pipe"
    os.mkfifo(pipe)
    store = service_store(settings)
    monkeypatch.setattr(store, "check", pipe.read_bytes)
    async with async_client(settings) as client:
        check = ReadinessChecks.of(client, settings, store).artifact_store
        monkeypatch.setattr(check, "_clock", lambda: now_s)
        before, found = threading.active_count(), list[int]()
        for _ in range(5):
            now_s += FRESH_S
            [error] = await check.latest()
            assert "didn't respond" in error.detail
            found.append(threading.active_count() - before)
        assert found == [1] * 5
        pipe.write_bytes(b"")
        for _ in range(2):  # the outcome of the check that hung, then of another one
            monkeypatch.setattr(sharing, "FILES_WITHIN_S", 10)
            monkeypatch.setattr(store, "check", lambda: None)
            now_s += FRESH_S
            assert await check.latest() == []
