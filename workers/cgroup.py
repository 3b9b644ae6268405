"""A cgroup that the runners of one worker are born in: there the kernel itself holds them to their limits.

The zygotes join it once, after they have imported; a fork inherits it. So it costs no run anything, and what a zygote
took before isn't counted. Where there is none, or a zygote isn't in it, `workers.bounds` looks at the processes.

Version 1 (cgroup-v1/memory.rst, cgroup-v1/pids.rst of the kernel) allows one where the worker may write to its own.
Version 2 (cgroup-v2.rst) has no process beside a cgroup that is held to memory, except in the host's root: a worker
in any other cgroup, in a container say, is in the way itself.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from dyno.devices.cpu import CGROUP_MEMBERSHIP, CGROUP_MOUNT, own_cgroups
from workers.oom import tally

_ZYGOTES = 8  # of one worker, at most: they count as tasks, too
_LIMITS = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
_SWAP = {"memory.max": ("memory.swap.max", 0), "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", 1)}
_SHARED = "cgroup.subtree_control"  # of version 2: the controllers that cgroups below may use
_numbers = itertools.count()


class Cgroup:
    """What `runner_cgroup` has made; `Cgroup()` limits nothing. A task is a process or a thread."""

    def __init__(self, memory: Path | None = None, pids: Path | None = None) -> None:
        self._memory, self._pids = memory, pids

    @property
    def limits_memory(self) -> bool:
        return self._memory is not None

    @property
    def limits_tasks(self) -> bool:
        return self._pids is not None

    def holds_memory_of(self, pid: int) -> bool:
        """Whether that process is in it, and so are those that it forks."""
        return _is_in(pid, self._memory)

    def holds_tasks_of(self, pid: int) -> bool:
        return _is_in(pid, self._pids)

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


def runner_cgroup(
    memory_bytes: int, max_tasks: int, mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP
) -> Cgroup:
    """A cgroup with these limits below this process's own, as far as one can be made here."""
    name = f"dyno-{os.getpid()}-{next(_numbers)}"
    most = {"memory": memory_bytes, "pids": max_tasks + _ZYGOTES}
    return Cgroup(**{controller: _made(controller, most[controller], name, mount, membership) for controller in most})


def _made(controller: str, most: int, name: str, mount: Path, membership: Path) -> Path | None:
    for base in _bases(controller, mount, membership):
        _delete_left_overs(base)
        folder = base / name
        new = not folder.exists()  # of version 2 one folder has both limits
        enabled = False
        try:
            enabled = _enable(base, controller)
            folder.mkdir(exist_ok=True)
            _require_domain(folder)
            _limit(folder, controller, most)
        except OSError:
            _undo(folder if new else None, base if enabled else None, controller)
            continue
        return folder  # what was enabled stays so: by now others may rely on it
    return None


def _bases(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """This process's own cgroup where it may have others below it; in a container the mount may begin at it."""
    for _, folder in own_cgroups(controller, mount, membership):
        for base in (folder, mount / controller):
            if os.access(base / "cgroup.procs", os.W_OK):
                yield base


def _enable(base: Path, controller: str) -> bool:
    """For cgroups below `base`, where that is asked for (version 2): whether it wasn't yet. Raises OSError."""
    shared = base / _SHARED
    if not shared.exists() or controller in shared.read_text().split():
        return False
    shared.write_text(f"+{controller}")  # of memory the kernel refuses it, where `base` has processes
    return True


def _require_domain(folder: Path) -> None:
    """Raises OSError where no process can join.

    To pids version 2 says yes though the base has processes, makes it a "threaded" one, and ours "domain invalid".
    """
    kind = folder / "cgroup.type"
    if kind.exists() and kind.read_text().strip() != "domain":
        raise OSError(errno.EOPNOTSUPP, f"a cgroup of type {kind.read_text().strip()}", str(folder))


def _undo(folder: Path | None, base: Path | None, controller: str) -> None:
    """Leave no trace of what came to nothing; else the base stays "threaded"."""
    with contextlib.suppress(OSError):
        if folder is not None:
            folder.rmdir()
    with contextlib.suppress(OSError):
        if base is not None:
            (base / _SHARED).write_text(f"-{controller}")


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
    """Of workers that were killed; a cgroup that anybody is in can't be removed."""
    for folder in base.glob("dyno-*-*"):
        if not Path(f"/proc/{folder.name.split('-')[1]}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _is_in(pid: int, folder: Path | None) -> bool:
    try:
        return folder is not None and str(pid) in (folder / "cgroup.procs").read_text().split()
    except OSError:
        return False
