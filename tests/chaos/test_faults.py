"""Faults as they are carried out: on sleeping parts, and on a real server."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos import leaks, processes
from chaos.faults import REDIS, FaultInjector
from chaos.plan import Fault, FaultKind
from chaos.rig import Rig
from dyno.settings import Durability
from tests.chaos.parts import SLEEPS, part, pid_of, state_of, until
from tests.waiting import eventually

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is


LEAVES_A_CHILD = (
    "import subprocess, sys; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); " + SLEEPS
)


def test_a_process_left_behind_by_a_killed_part_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.leaks.GONE_S", 0.5)
    rig = Rig(tmp_path, "everysec")
    rig.parts["api"] = part(LEAVES_A_CHILD)
    rig.parts["api"].env = {**rig.parts["api"].env, processes.MARK: rig.name}

    async def run() -> FaultInjector:
        faults = FaultInjector(rig)
        rig.parts["api"].start()
        await until(lambda: processes.below(pid_of(rig, "api")))
        await faults.inject_all([Fault(0.0, FaultKind.KILL, "api", 0.0)], time.monotonic())
        await rig.close_parts()
        rig.close()
        return faults

    faults = asyncio.run(run())
    [told] = faults.survivors
    assert told.endswith("outlived api")
    assert faults.done == {FaultKind.KILL: 1}
    left = asyncio.run(leaks.in_the_end(rig))
    assert [each.what.endswith("outlived the rig") for each in left] == [True, True]  # that of its successor, too
    eventually(lambda: processes.marked(rig.name) == set())


async def replies(rig: Rig, within_s: float) -> bool:
    once = Retry(NoBackoff(), 0)
    async with redis.asyncio.Redis.from_url(rig.proxy.url, socket_timeout=within_s, retry=once) as client:
        try:
            return bool(await client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


async def is_well(rig: Rig, within_s: float = 0.3) -> bool:
    awake = rig.parts["api"].process.poll() is None and state_of(rig, "api") != "T"
    clock = (rig.folder / "clock").read_bytes() == bytes(8)
    full = (rig.disk.folder / "ballast").exists()
    return awake and clock and not full and await replies(rig, within_s)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(0.1, FaultKind.KILL, "api", 1.0),
        Fault(0.1, FaultKind.TERM, "api", 1.0),
        Fault(0.1, FaultKind.STOP, "api", 1.0),
        Fault(0.1, FaultKind.AWAY, "silent", 1.0),
        Fault(0.1, FaultKind.AWAY, "refusing", 1.0),
        Fault(0.1, FaultKind.RESTART, "by KILL", 1.0),
        Fault(0.1, FaultKind.RESTART, "by TERM", 1.0),
        Fault(0.1, FaultKind.SLOW, "every reply", 1.0),
        Fault(0.1, FaultKind.FULL, "the workers' disk", 1.0),
        Fault(0.1, FaultKind.JUMP, "+10800", 1.0),
    ],
    ids=lambda fault: f"{fault.kind} {fault.target}",
)
def test_a_fault_lasts_for_its_time_and_is_undone(fault: Fault, tmp_path: Path) -> None:
    rig = Rig(tmp_path, "everysec")
    rig.parts["api"] = part()
    rig.disk.mount()
    rig.server.start()
    began_s = time.time()

    async def run() -> FaultInjector:
        faults = FaultInjector(rig)
        rig.parts["api"].start()
        await rig.proxy.open(rig.server.url.removeprefix("unix://"))
        try:
            async with asyncio.timeout(60):
                assert await is_well(rig, 20)
                injecting = asyncio.create_task(faults.inject_all([fault], time.monotonic()))
                while fault.kind not in faults.left_out and await is_well(rig):
                    await asyncio.sleep(0.01)
                await injecting
                assert await is_well(rig, 20)
        finally:
            await rig.close_parts()
            rig.proxy.shut()
            rig.close()
        return faults

    faults = asyncio.run(run())
    if fault.kind in faults.left_out:
        pytest.skip(faults.left_out[fault.kind])
    assert faults.done == {fault.kind: 1}
    [(_, span)] = faults.spans
    assert span.from_s - began_s >= fault.at_s
    assert span.to_s - span.from_s >= fault.lasts_s
    if fault.target == "api":
        assert faults.away == {"api": [span]}
    elif fault.kind in (FaultKind.AWAY, FaultKind.RESTART):
        assert faults.away == {REDIS: [span]}
    else:
        assert faults.away == {}


def test_what_can_not_be_done_here_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    rig = Rig(tmp_path, "everysec")
    rig.disk.mount()
    faults = FaultInjector(rig)
    planned = [Fault(0.0, FaultKind.FULL, "", 0.0), Fault(0.0, FaultKind.JUMP, "+10800", 0.0)]
    asyncio.run(faults.inject_all(planned, time.monotonic()))
    rig.close()
    assert set(faults.left_out) == {FaultKind.FULL, FaultKind.JUMP}
    assert faults.done == {}


@pytest.mark.parametrize("durability", ["everysec", "always"])
@pytest.mark.parametrize("how", ["by TERM", "by KILL"])
def test_a_restart_of_redis_keeps_what_it_acknowledged(how: str, durability: Durability, tmp_path: Path) -> None:
    rig = Rig(tmp_path, durability)
    rig.server.start()
    pids: list[int] = [rig.server.pid]

    async def run() -> FaultInjector:
        faults = FaultInjector(rig)
        await rig.proxy.open(rig.server.url.removeprefix("unix://"))
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            for number in range(100):
                await client.set(f"key-{number}", number)
        await faults.inject_all([Fault(0.0, FaultKind.RESTART, how, 0.0)], time.monotonic())
        pids.append(rig.server.pid)
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            assert await client.dbsize() == 100
        rig.proxy.shut()
        rig.close()
        return faults

    assert asyncio.run(run()).done == {FaultKind.RESTART: 1}
    assert pids[0] != pids[1]


# A sync in the background takes so long that Redis holds back what it has acknowledged meanwhile.
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
    """A command that starts `server` so."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here to make syncs slow with")
    source, library, command = folder / "slow.c", folder / "slow.so", folder / "server"
    source.write_text(SLOW_SYNCS)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    command.write_text(f'#!/bin/sh\nLD_PRELOAD="{library}" exec "{server}" "$@"\n')
    command.chmod(0o700)
    return command


def test_a_kill_of_redis_waits_for_what_it_acknowledged_and_has_not_written_yet(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "everysec")
    rig.server.binary = with_slow_syncs(tmp_path, rig.server.binary)
    rig.server.start()

    async def run() -> tuple[int, int]:
        await rig.proxy.open(rig.server.url.removeprefix("unix://"))
        written = 0
        try:
            async with redis.asyncio.Redis.from_url(rig.server.url) as client, asyncio.timeout(60):
                while not (await client.info("persistence"))["aof_buffer_length"]:
                    await client.set(f"key-{written}", written)
                    written += 1
            await FaultInjector(rig).inject_all([Fault(0.0, FaultKind.RESTART, "by KILL", 0.0)], time.monotonic())
            async with redis.asyncio.Redis.from_url(rig.server.url) as client:
                return await client.dbsize(), written
        finally:
            rig.proxy.shut()
            rig.close()

    found, written = asyncio.run(run())
    assert found == written > 0
