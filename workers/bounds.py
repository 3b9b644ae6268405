"""What a runner may take of its host, and whether it took more. The kernel sees to it where it can; else we look.

A look comes with a heartbeat, so every 2 s at most.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dyno.devices.cpu import memory_bytes
from dyno.settings import Settings
from workers.cgroup import Cgroup
from workers.tree import descendants, proportional_bytes, resident_bytes

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


class Bounds:
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
