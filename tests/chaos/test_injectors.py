"""The proxy before a real server, a small disk and a jumping clock: each without a fault, and with each fault."""

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.injectors import JumpingClock, Proxy, SmallDisk
from dyno.store.embedded import EmbeddedServer

PATIENCE_S = 0.3
Asking = Callable[[Proxy, Any], Awaitable[None]]


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer() as server:
        yield server


def through(server, asking, *, patience_s=10):
    """Call `asking` with a proxy and a client that connects through it and never retries."""

    async def run():
        proxy = Proxy()
        await proxy.open(server.url.removeprefix("unix://"))
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": patience_s, "decode_responses": True}
        async with redis.asyncio.Redis.from_url(proxy.url, **options) as client:
            await client.ping()
            await asking(proxy, client)
            assert await client.ping()
        proxy.shut()

    asyncio.run(run())


def test_long_values_pass_and_a_reset_breaks_existing_connections_alone(server):
    async def asking(proxy, client):
        long = "x" * 500_000
        await client.set("key", long)
        assert await client.get("key") == long
        proxy.reset()
        with pytest.raises(redis.ConnectionError):
            await client.ping()

    through(server, asking)


def test_a_silent_proxy_forwards_a_held_request_later_though_its_client_has_gone(server):
    async def asking(proxy, client):
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


@pytest.fixture
def disk(tmp_path):
    disk = SmallDisk(tmp_path / "disk")
    disk.mount()
    if disk.left_out is not None:
        pytest.skip(disk.left_out)
    yield disk
    disk.unmount()


def test_nothing_can_be_written_to_a_full_disk_and_unmounting_works_with_an_open_file(disk):
    (disk.folder / "before").write_text("kept")
    disk.fill()
    with pytest.raises(OSError, match="No space") as full:
        (disk.folder / "meanwhile").write_text("lost")
    assert full.value.errno == errno.ENOSPC
    disk.free()
    disk.free()
    (disk.folder / "after").write_text("kept")
    assert (disk.folder / "before").read_text() == "kept"
    with (disk.folder / "open").open("w"):
        disk.unmount()
    assert list(disk.folder.iterdir()) == []


def test_without_mount_and_compiler_both_say_why_and_do_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    disk, clock = SmallDisk(tmp_path / "disk"), JumpingClock(tmp_path)
    disk.mount()
    clock.jump(10800)
    assert "no mount" in str(disk.left_out)
    assert (clock.env, "no cc" in str(clock.left_out)) == ({}, True)


# Python's way to ask and C's; sleeping goes by the monotonic clock, and has to go on.
TELL = """
import ctypes, sys, time
for _ in sys.stdin:
    time.sleep(0.001)
    print(time.time(), ctypes.CDLL(None).time(None) & 0xFFFFFFFF, time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("offset_s", [10800, -10800])
def test_it_jumps_under_a_process_that_runs_and_back_again(offset_s, tmp_path):
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
