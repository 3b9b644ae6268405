"""Whether the kernel's out-of-memory killer struck: the only thing that tells its SIGKILL from anyone else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dyno.devices.cpu import CGROUP_MEMBERSHIP, CGROUP_MOUNT, own_cgroups

VMSTAT = Path("/proc/vmstat")


def oom_kills(mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP, vmstat: Path = VMSTAT) -> int:
    """Processes killed so far in this process's cgroup of memory, or on the host where none counts them.

    memory.events (cgroup v2), memory.oom_control (v1), /proc/vmstat: each has a line `oom_kill <count>`.
    """
    for path in [*_counting(mount, membership), vmstat]:
        count = tally(path, "oom_kill")
        if count is not None:
            return count
    return 0


def tally(path: Path, name: str) -> int | None:
    """The number behind `name` in a file of such lines; None where there is none."""
    counts = dict(line.split(" ", 1) for line in _lines(path) if " " in line)
    return int(counts[name]) if name in counts else None


def _counting(mount: Path, membership: Path) -> Iterator[Path]:
    for _, folder in own_cgroups("memory", mount, membership):
        yield folder / "memory.events"
        yield folder / "memory.oom_control"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
