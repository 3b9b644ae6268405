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

from chaos import kin
from chaos.breach import Breach, Violation
from chaos.rig import GONE_S, Rig
from chaos.schedule import WORKERS

_ZYGOTE = "workers.zygote"
_LOOK_S = 0.1
T = TypeVar("T")


async def at_rest(rig: Rig, idle_within_s: float) -> list[Violation]:
    """Check that all parts are up and idle: no busy worker, no live runner, no locked device."""
    busy = await rig.not_idle(idle_within_s)
    strays = await _left(lambda: _strays(rig))
    locks = await _left(lambda: list(locked(rig.run_dir)))
    return [
        *(Violation(Breach.DIED, f"{worker} is not idle, with nothing left to do") for worker in busy),
        *(Violation(Breach.ORPHAN, f"{process.command} was left over, at rest") for process in strays),
        *(Violation(Breach.HELD, f"{path.name} was locked at rest") for path in locks),
    ]


async def in_the_end(rig: Rig) -> list[Violation]:
    """Check after all parts have ended. Surviving processes are killed."""
    left = await _left(lambda: kin.marked(rig.name))
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return [Violation(Breach.ORPHAN, f"{process.command} outlived the rig") for process in left]


def locked(run_dir: Path) -> Iterator[Path]:
    """The device locks that a process holds."""
    for path in sorted(run_dir.glob("*.lock")):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield path
        finally:
            os.close(descriptor)


def _strays(rig: Rig) -> set[kin.Process]:
    """The rig's processes, except its parts, Redis, and the workers' idle zygotes."""
    parts = {name: part.process.pid for name, part in rig.parts.items() if part.process is not None}
    children = [child for name in WORKERS if name in parts for child in kin.children(parts[name])]
    known = {*parts.values(), rig.server_pid, *(child.pid for child in children if _ZYGOTE in child.command)}
    return {process for process in kin.marked(rig.name) if process.pid not in known}


async def _left(look: Callable[[], Collection[T]]) -> Collection[T]:
    """The leftovers that are still there after GONE_S."""
    deadline_s = time.monotonic() + GONE_S
    while (left := look()) and time.monotonic() < deadline_s:
        await asyncio.sleep(_LOOK_S)
    return left
