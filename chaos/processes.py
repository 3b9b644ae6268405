"""Finds a rig's processes by descent and by a mark in their environment, so that no survivor is missed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "DYNO_CHAOS_RIG"  # in the environment of every process of a rig, with the rig's own name


class Process(NamedTuple):
    """`started` tells apart processes with the same pid, because pids are reused."""

    pid: int
    parent: int
    started: str
    command: str


def running() -> dict[int, Process]:
    """All processes by pid, except zombies."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # Behind the name (proc(5)): state, parent, …; the twentieth field is the start time.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if fields[0] != "Z":
                found[int(folder.name)] = Process(int(folder.name), int(fields[1]), fields[19], command)
    return found


def below(pid: int) -> set[Process]:
    """All descendants of the process."""
    everyone, found, row = set(running().values()), set[Process](), {pid}
    while children := {each for each in everyone - found if each.parent in row}:
        found |= children
        row = {each.pid for each in children}
    return found


def alive(processes: Iterable[Process]) -> set[Process]:
    now = running()
    return {each for each in processes if each.pid in now and now[each.pid].started == each.started}


def marked(name: str) -> set[Process]:
    """All processes of the rig of that name, whatever their parent."""
    found = set()
    for process in running().values():
        with suppress(OSError):
            if f"{MARK}={name}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.add(process)
    return found
