"""Faults as they are carried out: on sleeping parts, and on a real server."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from chaos import kin, remains
from chaos.faults import Faults
from chaos.rig import Rig
from chaos.schedule import Fault, Kind
from dyno.settings import Durability
from tests.chaos.parts import SLEEPS, part, pid_of, state_of, until
from tests.waiting import eventually

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is

LEAVES_A_CHILD = (
    "import subprocess, sys; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); " + SLEEPS
)


def shaken(rig: Rig, *schedule: Fault, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Faults:
    """The faults on the rig as it is, and what is looked at while they last."""
    faults = Faults(rig)

    async def run() -> None:
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for one in rig.parts.values():
                    one.start()
                group.create_task(faults.carry_out(schedule, time.monotonic()))
                if meanwhile is not None:
                    group.create_task(meanwhile())
        finally:
            await rig.close_parts()
            rig.close()

    asyncio.run(run())
    return faults


def test_a_process_left_behind_by_a_killed_part_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.GONE_S", 0.5)
    monkeypatch.setattr("chaos.remains.GONE_S", 0.5)
    rig = Rig(tmp_path, "everysec")
    rig.parts["api"] = part(LEAVES_A_CHILD)
    rig.parts["api"].env = {**rig.parts["api"].env, kin.MARK: rig.name}

    async def run() -> Faults:
        faults = Faults(rig)
        rig.parts["api"].start()
        await until(lambda: kin.below(pid_of(rig, "api")))
        await faults.carry_out([Fault(0.0, Kind.KILL, "api", 0.0)], time.monotonic())
        await rig.close_parts()
        rig.close()
        return faults

    faults = asyncio.run(run())
    [told] = faults.survivors
    assert told.endswith("outlived api")
    assert faults.done == {Kind.KILL: 1}
    left = asyncio.run(remains.in_the_end(rig))
    assert [each.what.endswith("outlived the rig") for each in left] == [True, True]  # that of its successor, too
    eventually(lambda: kin.marked(rig.name) == set())


def test_a_stopped_part_sleeps_for_as_long_as_the_fault_lasts(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "everysec")
    rig.parts["api"] = part()
    states: list[str] = []

    async def meanwhile() -> None:
        await until(lambda: state_of(rig, "api") == "T")
        states.append("stopped")
        await until(lambda: state_of(rig, "api") != "T")
        states.append("goes on")

    began = time.time()
    faults = shaken(rig, Fault(0.1, Kind.STOP, "api", 0.5), meanwhile=meanwhile)
    assert states == ["stopped", "goes on"]
    [(_, span)] = faults.spans
    assert span.from_s - began >= 0.1
    assert span.to_s - span.from_s >= 0.5
    assert faults.away == {"api": [span]}


def test_what_can_not_be_done_here_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    rig = Rig(tmp_path, "everysec")
    rig.disk.mount()
    faults = shaken(rig, Fault(0.0, Kind.FULL, "", 0.0), Fault(0.0, Kind.JUMP, "+10800", 0.0))
    assert set(faults.left_out) == {Kind.FULL, Kind.JUMP}
    assert faults.done == {}


@pytest.mark.parametrize("durability", ["everysec", "always"])
@pytest.mark.parametrize("how", ["by TERM", "by KILL"])
def test_a_restart_of_redis_keeps_what_it_acknowledged(how: str, durability: Durability, tmp_path: Path) -> None:
    rig = Rig(tmp_path, durability)
    rig.server.start()
    pids: list[int] = [rig.server.pid]

    async def run() -> Faults:
        faults = Faults(rig)
        await rig.proxy.open(rig.server.url.removeprefix("unix://"))
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            for number in range(100):
                await client.set(f"key-{number}", number)
        await faults.carry_out([Fault(0.0, Kind.RESTART, how, 0.0)], time.monotonic())
        pids.append(rig.server.pid)
        async with redis.asyncio.Redis.from_url(rig.proxy.url) as client:
            assert await client.dbsize() == 100
        rig.proxy.shut()
        rig.close()
        return faults

    assert asyncio.run(run()).done == {Kind.RESTART: 1}
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
            await Faults(rig).carry_out([Fault(0.0, Kind.RESTART, "by KILL", 0.0)], time.monotonic())
            async with redis.asyncio.Redis.from_url(rig.server.url) as client:
                return await client.dbsize(), written
        finally:
            rig.proxy.shut()
            rig.close()

    found, written = asyncio.run(run())
    assert found == written > 0
