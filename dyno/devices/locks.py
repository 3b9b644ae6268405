"""Device locks: one benchmark at a time, with a lock file per core or accelerator, held by the runner.

The kernel releases an `flock` when its process dies, and a runner that outlives its supervisor still blocks the next
worker. CPU devices lock each of their cores, so that `cpu:0-1` and `cpu:1-1` exclude each other. GPU devices lock
each GPU, or their slice of one. Emulated devices share their cores with each other, but not with a CPU device, which
needs undisturbed cores.

A worker takes its turn before it claims a job: while another Dyno's worker uses these cores, this worker's jobs
stay queued. The worker that has waited longest is next. A lock file names its holder: pid, job and command, one per
line.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from dyno.devices.cpu import parse_cpulist
from dyno.devices.device import Device
from dyno.errors import DeviceBusy, DeviceUnavailable
from dyno.models.job import Holder
from dyno.settings import Settings

# flock has no timeout, so it is polled; 10 ms is short compared with the 70 ms that starting a run takes.
_POLL_S = 0.01
_RUNNER_EXIT_S = 0.5  # a runner dies within 30 ms of its worker
_MOST_BYTES = 1024  # read from a lock file
_COMMAND = " ".join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]])[:200]


def lock_paths(device: Device, settings: Settings) -> list[str]:
    """The files a runner must lock to use `device`. Every process locks them in this order, to avoid deadlocks."""
    if device.kind == "cpu":
        return _of_cores(device, settings)
    number = device.id.partition(":")[2]
    numbers = [number] if ":" in number else parse_cpulist(number)  # "0:1" is a slice of a GPU
    return [str(settings.run_dir / f"{device.kind}-{number}.lock") for number in numbers]


def shared_lock_paths(device: Device, settings: Settings) -> list[str]:
    """The files that an emulated device locks in shared mode: one per core."""
    return _of_cores(device, settings) if device.emulated else []


def _of_cores(device: Device, settings: Settings) -> list[str]:
    return [str(settings.run_dir / f"cpu-{core:05d}.lock") for core in sorted(device.cores)]


class DeviceTurn:
    """A worker's turn on its device. One waiting worker at a time is first in line and gets the next turn."""

    def __init__(self, device: Device, settings: Settings) -> None:
        self._device = device.full_id
        self._own, self._shared = lock_paths(device, settings), shared_lock_paths(device, settings)
        self._first_in_line: HeldLocks | None = None

    def take(self) -> HeldLocks | Holder:
        """Lock the device, or return the process that holds it or is first in line.

        In the latter case, this worker keeps its place in line until it gets the device or calls `leave`. Raises
        DeviceUnavailable if a lock file can't be opened.
        """
        try:
            self._first_in_line = self._first_in_line or self._hold("next")
            turn = self._hold("turn")
        except DeviceBusy as busy:
            return self._holder(busy)
        try:
            # A runner that briefly outlives its worker, or a runner of an older version, still holds these locks.
            _locked(self._own, _RUNNER_EXIT_S, self._shared).release()
        except DeviceUnavailable as error:
            turn.release()
            if isinstance(error, DeviceBusy):
                return self._holder(error)
            raise
        self.leave()
        return turn

    def _holder(self, busy: DeviceBusy) -> Holder:
        return Holder(device=self._device, pid=busy.pid, command=busy.command, job=busy.job)

    def leave(self) -> None:
        """Leave the line."""
        if self._first_in_line is not None:
            self._first_in_line.release()
            self._first_in_line = None

    def _hold(self, what: str) -> HeldLocks:
        own, shared = ([_beside(path, what) for path in paths] for paths in (self._own, self._shared))
        return hold_locks(own, 0, shared)


def _beside(path: str, what: str) -> str:
    """cpu-00000.lock -> cpu-00000.turn.lock"""
    return f"{path.removesuffix('.lock')}.{what}.lock"


class HeldLocks:
    """Locks held until `release()`, the end of a `with` block, or the end of the process."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def note(self, job: str) -> None:
        """Write this process and `job` into the lock files."""
        text = f"{os.getpid()}\n{job}\n{_COMMAND}\n".encode()
        for descriptor in self._descriptors:
            with suppress(OSError):  # the disk is full; the locks are held anyway
                os.pwrite(descriptor, text, 0)
                os.ftruncate(descriptor, len(text))

    def release(self) -> None:
        """Release the locks; later calls do nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> HeldLocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def hold_locks(paths: Sequence[str], timeout_s: float, shared: Sequence[str] = (), job: str = "") -> HeldLocks:
    """Lock every file of `paths`, then of `shared`, in order, within `timeout_s` for all. Creates files and folders.

    Raises DeviceBusy if a file stays locked, and DeviceUnavailable if a file can't be opened; then none stays locked.
    The error names the file, and its holder or the reason.
    """
    held = _locked(paths, timeout_s, shared)
    held.note(job)
    return held


def _locked(paths: Sequence[str], timeout_s: float, shared: Sequence[str]) -> HeldLocks:
    """Like `hold_locks`, but the files keep naming their last holder."""
    deadline_s = time.monotonic() + timeout_s
    held = HeldLocks(descriptors := [])
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
            f"the lock file {path} can't be opened: {error.strerror}. Set DYNO_RUN_DIR to another folder for lock files"
        ) from error


def _lock(descriptor: int, path: str, how: int, deadline_s: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise _busy(descriptor, path) from None
            time.sleep(_POLL_S)
        else:
            return


def _busy(descriptor: int, path: str) -> DeviceBusy:
    text = os.pread(descriptor, _MOST_BYTES, 0).decode(errors="replace")
    pid, job, command = (text.split("\n") + 3 * [""])[:3]  # older versions write only the pid
    what = f" ({command})" if command else ""
    detail = f"{path} is held by process {pid or 'unknown'}{what}" + (f", which runs {job}" if job else "")
    return DeviceBusy(detail, int(pid) if pid.isdecimal() else None, command or None, job or None)
