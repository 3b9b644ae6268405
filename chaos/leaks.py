"""Finds leftovers of a rig: while all parts are idle, and again after all parts have ended.

Processes are found by descent and by a mark in their environment, so that no survivor is missed.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from chaos.checks import Violation, ViolationKind
from chaos.rig import MARK, Rig

T = TypeVar("T")
GONE_S = 10.0  # a killed worker's runners end with it, but on a busy machine that takes time


async def at_rest(rig: Rig, idle_within_s: float) -> list[Violation]:
    """Check that all parts are up and idle: no busy worker, no live runner, no locked device."""
    busy = await rig.not_idle(idle_within_s)
    orphans = await remaining(lambda: _orphans(rig))
    locks = await remaining(lambda: list(locked(rig.run_dir)))
    return [
        *(Violation(ViolationKind.DIED, f"{worker} is not idle, though no job waits or runs") for worker in busy),
        *(Violation(ViolationKind.ORPHAN, f"{command(process)} still runs at rest") for process in orphans),
        *(Violation(ViolationKind.HELD, f"{path.name} is locked at rest") for path in locks),
    ]


async def in_the_end(rig: Rig) -> list[Violation]:
    """Check after all parts have ended. Surviving processes are killed."""
    left = await remaining(lambda: marked(rig.name))
    found = [Violation(ViolationKind.ORPHAN, f"{command(process)} outlived the rig") for process in left]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return found


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


def marked(name: str) -> set[psutil.Process]:
    """All processes of the rig of that name, whatever their parent. Zombies have no environment."""
    found = psutil.process_iter(["environ", "ppid"])
    return {process for process in found if (process.info["environ"] or {}).get(MARK) == name}


def alive(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Those that still run. Zombies don't, and neither do other processes that have the same pid now."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return found


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return f"process {process.pid}"


def _orphans(rig: Rig) -> set[psutil.Process]:
    """The rig's processes, except its parts, Redis, and the workers' idle zygotes."""
    parts = {part.process.pid for part in rig.parts.values() if part.process is not None}
    others = {process for process in marked(rig.name) if process.pid not in {*parts, rig.server.pid}}
    return {
        each
        for each in alive(others)
        if not ("dyno.bench.runner.zygote" in command(each) and each.info["ppid"] in parts)
    }
