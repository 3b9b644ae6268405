"""What the container allows: cgroup limits on processor time and memory, version 2 and version 1.

A limit anywhere above this process binds it, so every ancestor is read and the smallest limit counts.
Files: cpu.max, memory.max (v2); cpu.cfs_quota_us, cpu.cfs_period_us, memory.limit_in_bytes (v1).
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ in the Linux kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")

# v1 writes "no limit" as the largest multiple of the page size: 2**63 rounded down.
_NO_LIMIT_BYTES = 2**62


@dataclass(frozen=True)
class CgroupLimits:
    """`cpu_cores`: processor seconds per second; null where nothing limits it."""

    cpu_cores: float | None = None
    memory_bytes: int | None = None


def cgroup_limits(mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> CgroupLimits:
    """The tightest limits on this process."""
    cpu, memories = (_with_ancestors(controller, mount, membership) for controller in ("cpu", "memory"))
    cores = [value for folder in cpu if (value := _cores(folder)) is not None]
    memory = [value for folder in memories if (value := _memory(folder)) is not None]
    return CgroupLimits(min(cores, default=None), min(memory, default=None))


def own_cgroups(controller: str, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Iterator[tuple[Path, Path]]:
    """Where this process's cgroup of that controller may be, each with the root of its tree: of version 1, and of
    version 2 with either mount."""
    for line in _lines(membership):
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if not controllers:
            roots = [mount, mount / "unified"]
        elif controller in names:
            roots = [mount / controller] if names == [controller] else [mount / controller, mount / controllers]
        else:
            continue
        for root in roots:
            yield root, root / path.strip("/")


def _with_ancestors(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """This process's cgroup and those above it, the nearest first."""
    for root, folder in own_cgroups(controller, mount, membership):
        yield from _upwards(root, folder)


def _upwards(root: Path, folder: Path) -> Iterator[Path]:
    yield folder
    for parent in folder.parents:
        if parent == root.parent or not parent.is_relative_to(root):
            return
        yield parent


def _cores(folder: Path) -> float | None:
    words = read_kernel_file(folder / "cpu.max").split()
    if not words:
        words = [read_kernel_file(folder / "cpu.cfs_quota_us"), read_kernel_file(folder / "cpu.cfs_period_us")]
    quota, period = words if len(words) == 2 else ("", "")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # "max" in v2, -1 in v1
    return int(quota) / int(period)


def _memory(folder: Path) -> int | None:
    text = read_kernel_file(folder / "memory.max") or read_kernel_file(folder / "memory.limit_in_bytes")
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None


def _lines(path: Path) -> list[str]:
    return read_kernel_file(path).splitlines()


def read_kernel_file(path: Path) -> str:
    """The stripped text of a file below /proc or /sys; empty where it can't be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
