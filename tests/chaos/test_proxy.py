"""The proxy in front of a real server: as if it weren't there, and with each of its faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.proxy import Proxy
from dyno.store.embedded import EmbeddedServer

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is

PATIENCE_S = 0.3
Asking = Callable[[Proxy, Any], Awaitable[None]]


def through(server: EmbeddedServer, asking: Asking, *, patience_s: float = 10) -> None:
    """Open a proxy, and hand it over with a client that asks through it, once and no more."""

    async def run() -> None:
        proxy = Proxy()
        await proxy.open(server.url.removeprefix("unix://"))
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": patience_s, "decode_responses": True}
        async with redis.asyncio.Redis.from_url(proxy.url, **options) as client:
            await asking(proxy, client)
        proxy.shut()

    asyncio.run(run())


@pytest.fixture(scope="module")
def server() -> Any:
    with EmbeddedServer() as server:
        yield server


def test_it_passes_on_what_is_asked_and_answered(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        long = "x" * 500_000
        await client.set("key", long)
        assert await client.get("key") == long

    through(server, asking)


def test_replies_come_late_where_they_are_to(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        await client.ping()
        proxy.replies_late_by_s = PATIENCE_S
        since_s = time.monotonic()
        await client.ping()
        assert time.monotonic() - since_s >= PATIENCE_S

    through(server, asking)


def test_shut_it_refuses_and_open_again_it_serves_on_the_same_port(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        await client.ping()
        url = proxy.url
        proxy.shut()
        for _ in range(2):  # the connection that there was, and a new one
            with pytest.raises(redis.ConnectionError):
                await client.ping()
        await proxy.open()
        assert proxy.url == url
        await client.ping()

    through(server, asking)


def test_silent_it_holds_a_request_back_and_passes_it_on_though_its_caller_has_gone(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        await client.set("late", "before")
        proxy.silence()
        with pytest.raises(redis.TimeoutError):
            await client.set("late", "after")
        async with redis.asyncio.Redis.from_url(server.url, decode_responses=True) as direct:
            assert await direct.get("late") == "before"
            proxy.speak()
            async with asyncio.timeout(10):
                while await direct.get("late") != "after":
                    await asyncio.sleep(0.01)

    through(server, asking, patience_s=PATIENCE_S)


def test_a_reset_cuts_the_connections_that_there_are_and_no_others(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        await client.ping()
        proxy.reset()
        with pytest.raises(redis.ConnectionError):
            await client.ping()
        await client.ping()

    through(server, asking)


def test_the_death_of_redis_is_that_of_its_connections(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        await client.ping()
        server.kill()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                await client.ping()
        server.revive()
        await client.ping()

    through(server, asking)
