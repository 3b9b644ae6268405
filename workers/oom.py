"""Whether the kernel's out-of-memory killer struck: the only thing that tells its SIGKILL from anyone else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
VMSTAT = Path("/proc/vmstat")


def oom_kills(mount: Path = MOUNT, membership: Path = MEMBERSHIP, vmstat: Path = VMSTAT) -> int:
    """Processes killed so far in this process's memory group, or on the host where no group counts them.

    memory.events (cgroup v2), memory.oom_control (v1), /proc/vmstat: each has a line `oom_kill <count>`.
    """
    for path in [*_group_files(mount, membership), vmstat]:
        count = _count(path)
        if count is not None:
            return count
    return 0


def _group_files(mount: Path, membership: Path) -> Iterator[Path]:
    for line in _lines(membership):
        _, controllers, group = line.split(":", 2)
        folder = group.strip("/")
        if "memory" in controllers.split(","):
            yield mount / "memory" / folder / "memory.oom_control"
        elif not controllers:
            yield mount / folder / "memory.events"
            yield mount / "unified" / folder / "memory.events"


def _count(path: Path) -> int | None:
    counts = dict(line.split(" ", 1) for line in _lines(path) if " " in line)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
