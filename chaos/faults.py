"""Injects the planned faults, one task per fault, and records when each began and ended."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import psutil
import redis.asyncio

from chaos import leaks
from chaos.plan import Fault, FaultKind, Span
from chaos.rig import Rig, say

_ENDS_PART = frozenset({FaultKind.KILL, FaultKind.TERM})
_Action = Callable[[], Awaitable[None] | int | None]


class FaultInjector:
    """`spans`: begin and end of each fault. `survivors`: processes that outlived their part."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.spans: list[tuple[Fault, Span]] = []
        self.survivors: list[str] = []

    @property
    def left_out(self) -> Mapping[FaultKind, str]:
        """The faults that this machine doesn't support, with reasons. Known once the rig is open."""
        reasons = {FaultKind.FULL: self.rig.disk.left_out, FaultKind.JUMP: self.rig.clock.left_out}
        return {kind: why for kind, why in reasons.items() if why is not None}

    def effects(self, after_s: float) -> list[tuple[FaultKind, Span]]:
        """The kinds of the faults that occurred, and when each had an effect: until `after_s` seconds after its end."""
        return [(fault.kind, Span(span.from_s, span.to_s + after_s)) for fault, span in self.spans]

    async def inject_all(self, faults: Iterable[Fault], begun_s: float) -> None:
        """Inject all supported faults. `begun_s`: the start on the monotonic clock."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                if fault.kind not in self.left_out:
                    group.create_task(self._inject(fault, begun_s))

    async def _inject(self, fault: Fault, begun_s: float) -> None:
        await asyncio.sleep(begun_s + fault.at_s - time.monotonic())
        say(f"{time.monotonic() - begun_s:6.1f} s  {fault.kind}: {fault.target}, {fault.lasts_s:.1f} s")
        begin, undo = self._actions(fault.kind, fault.target)
        since_s, family = time.time(), self._family(fault)
        try:
            await _do(begin)
            await asyncio.sleep(fault.lasts_s)
            await _do(undo)
        finally:
            self.spans.append((fault, Span(since_s, time.time())))
        left = await leaks.remaining(lambda: leaks.alive(family))
        self.survivors += [f"{leaks.command(each)} outlived {fault.target}" for each in left]

    def _family(self, fault: Fault) -> list[psutil.Process]:
        """The descendants of the part that the fault ends. None of them may outlive it."""
        process = self.rig.parts[fault.target].process if fault.kind in _ENDS_PART else None
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(process.pid).children(recursive=True) if process else []
        return []

    def _actions(self, kind: FaultKind, target: str) -> tuple[_Action, _Action]:
        """What begins the fault, and what undoes it."""
        rig, proxy = self.rig, self.rig.proxy
        actions: Mapping[FaultKind, tuple[_Action, _Action]] = {
            FaultKind.KILL: (lambda: rig.end(target, signal.SIGKILL), lambda: rig.start(target)),
            FaultKind.TERM: (lambda: rig.end(target, signal.SIGTERM), lambda: rig.start(target)),
            FaultKind.STOP: (lambda: rig.send(target, signal.SIGSTOP), lambda: rig.send(target, signal.SIGCONT)),
            FaultKind.RESTART: (lambda: self._end_redis(target), self._revive_redis),
            FaultKind.AWAY: (proxy.hold if target == "silent" else proxy.shut, proxy.restore),
            FaultKind.SLOW: (proxy.delay, proxy.restore),
            FaultKind.RESET: (proxy.reset, lambda: None),
            FaultKind.FULL: (rig.disk.fill, rig.disk.free),
            FaultKind.JUMP: (lambda: rig.clock.jump(int(target)), lambda: rig.clock.jump(0)),
        }
        return actions[kind]

    async def _end_redis(self, how: str) -> None:
        """A KILL loses requests and replies in transit, but nothing that was acknowledged.

        With `everysec`, a KILL may lose writes acknowledged during a sync (docs/dev/decisions/0009-*.md); Dyno
        doesn't promise these. So the proxy holds all traffic until the file is written, 2 s at most: then Redis writes,
        however long a sync takes. With `always`, KILL comes at once.
        """
        rig = self.rig
        if how == "by KILL" and rig.durability == "everysec":
            rig.proxy.hold()
            async with redis.asyncio.Redis.from_url(rig.server.url) as client:
                while int((await client.info("persistence"))["aof_buffer_length"]):
                    await asyncio.sleep(0.01)
        if how == "by KILL":
            rig.server.kill()
        else:
            os.kill(rig.server.pid, signal.SIGTERM)
        rig.proxy.reset()
        await rig.proxy.restore()

    async def _revive_redis(self) -> None:
        while not self.rig.server.revive():  # it hasn't ended yet
            await asyncio.sleep(0.01)


async def _do(action: _Action) -> None:
    if inspect.isawaitable(done := action()):
        await done
