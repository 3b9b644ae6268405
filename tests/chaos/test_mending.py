"""Faults that the end of the run cuts short are undone, each of them, and no part is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos import kin
from chaos.faults import Faults
from chaos.rig import Rig
from chaos.schedule import Fault, Kind
from tests.chaos.parts import part, pid_of, state_of, until

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is

FOR_EVER_S, PATIENCE_S = 600.0, 20.0
Look = Callable[[Rig], Awaitable[None]]


def on_a_rig(folder: Path, look: Look) -> Rig:
    """A rig with a Redis behind its proxy and one part that sleeps."""
    rig = Rig(folder, "everysec")
    rig.parts["api"] = part()

    async def run() -> None:
        rig.disk.mount()
        rig.server.start()
        await rig.proxy.open(rig.server.url.removeprefix("unix://"))
        rig.parts["api"].start()
        try:
            async with asyncio.timeout(60):
                await look(rig)
        finally:
            await rig.close_parts()
            rig.proxy.shut()
            rig.close()

    asyncio.run(run())
    return rig


async def replies(rig: Rig, within_s: float) -> bool:
    once = Retry(NoBackoff(), 0)
    async with redis.asyncio.Redis.from_url(rig.proxy.url, socket_timeout=within_s, retry=once) as client:
        try:
            return bool(await client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


@pytest.mark.parametrize(
    "fault",
    [
        Fault(0.0, Kind.KILL, "api", FOR_EVER_S),
        Fault(0.0, Kind.STOP, "api", FOR_EVER_S),
        Fault(0.0, Kind.AWAY, "silent", FOR_EVER_S),
        Fault(0.0, Kind.AWAY, "refusing", FOR_EVER_S),
        Fault(0.0, Kind.RESTART, "by KILL", FOR_EVER_S),
        Fault(0.0, Kind.SLOW, "every reply", FOR_EVER_S),
        Fault(0.0, Kind.FULL, "the workers' disk", FOR_EVER_S),
        Fault(0.0, Kind.JUMP, "+10800", FOR_EVER_S),
    ],
    ids=lambda fault: f"{fault.kind} {fault.target}",
)
def test_a_fault_that_was_cut_short_is_undone(fault: Fault, tmp_path: Path) -> None:
    async def look(rig: Rig) -> None:
        if fault.kind in Faults(rig).left_out:
            pytest.skip(Faults(rig).left_out[fault.kind])

        async def well(within_s: float) -> bool:
            process = rig.parts["api"].process
            awake = process is not None and process.poll() is None and state_of(rig, "api") != "T"
            clock = (tmp_path / "clock").read_bytes() == bytes(8)
            free = not (rig.disk.folder / "ballast").exists()
            quick = rig.proxy.replies_late_by_s == 0
            return awake and clock and free and quick and await replies(rig, within_s)

        assert await well(PATIENCE_S)
        server, faults = rig.server.pid, Faults(rig)
        carrying_out = asyncio.create_task(faults.carry_out([fault], time.monotonic()))
        while await well(0.3) or (fault.kind is Kind.RESTART and kin.of(server)):
            await asyncio.sleep(0.01)
        carrying_out.cancel()
        await asyncio.wait([carrying_out])
        assert not await well(0.3)
        await rig.mend()
        assert await well(PATIENCE_S)
        assert faults.done == {}
        assert [each for each, _ in faults.spans] == [fault]

    assert on_a_rig(tmp_path, look).died == []


def test_a_redis_that_is_still_ending_when_its_fault_is_cut_short_is_there_again(tmp_path: Path) -> None:
    def is_told_to_end(pid: int) -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        pending = int(status.partition("ShdPnd:")[2].split()[0], 16)
        return bool(pending & 1 << signal.SIGTERM - 1)

    def is_stopped(pid: int) -> bool:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    async def look(rig: Rig) -> None:
        server, fault = rig.server.pid, Fault(0.0, Kind.RESTART, "by TERM", FOR_EVER_S)
        os.kill(server, signal.SIGSTOP)  # it can't end yet
        await until(lambda: is_stopped(server))  # of two signals that wait, the kernel takes TERM first
        carrying_out = asyncio.create_task(Faults(rig).carry_out([fault], time.monotonic()))
        await until(lambda: is_told_to_end(server))
        carrying_out.cancel()
        await asyncio.wait([carrying_out])
        mending = asyncio.create_task(rig.mend())
        await asyncio.sleep(0)  # who doesn't wait for its end has looked by then
        os.kill(server, signal.SIGCONT)
        await mending
        assert rig.server.pid != server
        assert await replies(rig, PATIENCE_S)

    on_a_rig(tmp_path, look)


def test_a_part_that_a_fault_starts_while_it_is_about_to_be_started_is_there_once(tmp_path: Path) -> None:
    async def look(rig: Rig) -> None:
        rig.parts["other"] = part()
        rig.parts["other"].start()
        minding = asyncio.create_task(rig.mind())
        rig.parts["api"].process.send_signal(signal.SIGKILL)
        await until(lambda: rig.died)
        rig.end("api", signal.SIGKILL)
        await rig.start("api")
        started, other = pid_of(rig, "api"), pid_of(rig, "other")
        rig.parts["other"].process.send_signal(signal.SIGKILL)
        await until(lambda: pid_of(rig, "other") != other)  # whoever minds has been at the first one by then
        minding.cancel()
        assert pid_of(rig, "api") == started

    assert [each.split()[0] for each in on_a_rig(tmp_path, look).died] == ["api", "other"]


def test_two_faults_that_end_the_same_part_start_it_once(tmp_path: Path) -> None:
    async def look(rig: Rig) -> None:
        first = pid_of(rig, "api")
        rig.end("api", signal.SIGKILL)
        rig.end("api", signal.SIGTERM)
        await rig.start("api")
        started = pid_of(rig, "api")
        assert started != first
        await rig.start("api")
        assert pid_of(rig, "api") == started

    assert on_a_rig(tmp_path, look).stuck == []
