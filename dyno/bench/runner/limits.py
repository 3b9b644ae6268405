"""Limit a runner's memory, processes and files: by a cgroup if the kernel allows it, else by checks of /proc.

The checks of /proc run with the heartbeats, at most every 2 s. A zygote joins the cgroup once, after its imports, and
its forks are members from the start. So the cgroup costs the runs no time and doesn't count the imports' memory.

cgroup v1 (cgroup-v1/memory.rst, cgroup-v1/pids.rst of the kernel) allows a child cgroup if the worker may write to its
own cgroup. cgroup v2 (cgroup-v2.rst) allows a child with a memory limit only if the parent holds no processes, except
in the host's root. In any other cgroup, such as a container's, the worker's own process prevents a child.

Only the kernel's count of out-of-memory kills reveals whether a SIGKILL was an out-of-memory kill.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dyno.bench.devices.cpu import CGROUP_MEMBERSHIP, CGROUP_MOUNT, memory_bytes, own_cgroups
from dyno.bench.runner.zygote import descendants, proportional_bytes, resident_bytes
from dyno.settings import Settings

VMSTAT = Path("/proc/vmstat")


def oom_kills(mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP, vmstat: Path = VMSTAT) -> int:
    """Out-of-memory kills so far in this process's memory cgroup, or on the host if no cgroup counts them.

    memory.events (cgroup v2), memory.oom_control (v1) and /proc/vmstat have a line `oom_kill <count>`.
    """
    for path in [*_counting(mount, membership), vmstat]:
        count = read_counter(path, "oom_kill")
        if count is not None:
            return count
    return 0


def read_counter(path: Path, name: str) -> int | None:
    """The number in the line `<name> <number>` of a file; None if there is no such line."""
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


_ZYGOTES = 8  # maximum number per worker; zygotes count as tasks, too
_LIMITS = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
_SWAP = {"memory.max": ("memory.swap.max", 0), "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", 1)}
_SHARED = "cgroup.subtree_control"  # cgroup v2: the controllers that child cgroups may use
_numbers = itertools.count()


class Cgroup:
    """A cgroup made by `runner_cgroup`; `Cgroup()` has no limits. A task is a process or a thread."""

    def __init__(self, memory: Path | None = None, pids: Path | None = None) -> None:
        self._memory, self._pids = memory, pids

    @property
    def limits_memory(self) -> bool:
        return self._memory is not None

    @property
    def limits_tasks(self) -> bool:
        return self._pids is not None

    def holds_memory_of(self, pid: int) -> bool:
        """Whether the cgroup limits the memory of process `pid`, and thus of its forks."""
        return _is_in(pid, self._memory)

    def holds_tasks_of(self, pid: int) -> bool:
        return _is_in(pid, self._pids)

    @property
    def doors(self) -> list[str]:
        """The files to which a process writes "0" to join the cgroup."""
        return [str(folder / "cgroup.procs") for folder in self._folders()]

    def oom_kills(self) -> int:
        """Out-of-memory kills in this cgroup so far."""
        files = [] if self._memory is None else [self._memory / "memory.events", self._memory / "memory.oom_control"]
        return next((kills for file in files if (kills := read_counter(file, "oom_kill")) is not None), 0)

    def refused_tasks(self) -> int:
        """Starts of processes and threads that the limit has prevented so far."""
        return 0 if self._pids is None else read_counter(self._pids / "pids.events", "max") or 0

    def close(self) -> None:
        """Remove the cgroup, unless it still has processes."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        return sorted({folder for folder in (self._memory, self._pids) if folder is not None})


def runner_cgroup(
    memory_bytes: int, max_tasks: int, mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP
) -> Cgroup:
    """Create a child cgroup with these limits, as far as the system allows them."""
    name = f"dyno-{os.getpid()}-{next(_numbers)}"
    caps = {"memory": memory_bytes, "pids": max_tasks + _ZYGOTES}
    return Cgroup(**{controller: _made(controller, caps[controller], name, mount, membership) for controller in caps})


def _made(controller: str, limit: int, name: str, mount: Path, membership: Path) -> Path | None:
    for base in _bases(controller, mount, membership):
        _delete_left_overs(base)
        folder = base / name
        new = not folder.exists()  # in cgroup v2, one folder has both limits
        enabled = False
        try:
            enabled = _enable(base, controller)
            folder.mkdir(exist_ok=True)
            _require_domain(folder)
            _limit(folder, controller, limit)
        except OSError:
            _undo(folder if new else None, base if enabled else None, controller)
            continue
        return folder  # the controller stays enabled: other workers may rely on it by now
    return None


