"""Faults as they are carried out: on sleeping parts, and on a real server."""

import asyncio
import time

import psutil
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.faults import FaultInjector
from chaos.plan import Fault, FaultKind
from chaos.rig import Rig
from tests.chaos.parts import looked_up, part, process_of, socket_of, with_parts


async def replies(rig, within_s):
    once = Retry(NoBackoff(), 0)
    async with redis.asyncio.Redis.from_url(rig.proxy.url, socket_timeout=within_s, retry=once) as client:
        try:
            return bool(await client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


async def is_well(rig, within_s=0.3):
    awake = process_of(rig, "api").poll() is None and looked_up(rig, "api").status() != psutil.STATUS_STOPPED
    clock = (rig.folder / "clock").read_bytes() == bytes(8)
    full = (rig.disk.folder / "ballast").exists()
    return awake and clock and not full and await replies(rig, within_s)


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
        url = rig.proxy.url
        if kind in faults.left_out:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(faults.inject_all([fault], time.monotonic()))
            while await is_well(rig):
                await asyncio.sleep(0.01)
        assert await is_well(rig, 20)
        assert rig.proxy.url == url

    with_parts(rig, run)
    if kind in faults.left_out:
        pytest.skip(faults.left_out[kind])
    [(done, span)] = faults.spans
    assert done == fault
    assert span.from_s - began_s >= fault.at_s
    assert span.to_s - span.from_s >= fault.lasts_s


@pytest.mark.parametrize("durability", ["everysec", "always"])
@pytest.mark.parametrize("how", ["by TERM", "by KILL"])
def test_a_restart_of_redis_keeps_acknowledged_writes(how, durability, tmp_path):
    rig = Rig(tmp_path, durability)
    rig.server.start()
    first = rig.server.pid

    async def run(rig):
        await rig.proxy.open(socket_of(rig))
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            for number in range(100):
                await client.set(f"key-{number}", number)
        await FaultInjector(rig).inject_all([Fault(0.0, FaultKind.RESTART, how, 0.0)], time.monotonic())
        assert rig.server.pid != first
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            return await client.dbsize()

    assert with_parts(rig, run) == 100
