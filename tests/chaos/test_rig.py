"""The rig's parts: started again when they die, left alone when they are meant to be down, and all ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from chaos.rig import Rig
from dyno.processes import ManagedProcess
from tests.chaos.parts import SLEEPS, part, pid_of, state_of, until

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is


DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEPS}"


def with_parts(folder: Path, parts: dict[str, ManagedProcess], shaken: Callable[[Rig], Awaitable[None]]) -> Rig:
    """A rig of these parts alone, minded while it is shaken, and closed."""
    rig = Rig(folder, "everysec")
    rig.parts.update(parts)

    async def run() -> None:
        for one in parts.values():
            one.start()
        minding = asyncio.create_task(rig.restart_dead_parts())
        try:
            async with asyncio.timeout(30):
                await shaken(rig)
        finally:
            minding.cancel()
            await rig.close_parts()
            rig.close()

    asyncio.run(run())
    assert all(one.process is not None and one.process.poll() is not None for one in rig.parts.values())
    return rig


def test_a_part_that_dies_by_itself_is_started_again_and_told_of(tmp_path: Path) -> None:
    async def shaken(rig: Rig) -> None:
        first = pid_of(rig, "one")
        os.kill(first, signal.SIGSEGV)
        await until(lambda: pid_of(rig, "one") != first)

    rig = with_parts(tmp_path, {"one": part(), "other": part()}, shaken)
    assert rig.died == [f"one ended by itself with exit code {-signal.SIGSEGV}"]
    assert rig.stuck == []


def test_a_part_that_was_ended_stays_down_until_it_is_started_and_died_of_nothing(tmp_path: Path) -> None:
    async def shaken(rig: Rig) -> None:
        first = pid_of(rig, "one")
        rig.end("one", signal.SIGKILL)
        os.kill(pid_of(rig, "other"), signal.SIGKILL)
        await until(lambda: len(rig.died) == 1)
        assert pid_of(rig, "one") == first
        await rig.start("one")
        assert pid_of(rig, "one") != first

    rig = with_parts(tmp_path, {"one": part(), "other": part()}, shaken)
    assert [each.split()[0] for each in rig.died] == ["other"]


def test_a_stopped_part_is_ended_with_the_others(tmp_path: Path) -> None:
    async def shaken(rig: Rig) -> None:
        rig.send("one", signal.SIGSTOP)
        await until(lambda: state_of(rig, "one") == "T")

    assert with_parts(tmp_path, {"one": part()}, shaken).stuck == []


def test_a_part_that_hears_no_term_is_killed_in_the_end_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.rig._STOP_S", 1.0)
    heard = tmp_path / "heard"

    async def shaken(rig: Rig) -> None:
        await until(lambda: "deaf" in heard.read_text())

    with heard.open("w") as words:
        rig = with_parts(tmp_path, {"deaf": part(DEAF, words.fileno()), "other": part()}, shaken)
    assert [each.split()[0] for each in rig.stuck] == ["deaf"]


def test_a_part_that_a_fault_starts_while_it_is_about_to_be_restarted_runs_once(tmp_path: Path) -> None:
    async def shaken(rig: Rig) -> None:
        rig.send("one", signal.SIGKILL)
        await until(lambda: rig.died)
        rig.end("one", signal.SIGKILL)
        await rig.start("one")
        started, other = pid_of(rig, "one"), pid_of(rig, "other")
        rig.send("other", signal.SIGKILL)
        await until(lambda: pid_of(rig, "other") != other)  # by then the rig has looked at the first one
        assert pid_of(rig, "one") == started

    rig = with_parts(tmp_path, {"one": part(), "other": part()}, shaken)
    assert [each.split()[0] for each in rig.died] == ["one", "other"]


def test_two_faults_that_end_the_same_part_start_it_once(tmp_path: Path) -> None:
    async def shaken(rig: Rig) -> None:
        first = pid_of(rig, "one")
        rig.end("one", signal.SIGKILL)
        rig.end("one", signal.SIGTERM)
        await rig.start("one")
        started = pid_of(rig, "one")
        assert started != first
        await rig.start("one")
        assert pid_of(rig, "one") == started

    assert with_parts(tmp_path, {"one": part()}, shaken).stuck == []
