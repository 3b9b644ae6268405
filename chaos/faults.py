"""Injects the faults of a schedule, one task per fault, and records when each began and ended."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import redis

from chaos import kin
from chaos.rig import GONE_S, Rig, say
from chaos.schedule import Fault, Kind
from chaos.spans import Span
from chaos.waits import REDIS

_LATE_S = 0.5
_PART_AWAY = frozenset({Kind.KILL, Kind.STOP, Kind.TERM})
_REDIS_AWAY = frozenset({Kind.RESTART, Kind.AWAY})


class Faults:
    """Injects faults. `spans`: begin and end of each. `done`: completed faults. `survivors`: processes that outlived
    their worker."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.spans: list[tuple[Fault, Span]] = []
        self.done: Counter[Kind] = Counter()
        self.survivors: list[str] = []
        self._families: dict[Fault, set[kin.Process]] = defaultdict(set)

    @property
    def left_out(self) -> Mapping[Kind, str]:
        """The faults that this machine doesn't support, with reasons. Known once the rig is open."""
        reasons = {Kind.FULL: self._rig.disk.left_out, Kind.JUMP: self._rig.clock.left_out}
        return {kind: why for kind, why in reasons.items() if why is not None}

    @property
    def kinds(self) -> set[Kind]:
        """The kinds of all faults so far, complete or not."""
        return {fault.kind for fault, _ in self.spans}

    @property
    def away(self) -> Mapping[str, Sequence[Span]]:
        """When each part, and Redis, was dead, stopped or unreachable."""
        found: defaultdict[str, list[Span]] = defaultdict(list)
        for fault, span in self.spans:
            if fault.kind in _PART_AWAY:
                found[fault.target].append(span)
            elif fault.kind in _REDIS_AWAY:
                found[REDIS].append(span)
        return found

    async def carry_out(self, schedule: Iterable[Fault], begun_s: float) -> None:
        """Inject all supported faults. `begun_s`: the start on the monotonic clock."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                if fault.kind not in self.left_out:
                    group.create_task(self._one(fault, begun_s))

    async def _one(self, fault: Fault, begun_s: float) -> None:
        await asyncio.sleep(begun_s + fault.at_s - time.monotonic())
        say(f"{time.monotonic() - begun_s:6.1f} s  {fault.kind}: {fault.target}, {fault.lasts_s:.1f} s")
        since_s = time.time()
        try:
            await self._carry_out(fault)
        finally:
            self.spans.append((fault, Span(since_s, time.time())))
        if fault.kind in (Kind.KILL, Kind.TERM):
            await self._family_gone(fault)
        self.done[fault.kind] += 1

    async def _carry_out(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL | Kind.TERM:
                await self._end(fault)
            case Kind.STOP:
                self._rig.stop(fault.target)
                await asyncio.sleep(fault.lasts_s)
                self._rig.go_on(fault.target)
            case Kind.FULL:
                self._rig.disk.fill()
                await asyncio.sleep(fault.lasts_s)
                self._rig.disk.free()
            case Kind.JUMP:
                self._rig.clock.jump(int(fault.target))
                await asyncio.sleep(fault.lasts_s)
                self._rig.clock.jump(0)
            case _:
                await self._redis(fault)

    async def _end(self, fault: Fault) -> None:
        process = self._rig.parts[fault.target].process
        if process is not None:
            self._families[fault] = kin.below(process.pid)
        self._rig.end(fault.target, signal.SIGKILL if fault.kind is Kind.KILL else signal.SIGTERM)
        await asyncio.sleep(fault.lasts_s)
        await self._rig.start(fault.target)

    async def _family_gone(self, fault: Fault) -> None:
        deadline_s = time.monotonic() + GONE_S
        while left := kin.alive(self._families[fault]):
            if time.monotonic() > deadline_s:
                self.survivors += [f"{each.command} outlived {fault.target}" for each in left]
                return
            await asyncio.sleep(0.2)

    async def _redis(self, fault: Fault) -> None:
        proxy = self._rig.proxy
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
                proxy.replies_late_by_s = _LATE_S
                await asyncio.sleep(fault.lasts_s)
                proxy.replies_late_by_s = 0.0
            case Kind.RESET:
                proxy.reset()

    async def _restart(self, fault: Fault) -> None:
        """Restart Redis. A KILL loses requests and replies in transit, but nothing that was acknowledged.

        With `everysec`, a KILL may lose writes that were acknowledged during a sync (docs/decisions/0009-*.md); Dyno
        doesn't promise these. So the proxy holds all traffic until the file is written. With `always`, KILL comes at
        once.
        """
        rig = self._rig
        if fault.target == "by TERM":
            await rig.end_server()
        else:
            if rig.durability == "everysec":
                rig.proxy.silence()
                await self._written()
            rig.server.kill()
        rig.proxy.reset()
        rig.proxy.speak()
        await asyncio.sleep(fault.lasts_s)
        rig.server.revive()

    async def _written(self) -> None:
        """Wait until the file is written, 2 s at most: then Redis writes, however long a sync takes."""
        with redis.Redis.from_url(self._rig.server.url) as client:
            held_back = partial(_held_back, client)
            while held_back():
                await asyncio.sleep(0.01)


def _held_back(client: redis.Redis) -> int:
    found: Any = client.info("persistence")
    return int(found["aof_buffer_length"])
