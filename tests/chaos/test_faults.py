"""Faults as they are carried out: on sleeping parts, and on a real server."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.faults import FaultInjector
from chaos.plan import Fault, FaultKind
from chaos.rig import Rig
from dyno.settings import Durability
from tests.chaos.parts import looked_up, part, process_of, socket_of, with_parts


async def replies(rig: Rig, within_s: float) -> bool:
    once = Retry(NoBackoff(), 0)
    async with redis.asyncio.Redis.from_url(rig.proxy.url, socket_timeout=within_s, retry=once) as client:
        try:
            return bool(await client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


async def is_well(rig: Rig, within_s: float = 0.3) -> bool:
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
def test_a_fault_lasts_for_its_time_and_is_undone(kind: FaultKind, target: str, tmp_path: Path) -> None:
    rig, fault = Rig(tmp_path, "everysec"), Fault(0.1, kind, target, 1.0)
    rig.parts["api"] = part(rig)
    rig.disk.mount()
    rig.server.start()
    began_s, faults = time.time(), FaultInjector(rig)

    async def run(rig: Rig) -> None:
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
@pytest.mark.parametrize("how", ["by TERM", "by KILL"])
def test_a_restart_of_redis_keeps_acknowledged_writes(how: str, durability: Durability, tmp_path: Path) -> None:
    rig = Rig(tmp_path, durability)
    rig.server.start()
    first = rig.server.pid

    async def run(rig: Rig) -> int:
        await rig.proxy.open(socket_of(rig))
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            for number in range(100):
                await client.set(f"key-{number}", number)
        await FaultInjector(rig).inject_all([Fault(0.0, FaultKind.RESTART, how, 0.0)], time.monotonic())
        assert rig.server.pid != first
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            return await client.dbsize()

    assert with_parts(rig, run) == 100


# Each background sync takes so long that Redis delays writing what it has acknowledged meanwhile.
SLOW_SYNCS = """
#include <sys/syscall.h>
#include <unistd.h>
static int slow(long call, int fd) {
  if (syscall(SYS_gettid) != getpid())
    usleep(1500000);
  return (int)syscall(call, fd);
}
int fsync(int fd) { return slow(SYS_fsync, fd); }
int fdatasync(int fd) { return slow(SYS_fdatasync, fd); }
"""


def with_slow_syncs(folder: Path, server: Path) -> Path:
    """A command that starts `server` with them."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("slow syncs need a C compiler")
    source, library, command = folder / "slow.c", folder / "slow.so", folder / "server"
    source.write_text(SLOW_SYNCS)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    command.write_text(f'#!/bin/sh\nLD_PRELOAD="{library}" exec "{server}" "$@"\n')
    command.chmod(0o700)
    return command


def test_a_kill_of_redis_waits_for_acknowledged_writes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "everysec")
    rig.server.binary = with_slow_syncs(tmp_path, rig.server.binary)
    rig.server.start()

    async def run(rig: Rig) -> tuple[int, int]:
        await rig.proxy.open(socket_of(rig))
        written = 0
        async with redis.asyncio.Redis.from_url(rig.server.url) as client:
            while not (await client.info("persistence"))["aof_buffer_length"]:
                await client.set(f"key-{written}", written)
                written += 1
        await FaultInjector(rig).inject_all([Fault(0.0, FaultKind.RESTART, "by KILL", 0.0)], time.monotonic())
        async with redis.asyncio.Redis.from_url(rig.server.url) as client:
            return await client.dbsize(), written

    found, written = with_parts(rig, run)
    assert found == written > 0
