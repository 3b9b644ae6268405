"""Faults as they are carried out: on sleeping parts, and on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from chaos import kin
from chaos.faults import Faults
from chaos.house import House
from chaos.run import left_behind
from chaos.schedule import Fault, Kind
from dyno.settings import Durability
from tests.chaos.parts import SLEEPS, part, pid_of, state_of, until
from tests.waiting import eventually

LEAVES_A_CHILD = (
    "import subprocess, sys; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); " + SLEEPS
)


def shaken(house: House, *schedule: Fault, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Faults:
    """The faults on the house as it is, and what is looked at while they last."""
    faults = Faults(house)

    async def run() -> None:
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for one in house.parts.values():
                    one.start()
                group.create_task(faults.carry_out(schedule, time.monotonic()))
                if meanwhile is not None:
                    group.create_task(meanwhile())
        finally:
            await house.close_parts()
            house.close()

    asyncio.run(run())
    return faults


def test_a_process_left_behind_by_a_killed_part_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.GONE_S", 0.5)
    monkeypatch.setattr("chaos.run.GONE_S", 0.5)
    house = House(tmp_path, "everysec")
    house.parts["api"] = part(LEAVES_A_CHILD)
    house.parts["api"].env = {**house.parts["api"].env, kin.MARK: house.name}

    async def run() -> Faults:
        faults = Faults(house)
        house.parts["api"].start()
        await until(lambda: kin.below(pid_of(house, "api")))
        await faults.carry_out([Fault(0.0, Kind.KILL, "api", 0.0)], time.monotonic())
        await house.close_parts()
        house.close()
        return faults

    faults = asyncio.run(run())
    [told] = faults.survivors
    assert told.endswith("outlived api")
    assert faults.done == {Kind.KILL: 1}
    assert asyncio.run(left_behind(house.name))[0].endswith("outlived the house")
    eventually(lambda: kin.marked(house.name) == set())


def test_a_stopped_part_sleeps_for_as_long_as_the_fault_lasts(tmp_path: Path) -> None:
    house = House(tmp_path, "everysec")
    house.parts["api"] = part()
    states: list[str] = []

    async def meanwhile() -> None:
        await until(lambda: state_of(house, "api") == "T")
        states.append("stopped")
        await until(lambda: state_of(house, "api") != "T")
        states.append("goes on")

    began = time.time()
    faults = shaken(house, Fault(0.1, Kind.STOP, "api", 0.5), meanwhile=meanwhile)
    assert states == ["stopped", "goes on"]
    [over_at] = faults.over_at
    assert over_at - began >= 0.6


def test_what_can_not_be_done_here_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    house = House(tmp_path, "everysec")
    house.disk.mount()
    faults = shaken(house, Fault(0.0, Kind.FULL, "", 0.0), Fault(0.0, Kind.JUMP, "+10800", 0.0))
    assert set(faults.left_out) == {Kind.FULL, Kind.JUMP}
    assert faults.done == {}


@pytest.mark.parametrize("durability", ["everysec", "always"])
@pytest.mark.parametrize("how", ["by TERM", "by KILL"])
def test_a_restart_of_redis_keeps_what_it_acknowledged(how: str, durability: Durability, tmp_path: Path) -> None:
    house = House(tmp_path, durability)
    house.server.start()
    pids: list[int] = [house.server.pid]

    async def run() -> Faults:
        faults = Faults(house)
        await house.proxy.open(house.server.url.removeprefix("unix://"))
        async with redis.asyncio.Redis.from_url(house.proxy.url) as client:
            for number in range(100):
                await client.set(f"key-{number}", number)
        await faults.carry_out([Fault(0.0, Kind.RESTART, how, 0.0)], time.monotonic())
        pids.append(house.server.pid)
        async with redis.asyncio.Redis.from_url(house.proxy.url) as client:
            assert await client.dbsize() == 100
        house.proxy.shut()
        house.close()
        return faults

    assert asyncio.run(run()).done == {Kind.RESTART: 1}
    assert pids[0] != pids[1]
