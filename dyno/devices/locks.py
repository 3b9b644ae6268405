"""One benchmark at a time: a lock file per core or accelerator, held by the runner itself.

`flock` ends with the process however it dies, and a live runner of a dead supervisor still blocks its successor.
CPU devices lock each of their cores, so that `cpu:0-1` and `cpu:1-1` exclude each other; GPU devices each GPU. Emulated
devices share the cores they are made of with one another, but not with a CPU device, whose figures count.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from dyno.devices import cpulist
from dyno.devices.device import Device
from dyno.errors import DeviceUnavailable
from dyno.settings import Settings

# The kernel has no flock with a deadline; 10 ms is short against the 70 ms that a run's start takes.
_POLL_S = 0.01


def lock_paths(device: Device, settings: Settings) -> list[str]:
    """The files a runner must hold to use `device`, in the one order that everybody takes them in (no deadlock)."""
    if device.kind == "cpu":
        return _of_cores(device, settings)
    numbers = cpulist.parse(device.id.partition(":")[2])
    return [str(settings.run_dir / f"{device.kind}-{number}.lock") for number in numbers]


def shared_lock_paths(device: Device, settings: Settings) -> list[str]:
    """The files that it locks together with others who share them: an emulated device's cores."""
    return _of_cores(device, settings) if device.emulated else []


def _of_cores(device: Device, settings: Settings) -> list[str]:
    return [str(settings.run_dir / f"cpu-{core:05d}.lock") for core in sorted(device.cores)]


class Held:
    """Locks that are held until `release()`, the end of a `with` block, or the end of the process."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def release(self) -> None:
        """Let go; repeating it does nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def hold(paths: list[str], timeout_s: float, shared: Sequence[str] = ()) -> Held:
    """Lock every file of `paths`, then of `shared`, in order, within `timeout_s` for all. Creates files and folders.

    Raises DeviceUnavailable, holding none, when one stays locked or can't be opened; it names the file, and the process
    in it or the reason.
    """
    deadline_s = time.monotonic() + timeout_s
    held = Held(descriptors := [])
    try:
        for path, how in [*((path, fcntl.LOCK_EX) for path in paths), *((path, fcntl.LOCK_SH) for path in shared)]:
            descriptors.append(_open(path))
            _lock(descriptors[-1], path, how, deadline_s)
    except BaseException:
        held.release()
        raise
    return held


def _open(path: str) -> int:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:  # such as another user's file
        raise DeviceUnavailable(
            f"the lock {path} can't be opened: {error.strerror}. DYNO_RUN_DIR names the folder of the locks"
        ) from error


def _lock(descriptor: int, path: str, how: int, deadline_s: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise DeviceUnavailable(f"{path} is held by process {_holder(descriptor)}") from None
            time.sleep(_POLL_S)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            return


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode("ascii", "replace") or "unknown"
