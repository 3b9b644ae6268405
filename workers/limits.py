"""Limits of a runner's memory, processes and files: a cgroup where the kernel allows one, else looks at /proc.

A look comes with a heartbeat, every 2 s at most. Zygotes join the cgroup once, after they have imported; a fork
inherits it. So it costs no run anything, and what a zygote took before isn't counted.

Version 1 (cgroup-v1/memory.rst, cgroup-v1/pids.rst of the kernel) allows a cgroup where the worker may write to its
own. Version 2 (cgroup-v2.rst) has no process beside a cgroup with a memory limit, except in the host's root: a worker
in any other cgroup, in a container say, is in the way itself.

The kernel's count of out-of-memory kills is the only thing that tells its SIGKILL from any other.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dyno.devices.cpu import CGROUP_MEMBERSHIP, CGROUP_MOUNT, memory_bytes, own_cgroups
from dyno.settings import Settings
from workers.zygote import descendants, proportional_bytes, resident_bytes

VMSTAT = Path("/proc/vmstat")


def oom_kills(mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP, vmstat: Path = VMSTAT) -> int:
    """Processes killed so far in this process's cgroup of memory, or on the host where none counts them.

    memory.events (cgroup v2), memory.oom_control (v1), /proc/vmstat: each has a line `oom_kill <count>`.
    """
    for path in [*_counting(mount, membership), vmstat]:
        count = read_counter(path, "oom_kill")
        if count is not None:
            return count
    return 0


def read_counter(path: Path, name: str) -> int | None:
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
        return next((found for file in files if (found := read_counter(file, "oom_kill")) is not None), 0)

    def refused_tasks(self) -> int:
        """Processes and threads that could not be started for its limit, so far."""
        return 0 if self._pids is None else read_counter(self._pids / "pids.events", "max") or 0

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


MOST_FILES = 10_000  # so that a look stays one: 20 ms at most

_SECTOR_BYTES = 512  # of st_blocks, whatever the file system has


@dataclass(frozen=True)
class Excess:
    """What there was too much of, as a failure's reason of class `resource` and a sentence."""

    reason: Literal["out_of_memory", "too_many_processes", "artifacts_too_large"]
    message: str


def host_share_bytes(settings: Settings) -> int:
    """The memory that a runner may have: all of the host's or the container's, unless settings say less."""
    return settings.runner_memory_bytes or memory_bytes()


class RunnerLimits:
    """Of one runner; made before it starts, as it counts from then on. `folder` is where its files go."""

    def __init__(self, settings: Settings, cgroup: Cgroup, folder: Path | None) -> None:
        self._memory_bytes = host_share_bytes(settings)
        self._tasks, self._files_bytes = settings.runner_max_tasks, settings.runner_files_bytes
        self._cgroup, self._folder = cgroup, folder
        self._oom_kills, self._refused_tasks = cgroup.oom_kills(), cgroup.refused_tasks()

    def exceeded(self, zygote_pid: int | None) -> Excess | None:
        """A look at all that the kernel doesn't see to, and at what it counted."""
        return self.counted() or self._files() or self._processes(zygote_pid)

    def counted(self) -> Excess | None:
        """What the kernel had to refuse the runner so far."""
        if self._cgroup.oom_kills() > self._oom_kills:
            message = f"the kernel killed a process of a runner that may have {self._memory_bytes} bytes of memory"
            return Excess("out_of_memory", message)
        if self._cgroup.refused_tasks() > self._refused_tasks:
            return Excess("too_many_processes", f"the runner may have {self._tasks} processes and threads at once")
        return None

    def _files(self) -> Excess | None:
        if self._folder is None:
            return None
        count, held_bytes = _files_in(self._folder)
        if held_bytes > self._files_bytes:
            message = f"its files had {held_bytes} bytes, at most {self._files_bytes} are allowed while it runs"
            return Excess("artifacts_too_large", message)
        if count > MOST_FILES:
            return Excess("artifacts_too_large", f"it had more than {MOST_FILES} files")
        return None

    def _processes(self, zygote_pid: int | None) -> Excess | None:
        if zygote_pid is None:
            return None
        memory_held = self._cgroup.holds_memory_of(zygote_pid)
        if memory_held and self._cgroup.holds_tasks_of(zygote_pid):
            return None
        found = descendants(zygote_pid)
        if (tasks := sum(found.values())) > self._tasks:
            message = f"the runner had {tasks} processes and threads at once, at most {self._tasks} are allowed"
            return Excess("too_many_processes", message)
        if memory_held or resident_bytes(found) <= self._memory_bytes:
            return None
        held_bytes = proportional_bytes(found)  # a forked runner's shares most of what it has with its zygote
        if held_bytes <= self._memory_bytes:
            return None
        message = f"the runner held {held_bytes} bytes of memory, at most {self._memory_bytes} are allowed"
        return Excess("out_of_memory", message)


def _files_in(folder: Path) -> tuple[int, int]:
    """(how many, bytes on the disk) of all below; stops counting beyond MOST_FILES. What goes meanwhile is left out."""
    count = held_bytes = 0
    waiting: list[str | Path] = [folder]
    while waiting and count <= MOST_FILES:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > MOST_FILES:
                        break
                    held_bytes += _held_bytes(entry)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return count, held_bytes


def _held_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _SECTOR_BYTES
    except OSError:  # it alone has gone: those beside it still count
        return 0
