"""The house's parts: started again when they die, left alone when they are meant to be down, and all ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from chaos.house import House
from dyno.processes import Part
from tests.chaos.parts import SLEEPS, part, pid_of, state_of, until

DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEPS}"


def with_parts(folder: Path, parts: dict[str, Part], shaken: Callable[[House], Awaitable[None]]) -> House:
    """A house of these parts alone, minded while it is shaken, and closed."""
    house = House(folder, "everysec")
    house.parts.update(parts)

    async def run() -> None:
        for one in parts.values():
            one.start()
        minding = asyncio.create_task(house.mind())
        try:
            async with asyncio.timeout(30):
                await shaken(house)
        finally:
            minding.cancel()
            await house.close_parts()
            house.close()

    asyncio.run(run())
    assert all(one.process is not None and one.process.poll() is not None for one in house.parts.values())
    return house


def test_a_part_that_dies_by_itself_is_started_again_and_told_of(tmp_path: Path) -> None:
    async def shaken(house: House) -> None:
        first = pid_of(house, "one")
        os.kill(first, signal.SIGSEGV)
        await until(lambda: pid_of(house, "one") != first)

    house = with_parts(tmp_path, {"one": part(), "other": part()}, shaken)
    assert house.died == [f"one ended by itself with exit code {-signal.SIGSEGV}"]
    assert house.stuck == []


def test_a_part_that_was_ended_stays_down_until_it_is_started_and_died_of_nothing(tmp_path: Path) -> None:
    async def shaken(house: House) -> None:
        first = pid_of(house, "one")
        house.end("one", signal.SIGKILL)
        os.kill(pid_of(house, "other"), signal.SIGKILL)
        await until(lambda: len(house.died) == 1)
        assert pid_of(house, "one") == first
        await house.start("one")
        assert pid_of(house, "one") != first

    house = with_parts(tmp_path, {"one": part(), "other": part()}, shaken)
    assert [each.split()[0] for each in house.died] == ["other"]


def test_a_stopped_part_is_ended_with_the_others(tmp_path: Path) -> None:
    async def shaken(house: House) -> None:
        house.stop("one")
        await until(lambda: state_of(house, "one") == "T")

    assert with_parts(tmp_path, {"one": part()}, shaken).stuck == []


def test_a_part_that_hears_no_term_is_killed_in_the_end_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.house._STOP_S", 1.0)
    heard = tmp_path / "heard"

    async def shaken(house: House) -> None:
        await until(lambda: "deaf" in heard.read_text())

    with heard.open("w") as words:
        house = with_parts(tmp_path, {"deaf": part(DEAF, words.fileno()), "other": part()}, shaken)
    assert [each.split()[0] for each in house.stuck] == ["deaf"]
