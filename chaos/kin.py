"""Processes by descent and by a mark in their environment, so that none is left behind unseen."""

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
    """A pid may be given to another process later: the start tells them apart."""

    pid: int
    started: str
    command: str


def below(pid: int) -> set[Process]:
    """Its children and theirs."""
    parents = {one: int(fields[1]) for one, fields in _all().items()}
    found: set[int] = set()
    row = {pid}
    while row := {child for child, parent in parents.items() if parent in row} - found:
        found |= row
    return {process for child in found if (process := of(child))}


def children(pid: int) -> set[Process]:
    """Those alone whose parent it is."""
    found = {child for child, fields in _all().items() if int(fields[1]) == pid}
    return {process for child in found if (process := of(child))}


def alive(processes: Iterable[Process]) -> set[Process]:
    """Those of them that still run; a dead one whose parent hasn't asked yet doesn't."""
    return {each for each in processes if (now := of(each.pid)) and now.started == each.started}


def marked(name: str) -> set[Process]:
    """Every process of the rig of that name, whoever its parent is."""
    wanted = f"{MARK}={name}".encode()
    found = set()
    for pid in _all():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and (process := of(pid)):
                found.add(process)
    return found


def of(pid: int) -> Process | None:
    """Null for one that has ended, whether its parent has asked about it or not."""
    with suppress(OSError):
        fields = _stat(pid)
        if fields[0] != "Z":
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            return Process(pid, fields[19], command.strip())
    return None


async def ended(child: int) -> None:
    """Until it has. One that is ending has no command any more, and may still be there for a moment."""
    with suppress(ChildProcessError):  # somebody has asked about it already
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await asyncio.sleep(_LOOK_S)


def _all() -> dict[int, list[str]]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(folder.name)] = _stat(int(folder.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) behind the name: state, parent, …, and as the twentieth the time of its start."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
