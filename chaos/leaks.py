"""Finds leftovers: while all parts are idle, and again after all parts have ended."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from chaos.processes import Process, marked
from chaos.rig import GONE_S, Rig
from chaos.violations import Violation, ViolationKind

T = TypeVar("T")


async def at_rest(rig: Rig, idle_within_s: float) -> list[Violation]:
    """Check that all parts are up and idle: no busy worker, no live runner, no locked device."""
    busy = await rig.not_idle(idle_within_s)
    orphans = await remaining(lambda: _orphans(rig))
    locks = await remaining(lambda: list(locked(rig.run_dir)))
    return [
        *(Violation(ViolationKind.DIED, f"{worker} is not idle, though no job waits or runs") for worker in busy),
        *(Violation(ViolationKind.ORPHAN, f"{process.command} still runs at rest") for process in orphans),
        *(Violation(ViolationKind.HELD, f"{path.name} is locked at rest") for path in locks),
    ]


async def in_the_end(rig: Rig) -> list[Violation]:
    """Check after all parts have ended. Surviving processes are killed."""
    left = await remaining(lambda: marked(rig.name))
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return [Violation(ViolationKind.ORPHAN, f"{process.command} outlived the rig") for process in left]


def locked(run_dir: Path) -> Iterator[Path]:
    """The device locks that a process holds."""
    for path in sorted(run_dir.glob("*.lock")):
        with path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path


async def remaining(look: Callable[[], Collection[T]]) -> Collection[T]:
    """The leftovers that are still there after GONE_S."""
    deadline_s = time.monotonic() + GONE_S
    while (left := look()) and time.monotonic() < deadline_s:
        await asyncio.sleep(0.1)
    return left


def _orphans(rig: Rig) -> set[Process]:
    """The rig's processes, except its parts, Redis, and the workers' idle zygotes."""
    parts = {part.process.pid for part in rig.parts.values() if part.process is not None}
    found = {process for process in marked(rig.name) if process.pid not in {*parts, rig.server.pid}}
    return {each for each in found if not (each.parent in parts and "workers.zygote" in each.command)}
