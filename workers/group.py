"""A control group that the runners of one worker are born in: there the kernel itself holds them to their limits.

The zygotes join it once, after they have imported; a fork inherits it. So it costs no run anything, and what a zygote
took before isn't counted. Version 1 and 2: cgroup-v1/memory.rst, cgroup-v1/pids.rst and cgroup-v2.rst of the kernel.
Where no group can be made, as in a container that may only read them, `workers.bounds` looks at the processes instead.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from workers.oom import MEMBERSHIP, MOUNT, group_folders, tally

_ZYGOTES = 8  # of one worker, at most: they count as tasks, too
_LIMITS = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
_SWAP = {"memory.max": ("memory.swap.max", 0), "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", 1)}
_numbers = itertools.count()


class Group:
    """What `runner_group` has made; `Group()` limits nothing. A task is a process or a thread."""

    def __init__(self, memory: Path | None = None, pids: Path | None = None) -> None:
        self._memory, self._pids = memory, pids

    @property
    def limits_memory(self) -> bool:
        return self._memory is not None

    @property
    def limits_tasks(self) -> bool:
        return self._pids is not None

    @property
    def doors(self) -> list[str]:
        """The files that a process writes "0" into to join."""
        return [str(folder / "cgroup.procs") for folder in self._folders()]

    def oom_kills(self) -> int:
        """Processes in it that the kernel has killed for want of memory, so far."""
        files = [] if self._memory is None else [self._memory / "memory.events", self._memory / "memory.oom_control"]
        return next((found for file in files if (found := tally(file, "oom_kill")) is not None), 0)

    def refused_tasks(self) -> int:
        """Processes and threads that could not be started for its limit, so far."""
        return 0 if self._pids is None else tally(self._pids / "pids.events", "max") or 0

    def close(self) -> None:
        """Remove it, if nobody is in it any more."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        return sorted({folder for folder in (self._memory, self._pids) if folder is not None})


def runner_group(memory_bytes: int, max_tasks: int, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Group:
    """A group with these limits below this process's own, as far as one can be made here."""
    name = f"dyno-{os.getpid()}-{next(_numbers)}"
    most = {"memory": memory_bytes, "pids": max_tasks + _ZYGOTES}
    return Group(**{controller: _made(controller, most[controller], name, mount, membership) for controller in most})


def _made(controller: str, most: int, name: str, mount: Path, membership: Path) -> Path | None:
    for base in _bases(controller, mount, membership):
        _delete_left_overs(base)
        folder = base / name
        new = not folder.exists()  # of version 2 one folder has both limits
        try:
            folder.mkdir(exist_ok=True)
            _limit(folder, controller, most)
        except OSError:
            if new:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            continue
        return folder
    return None


def _bases(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """This process's own group where it may have others below it; in a container the mount may begin at it."""
    for folder in group_folders(controller, mount, membership):
        for base in (folder, mount / controller):
            if not os.access(base / "cgroup.procs", os.W_OK):
                continue
            enabled = base / "cgroup.subtree_control"  # of version 2; its processes must be allowed to share it
            if enabled.exists() and controller not in enabled.read_text().split():
                try:
                    enabled.write_text(f"+{controller}")
                except OSError:
                    continue
            yield base


def _limit(folder: Path, controller: str, most: int) -> None:
    """Raises OSError where the controller isn't here."""
    limit = next((name for name in _LIMITS[controller] if (folder / name).exists()), None)
    if limit is None:
        raise FileNotFoundError(folder / controller)
    (folder / limit).write_text(str(most))
    if limit in _SWAP:  # else a runner over its limit would go on, from the disk
        swap, factor = _SWAP[limit]
        with contextlib.suppress(OSError):  # a kernel that doesn't count swap
            (folder / swap).write_text(str(factor * most))


def _delete_left_overs(base: Path) -> None:
    """Of workers that were killed; a group that anybody is in can't be removed."""
    for folder in base.glob("dyno-*-*"):
        if not Path(f"/proc/{folder.name.split('-')[1]}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