def _bases(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """This process's cgroup if it may have children. In a container, the mount itself may be that cgroup."""
    for _, folder in own_cgroups(controller, mount, membership):
        for base in (folder, mount / controller):
            if os.access(base / "cgroup.procs", os.W_OK):
                yield base


def _enable(base: Path, controller: str) -> bool:
    """Enable the controller for children of `base`, as cgroup v2 requires.

    Returns True if the controller wasn't enabled before. Raises OSError.
    """
    shared = base / _SHARED
    if not shared.exists() or controller in shared.read_text().split():
        return False
    shared.write_text(f"+{controller}")  # the kernel refuses this for memory if `base` has processes
    return True


def _require_domain(folder: Path) -> None:
    """Raises OSError if processes can't join the cgroup.

    For pids, cgroup v2 accepts a base with processes, but makes the base "threaded" and the child "domain invalid".
    """
    kind = folder / "cgroup.type"
    if kind.exists() and kind.read_text().strip() != "domain":
        raise OSError(errno.EOPNOTSUPP, f"a cgroup of type {kind.read_text().strip()}", str(folder))


def _undo(folder: Path | None, base: Path | None, controller: str) -> None:
    """Undo a failed attempt to make a cgroup. Otherwise the base stays "threaded"."""
    with contextlib.suppress(OSError):
        if folder is not None:
            folder.rmdir()
    with contextlib.suppress(OSError):
        if base is not None:
            (base / _SHARED).write_text(f"-{controller}")


def _limit(folder: Path, controller: str, limit: int) -> None:
    """Set the limit. Raises OSError if the folder doesn't have the controller."""
    file = next((name for name in _LIMITS[controller] if (folder / name).exists()), None)
    if file is None:
        raise FileNotFoundError(folder / controller)
    (folder / file).write_text(str(limit))
    if file in _SWAP:  # else a runner over its limit would continue in swap
        swap, factor = _SWAP[file]
        with contextlib.suppress(OSError):  # a kernel without swap accounting
            (folder / swap).write_text(str(factor * limit))


def _delete_left_overs(base: Path) -> None:
    """Remove cgroups of killed workers. The kernel refuses to remove a cgroup with processes."""
    for folder in base.glob("dyno-*-*"):
        if not Path(f"/proc/{folder.name.split('-')[1]}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _is_in(pid: int, folder: Path | None) -> bool:
    try:
        return folder is not None and str(pid) in (folder / "cgroup.procs").read_text().split()
    except OSError:
        return False


MOST_FILES = 10_000  # limits the time of a check to 20 ms

_SECTOR_BYTES = 512  # the unit of st_blocks on every file system


@dataclass(frozen=True)
class Excess:
    """An exceeded limit: the failure's reason, of class `resource`, and its message."""

    reason: Literal["out_of_memory", "too_many_processes", "artifacts_too_large"]
    message: str


def host_share_bytes(settings: Settings) -> int:
    """A runner's memory limit: the setting, or all memory of the host or the container."""
    return settings.runner_memory_bytes or memory_bytes()


class RunnerLimits:
    """The limits of one runner. Create the object before the runner starts: it counts events from its creation on.

    `folder`: the runner's files.
    """

    def __init__(self, settings: Settings, cgroup: Cgroup, folder: Path | None) -> None:
        self._memory_bytes = host_share_bytes(settings)
        self._tasks, self._files_bytes = settings.runner_max_tasks, settings.runner_files_bytes
        self._cgroup, self._folder = cgroup, folder
        self._oom_kills, self._refused_tasks = cgroup.oom_kills(), cgroup.refused_tasks()

    def exceeded(self, zygote_pid: int | None) -> Excess | None:
        """Check the kernel's counters, and all limits that the kernel doesn't enforce."""
        return self.counted() or self._files() or self._processes(zygote_pid)

    def counted(self) -> Excess | None:
        """The limit that the kernel has enforced on the runner so far, if any."""
        if self._cgroup.oom_kills() > self._oom_kills:
            message = f"the kernel killed a process of the runner, whose memory limit is {self._memory_bytes} bytes"
            return Excess("out_of_memory", message)
        if self._cgroup.refused_tasks() > self._refused_tasks:
            message = f"the runner reached its limit of {self._tasks} processes and threads"
            return Excess("too_many_processes", message)
        return None

    def _files(self) -> Excess | None:
        if self._folder is None:
            return None
        count, held_bytes = _files_in(self._folder)
        if held_bytes > self._files_bytes:
            message = f"the runner's files had {held_bytes} bytes; the limit while it runs is {self._files_bytes}"
            return Excess("artifacts_too_large", message)
        if count > MOST_FILES:
            return Excess("artifacts_too_large", f"the runner had more than {MOST_FILES} files")
        return None

    def _processes(self, zygote_pid: int | None) -> Excess | None:
        if zygote_pid is None:
            return None
        memory_held = self._cgroup.holds_memory_of(zygote_pid)
        if memory_held and self._cgroup.holds_tasks_of(zygote_pid):
            return None
        threads = descendants(zygote_pid)
        if (tasks := sum(threads.values())) > self._tasks:
            message = f"the runner had {tasks} processes and threads at once; the limit is {self._tasks}"
            return Excess("too_many_processes", message)
        if memory_held or resident_bytes(threads) <= self._memory_bytes:
            return None
        held_bytes = proportional_bytes(threads)  # a forked runner shares most of its memory with its zygote
        if held_bytes <= self._memory_bytes:
            return None
        message = f"the runner used {held_bytes} bytes of memory; the limit is {self._memory_bytes}"
        return Excess("out_of_memory", message)


def _files_in(folder: Path) -> tuple[int, int]:
    """(number of files, bytes on disk) below `folder`. Stops counting beyond MOST_FILES; ignores files that vanish."""
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
    except OSError:  # only this file has vanished; the other files still count
        return 0
