"""The proxy before a real server, a small disk and a jumping clock: each without a fault, and with each fault."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.injectors import JumpingClock, Proxy, SmallDisk
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
        proxy.reply_delay_s = PATIENCE_S
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
        await proxy.restore()
        assert proxy.url == url
        await client.ping()

    through(server, asking)


def test_silent_it_holds_a_request_back_and_passes_it_on_though_its_caller_has_gone(server: EmbeddedServer) -> None:
    async def asking(proxy: Proxy, client: Any) -> None:
        await client.set("late", "before")
        proxy.hold()
        with pytest.raises(redis.TimeoutError):
            await client.set("late", "after")
        async with redis.asyncio.Redis.from_url(server.url, decode_responses=True) as direct:
            assert await direct.get("late") == "before"
            await proxy.restore()
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


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    disk.mount()
    if disk.left_out is not None:
        pytest.skip(disk.left_out)
    yield disk
    disk.unmount()


def test_nothing_can_be_written_while_it_is_full(disk: SmallDisk) -> None:
    (disk.folder / "before").write_text("kept")
    disk.fill()
    with pytest.raises(OSError, match="No space") as full:
        (disk.folder / "meanwhile").write_text("lost")
    assert full.value.errno == errno.ENOSPC
    disk.free()
    disk.free()
    (disk.folder / "after").write_text("kept")
    assert (disk.folder / "before").read_text() == "kept"


def test_it_goes_with_all_that_is_in_it_though_a_file_is_open(disk: SmallDisk) -> None:
    with (disk.folder / "open").open("w"):
        disk.unmount()
        assert not disk.folder.is_mount()
    assert list(disk.folder.iterdir()) == []


def test_where_none_can_be_mounted_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    disk = SmallDisk(tmp_path / "disk")
    disk.mount()
    assert disk.left_out is not None
    assert "mount" in disk.left_out


# Python's way to ask and C's; sleeping goes by the monotonic clock, and has to go on.
TELL = """
import ctypes, sys, time
for _ in sys.stdin:
    time.sleep(0.001)
    print(time.time(), ctypes.CDLL(None).time(None) & 0xFFFFFFFF, time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("offset_s", [10800, -10800])
def test_it_jumps_under_a_process_that_runs_and_back_again(offset_s: int, tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path)
    if clock.left_out is not None:
        pytest.skip(clock.left_out)
    command, pipe = [sys.executable, "-c", TELL], subprocess.PIPE
    with subprocess.Popen(command, env=os.environ | clock.env, stdin=pipe, stdout=pipe, text=True) as told:
        assert told.stdin is not None
        assert told.stdout is not None
        for expected_s in (0, offset_s, 0):
            clock.jump(expected_s)
            told.stdin.write("\n")
            told.stdin.flush()
            wall_s, also_s, monotonic_s = map(float, told.stdout.readline().split())
            assert abs(wall_s - time.time() - expected_s) < 60
            assert abs(also_s - time.time() - expected_s) < 60
            assert abs(monotonic_s - time.monotonic()) < 60
        told.stdin.close()


def test_without_a_compiler_it_says_so_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    clock = JumpingClock(tmp_path)
    assert clock.env == {}
    assert "no cc" in str(clock.left_out)
    clock.jump(10800)
