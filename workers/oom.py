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
        count = tally(path, "oom_kill")
        if count is not None:
            return count
    return 0


def group_folders(controller: str, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Iterator[Path]:
    """Where this process's group of that controller may be: of version 1, and of version 2 with either mount."""
    for line in _lines(membership):
        _, controllers, group = line.split(":", 2)
        folder = group.strip("/")
        if controller in controllers.split(","):
            yield mount / controller / folder
        elif not controllers:
            yield mount / folder
            yield mount / "unified" / folder


def tally(path: Path, name: str) -> int | None:
    """The number behind `name` in a file of such lines; None where there is none."""
    counts = dict(line.split(" ", 1) for line in _lines(path) if " " in line)
    return int(counts[name]) if name in counts else None


def _group_files(mount: Path, membership: Path) -> Iterator[Path]:
    for folder in group_folders("memory", mount, membership):
        yield folder / "memory.events"
        yield folder / "memory.oom_control"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
