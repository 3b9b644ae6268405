"""Faults as they are carried out, on sleeping parts, a real server, a small disk and a jumping clock."""

import asyncio
import os
import subprocess
import sys
import time

import psutil
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.faults import FaultInjector
from chaos.injectors import JumpingClock, Proxy, SmallDisk
from chaos.plan import Fault, FaultKind
from chaos.rig import Rig
from dyno.store.embedded import EmbeddedServer
from tests.chaos.parts import looked_up, part, process_of, socket_of, with_parts


def client_of(url, within_s):
    """A client that never retries."""
    options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": within_s, "decode_responses": True}
    return redis.asyncio.Redis.from_url(url, **options)


async def is_well(rig, within_s=0.3):
    try:
        (rig.disk.folder / str(time.monotonic_ns())).write_text("needs space")
        async with client_of(rig.proxy.url, within_s) as client:
            await client.ping()
    except (OSError, redis.ConnectionError, redis.TimeoutError):
        return False
    awake = process_of(rig, "api").poll() is None and looked_up(rig, "api").status() != psutil.STATUS_STOPPED
    return awake and (rig.folder / "clock").read_bytes() == bytes(8)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (FaultKind.KILL, "api"),
        (FaultKind.TERM, "api"),
        (FaultKind.STOP, "api"),
        (FaultKind.AWAY, "silent"),
        (FaultKind.AWAY, "refusing"),
        (FaultKind.RESTART, "by KILL"),
        (FaultKind.RESTART, "by TERM"),
        (FaultKind.SLOW, "every reply"),
        (FaultKind.FULL, "the workers' disk"),
        (FaultKind.JUMP, "+10800"),
    ],
)
def test_a_fault_lasts_for_its_time_and_is_undone(kind, target, tmp_path):
    rig, fault = Rig(tmp_path, "everysec"), Fault(0.1, kind, target, 1.0)
    rig.parts["api"] = part(rig)
    rig.disk.mount()
    rig.server.start()
    began_s, faults = time.time(), FaultInjector(rig)

    async def run(rig):
        await rig.proxy.open(socket_of(rig))
        assert await is_well(rig, 20)
        if kind in faults.left_out:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(faults.inject_all([fault], time.monotonic()))
            while await is_well(rig):
                await asyncio.sleep(0.01)
        assert await is_well(rig, 20)

    with_parts(rig, run)
    if kind in faults.left_out:
        pytest.skip(faults.left_out[kind])
    [(done, span)] = faults.spans
    assert done == fault
    assert span.from_s - began_s >= fault.at_s
    assert span.to_s - span.from_s >= fault.lasts_s


@pytest.mark.parametrize("durability", ["everysec", "always"])
def test_a_kill_of_redis_keeps_acknowledged_writes(durability, tmp_path):
    rig = Rig(tmp_path, durability)
    rig.server.start()
    first = rig.server.pid

    async def run(rig):
        await rig.proxy.open(socket_of(rig))
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            for number in range(100):
                await client.set(f"key-{number}", number)
        await FaultInjector(rig).inject_all([Fault(0.0, FaultKind.RESTART, "by KILL", 0.0)], time.monotonic())
        assert rig.server.pid != first
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            return await client.dbsize()

    assert with_parts(rig, run) == 100


def test_a_reset_breaks_existing_connections_and_a_silent_proxy_forwards_what_it_held_though_its_client_has_gone():
    async def run(server):
        proxy = Proxy()
        await proxy.open(server.url.removeprefix("unix://"))
        async with client_of(proxy.url, 0.3) as client, client_of(server.url, 10) as direct:
            await client.set("late", "before")
            proxy.reset()
            with pytest.raises(redis.ConnectionError):
                await client.ping()
            await client.ping()  # over a new connection, which lasts
            proxy.hold()
            with pytest.raises(redis.TimeoutError):
                await client.set("late", "after")
            assert await direct.get("late") == "before"
            await proxy.restore()
            async with asyncio.timeout(10):
                while await direct.get("late") != "after":
                    await asyncio.sleep(0.01)
        proxy.shut()

    with EmbeddedServer() as server:
        asyncio.run(run(server))


def test_without_mount_and_compiler_the_faults_are_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    disk, clock = SmallDisk(tmp_path / "disk"), JumpingClock(tmp_path)
    disk.mount()
    assert "no mount" in str(disk.left_out)
    assert (clock.env, "no cc" in str(clock.left_out)) == ({}, True)


# Python's clock and C's. A sleep uses the monotonic clock, and has to end.
TELL = """
import ctypes, sys, time
for _ in sys.stdin:
    time.sleep(0.001)
    print(time.time(), ctypes.CDLL(None).time(None) & 0xFFFFFFFF, time.monotonic(), flush=True)
"""


def test_a_clock_jumps_under_a_process_that_runs_and_back_again(tmp_path):
    clock = JumpingClock(tmp_path)
    if clock.left_out is not None:
        pytest.skip(clock.left_out)
    command, pipe = [sys.executable, "-c", TELL], subprocess.PIPE
    with subprocess.Popen(command, env=os.environ | clock.env, stdin=pipe, stdout=pipe, text=True) as process:
        for expected_s in (0, 10800, -10800, 0):
            clock.jump(expected_s)
            process.stdin.write("\n")
            process.stdin.flush()
            python_s, c_s, monotonic_s = map(float, process.stdout.readline().split())
            assert abs(python_s - time.time() - expected_s) < 60
            assert abs(c_s - time.time() - expected_s) < 60
            assert abs(monotonic_s - time.monotonic()) < 60
        process.stdin.close()
