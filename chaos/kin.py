"""Finds a rig's processes by descent and by a mark in their environment, so that no survivor is missed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LOOK_S = 0.01
MARK = "DYNO_CHAOS_RIG"  # in the environment of every process of a rig, with the rig's own name


class Process(NamedTuple):
    """A process, identified by pid and start time, because pids are reused."""

    pid: int
    started: str
    command: str


def below(pid: int) -> set[Process]:
    """All descendants of the process."""
    parents = {one: int(fields[1]) for one, fields in _all().items()}
    found: set[int] = set()
    row = {pid}
    while row := {child for child, parent in parents.items() if parent in row} - found:
        found |= row
    return {process for child in found if (process := of(child))}


def children(pid: int) -> set[Process]:
    """The direct children of the process."""
    found = {child for child, fields in _all().items() if int(fields[1]) == pid}
    return {process for child in found if (process := of(child))}


def alive(processes: Iterable[Process]) -> set[Process]:
    """The processes that still run; zombies don't count."""
    return {each for each in processes if (now := of(each.pid)) and now.started == each.started}


def marked(name: str) -> set[Process]:
    """All processes of the rig of that name, whatever their parent."""
    wanted = f"{MARK}={name}".encode()
    found = set()
    for pid in _all():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and (process := of(pid)):
                found.add(process)
    return found


def of(pid: int) -> Process | None:
    """None for a process that has ended, reaped or not."""
    with suppress(OSError):
        fields = _stat(pid)
        if fields[0] != "Z":
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            return Process(pid, fields[19], command.strip())
    return None


async def ended(child: int) -> None:
    """Wait until the process has ended. An exiting process has no command any more, but may exist for a moment."""
    with suppress(ChildProcessError):  # it is reaped already
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await asyncio.sleep(_LOOK_S)


def _all() -> dict[int, list[str]]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(folder.name)] = _stat(int(folder.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name (proc(5)): state, parent, …; the twentieth is the start time."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
