"""The processes below a zygote, as /proc tells of them: how many, and how much memory they hold.

Descendants are found through `children` of each thread, so a look costs by the runner's threads and not by the
processes of the host. A kernel without CONFIG_PROC_CHILDREN lists none: then each process is asked for its parent.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")
_LISTS_CHILDREN = (_PROC / "thread-self/children").exists()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> dict[int, int]:
    """pid -> number of its threads, of every process below `root`; those that are gone meanwhile are left out."""
    children = _children()
    found: dict[int, int] = {}
    waiting = list(children(root))
    while waiting:
        pid = waiting.pop()
        if threads := len(_threads(pid)):
            found[pid] = threads
            waiting += children(pid)
    return found


def children_of(pid: int) -> set[int]:
    """Those of all its threads."""
    return set(_children()(pid))


def resident_bytes(pids: Iterable[int]) -> int:
    """Together; what several of them share is counted for each."""
    return sum(int(words[1]) * _PAGE_BYTES for pid in pids if len(words := _text(_PROC / f"{pid}/statm").split()) > 1)


def proportional_bytes(pids: Iterable[int]) -> int:
    """Together, with what processes share divided among them. The kernel walks all their pages for it: some 10 ms."""
    return sum(_pss_bytes(_text(_PROC / f"{pid}/smaps_rollup")) for pid in pids)


def _pss_bytes(rollup: str) -> int:
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / f"{pid}/task").iterdir())
    except OSError:
        return []


def _children() -> Callable[[int], Iterable[int]]:
    return _listed_children if _LISTS_CHILDREN else _asked_children()


def _listed_children(pid: int) -> list[int]:
    return [int(child) for thread in _threads(pid) for child in _text(thread / "children").split()]


def _asked_children() -> Callable[[int], Iterable[int]]:
    below: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        _, _, behind_the_name = _text(folder / "stat").rpartition(")")  # which may hold anything, spaces too
        if words := behind_the_name.split():
            below[int(words[1])].append(int(folder.name))
    return lambda pid: below.get(pid, [])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
