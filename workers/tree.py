"""The processes below a zygote, as /proc tells of them: how many, and how much memory they hold.

Descendants are found through `children` of each thread, so a look costs by the runner's threads and not by the
processes of the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> dict[int, int]:
    """pid -> number of its threads, of every process below `root`; those that are gone meanwhile are left out."""
    found: dict[int, int] = {}
    waiting = list(_children(_threads(root)))
    while waiting:
        pid = waiting.pop()
        threads = _threads(pid)
        if threads:
            found[pid] = len(threads)
            waiting += _children(threads)
    return found


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


def _children(threads: Iterable[Path]) -> Iterable[int]:
    return (int(pid) for thread in threads for pid in _text(thread / "children").split())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
