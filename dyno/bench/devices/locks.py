"""Lock a device for one benchmark at a time: the runner holds a lock file per core or accelerator.

The kernel releases an `flock` when its holder dies, so a runner that outlives its supervisor still blocks the next
worker. CPU devices lock each of their cores, so that `cpu:0-1` and `cpu:1-1` exclude each other. GPU devices lock
each GPU, or their slice of a GPU. Emulated devices share their cores with each other, but not with a CPU device, which
needs undisturbed cores.

A worker takes its turn on the device before it claims a job: while a worker of another Dyno service uses these cores,
this worker's jobs stay queued. One of the waiting workers is first in line and gets the next turn. A lock file names
its holder: pid, job and command, one per line.

All users of a host share the lock files. So any user can block a device, as anyone who uses the device does anyway.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from dyno import folders
from dyno.bench.devices.cpu import parse_cpulist
from dyno.errors import DeviceBusy, DeviceUnavailable
from dyno.models.device import Device
from dyno.models.job import Holder
from dyno.settings import Settings

# flock has no timeout, so Dyno polls it. 10 ms is short compared with the 70 ms that starting a run takes.
_POLL_S = 0.01
_RUNNER_EXIT_S = 0.5  # a runner dies within 30 ms of its worker
HUNG_AFTER_S = 60.0  # by then the worker has tried to kill its runner and given up (dyno/bench/runner/monitor.py)
_MOST_BYTES = 1024  # maximum to read from a lock file
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_PID = re.compile(r"[0-9]{1,10}")
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
    """A worker's turn on its device. Exactly one of the waiting workers is first in line and gets the next turn.

    `clock`: monotonic, in seconds.
    """

    def __init__(self, device: Device, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._device, self._clock = device.full_id, clock
        self._own, self._shared = lock_paths(device, settings), shared_lock_paths(device, settings)
        self._first_in_line: HeldLocks | None = None
        self._left_over: tuple[int | None, float] | None = None  # the pid of a left-over runner, and when it was found

    def take(self) -> HeldLocks | Holder:
        """Lock the device, or return the process that holds it or is first in line.

        If this worker becomes first in line, it keeps this place until it gets the device or calls `leave`. Raises
        DeviceUnavailable if a lock file can't be opened.
        """
        try:
            self._first_in_line = self._first_in_line or self._hold("next")
            turn = self._hold("turn")
        except DeviceBusy as busy:
            return self._holder(busy)
        try:
            # A runner that briefly outlives its worker still holds these locks.
            _locked(self._own, _RUNNER_EXIT_S, self._shared).release()
        except DeviceUnavailable as error:
            turn.release()
            if isinstance(error, DeviceBusy):
                return self._left_over_runner(error)
            raise
        self._left_over = None
        self.leave()
        return turn

    def _left_over_runner(self, busy: DeviceBusy) -> Holder:
        """The runner of an attempt that has ended. It still has the device, although no worker has the turn."""
        now_s = self._clock()
        if self._left_over is None or self._left_over[0] != busy.pid:
            self._left_over = busy.pid, now_s
        return self._holder(busy).model_copy(update={"hung": now_s - self._left_over[1] >= HUNG_AFTER_S})

    def _holder(self, busy: DeviceBusy) -> Holder:
        return Holder(device=self._device, pid=busy.pid, command=busy.command, job=busy.job)

    def leave(self) -> None:
        """Leave the line."""
        if self._first_in_line is not None:
            self._first_in_line.release()
            self._first_in_line = None

    def _hold(self, name: str) -> HeldLocks:
        exclusive, shared = ([_beside(path, name) for path in paths] for paths in (self._own, self._shared))
        return hold_locks(exclusive, 0, shared)


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

    Raises DeviceBusy if another process keeps a file locked, and DeviceUnavailable if a file can't be opened. After an
    error, this call holds no lock. The error names the file, and its holder or the reason.
    """
    held = _locked(paths, timeout_s, shared)
    held.note(job)
    return held


def _locked(paths: Sequence[str], timeout_s: float, shared: Sequence[str]) -> HeldLocks:
    """Like `hold_locks`, but doesn't write the new holder into the files."""
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
        folders.make_shared(Path(path).parent)
        return _open_shared(path)
    except OSError as error:
        raise DeviceUnavailable(
            f"the lock file {path} can't be opened: {error.strerror}. Set DYNO_RUN_DIR to another folder for lock files"
        ) from error


def _open_shared(path: str) -> int:
    """Open a lock file of any user, or create it for all users. Raises OSError, also for links."""
    while True:
        # In a sticky folder, Linux refuses O_CREAT for files of other users (fs.protected_regular).
        with suppress(FileNotFoundError):
            return _checked(os.open(path, _FLAGS), path)
        with suppress(FileExistsError):  # another process has just created it
            descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            os.fchmod(descriptor, 0o666)
            return descriptor


def _checked(descriptor: int, path: str) -> int:
    """`descriptor`. Raises OSError unless it is a plain file without hard links (they could lead to other files)."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        if (
            status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o666
        ):  # its creator died before sharing the file
            os.fchmod(descriptor, 0o666)
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file, or has hard links; delete it", path)


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
    # Other users may write in the file, and its holder may not have written yet.
    lines = ["".join(character if character.isprintable() else "?" for character in line) for line in text.split("\n")]
    pid, job, command = (lines + 3 * [""])[:3]
    in_words = f" ({command})" if command else ""
    detail = f"{path} is held by process {pid or 'unknown'}{in_words}" + (f", which runs {job}" if job else "")
    return DeviceBusy(detail, int(pid) if _PID.fullmatch(pid) else None, command or None, job or None)
