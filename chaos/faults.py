"""Carrying out a schedule, one task for each fault, and noting when each of them was over."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import redis

from chaos import kin
from chaos.house import House, say
from chaos.schedule import Fault, Kind

GONE_S = 10.0  # a killed worker's runners end with it; on a busy machine not within a blink
_LATE_S = 0.5


class Faults:
    """`over_at`: when each fault ended, in seconds since 1970. `survivors`: processes that outlived their worker."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.over_at: list[float] = []
        self.done: Counter[Kind] = Counter()
        self.survivors: list[str] = []

    @property
    def left_out(self) -> Mapping[Kind, str]:
        """What can't be done on this machine, and why. Known once the house is open."""
        reasons = {Kind.FULL: self._house.disk.left_out, Kind.JUMP: self._house.clock.left_out}
        return {kind: why for kind, why in reasons.items() if why is not None}

    async def carry_out(self, schedule: Iterable[Fault], begun_s: float) -> None:
        """All that can be done here; `begun_s` is by the monotonic clock."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                if fault.kind not in self.left_out:
                    group.create_task(self._one(fault, begun_s))

    async def _one(self, fault: Fault, begun_s: float) -> None:
        await asyncio.sleep(begun_s + fault.at_s - time.monotonic())
        say(f"{time.monotonic() - begun_s:6.1f} s  {fault.kind}: {fault.target}, {fault.lasts_s:.1f} s")
        match fault.kind:
            case Kind.KILL | Kind.TERM:
                await self._end(fault)
            case Kind.STOP:
                self._house.stop(fault.target)
                await asyncio.sleep(fault.lasts_s)
                self._house.go_on(fault.target)
            case Kind.FULL:
                self._house.disk.fill()
                await asyncio.sleep(fault.lasts_s)
                self._house.disk.free()
            case Kind.JUMP:
                self._house.clock.jump(int(fault.target))
                await asyncio.sleep(fault.lasts_s)
                self._house.clock.jump(0)
            case _:
                await self._redis(fault)
        self.over_at.append(time.time())
        self.done[fault.kind] += 1

    async def _end(self, fault: Fault) -> None:
        process = self._house.parts[fault.target].process
        family = kin.below(process.pid) if process is not None else set()
        self._house.end(fault.target, signal.SIGKILL if fault.kind is Kind.KILL else signal.SIGTERM)
        await asyncio.sleep(fault.lasts_s)
        await self._house.start(fault.target)
        deadline_s = time.monotonic() + GONE_S
        while left := kin.alive(family):
            if time.monotonic() > deadline_s:
                self.survivors += [f"{each.command} outlived {fault.target}" for each in left]
                return
            await asyncio.sleep(0.2)

    async def _redis(self, fault: Fault) -> None:
        proxy = self._house.proxy
        match fault.kind:
            case Kind.RESTART:
                await self._restart(fault)
            case Kind.AWAY if fault.target == "silent":
                proxy.silence()
                await asyncio.sleep(fault.lasts_s)
                proxy.speak()
            case Kind.AWAY:
                proxy.shut()
                await asyncio.sleep(fault.lasts_s)
                await proxy.open()
            case Kind.SLOW:
                proxy.answers_late_by_s = _LATE_S
                await asyncio.sleep(fault.lasts_s)
                proxy.answers_late_by_s = 0.0
            case Kind.RESET:
                proxy.reset()

    async def _restart(self, fault: Fault) -> None:
        """A KILL takes requests and answers along that are on their way, but nothing that was acknowledged.

        With `everysec` it may take what was answered while the file was synced (docs/decisions/0009-*.md), which is
        no part of the promise: so nothing more is let through until all is in the file. With `always` it comes at once.
        """
        house = self._house
        if fault.target == "by TERM":
            await self._ended_in_order(house.server.pid)
        else:
            if house.durability == "everysec":
                house.proxy.silence()
                await self._written()
            house.server.kill()
        house.proxy.reset()
        house.proxy.speak()
        await asyncio.sleep(fault.lasts_s)
        house.server.revive()

    async def _ended_in_order(self, pid: int) -> None:
        os.kill(pid, signal.SIGTERM)
        while kin.of(pid) is not None:
            await asyncio.sleep(0.01)

    async def _written(self) -> None:
        """At most 2 s: Redis then writes, however long a sync takes."""
        with redis.Redis.from_url(self._house.server.url) as client:
            held_back = partial(_held_back, client)
            while held_back():
                await asyncio.sleep(0.01)


def _held_back(client: redis.Redis) -> int:
    found: Any = client.info("persistence")
    return int(found["aof_buffer_length"])
