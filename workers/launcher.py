"""Starts runners: forked from a framework's zygote, or spawned where that doesn't work or a cold start is asked for.

The kernel's parent-death signal follows the *thread* that started a process, not the process. A zygote started on a
pool's thread would die when that thread does, and the runner in it. So every zygote is started and restarted on one
thread of the launcher's own, which lives as long as the worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from dyno.devices.device import Device
from dyno.devices.discovery import installed_frameworks
from dyno.models.runner_protocol import RunRequest
from workers.cgroup import Cgroup
from workers.child import FRAMES_FD, REQUEST_FD
from workers.log import event
from workers.log_tail import LogTail
from workers.running import Runner
from workers.zygote_process import ZygoteProcess

# The one whose zygote is there before the first job; the others' come with their first.
DEFAULT_FRAMEWORK = next(iter(installed_frameworks()), "tensorflow")

# -P keeps the working directory out of sys.path; faulthandler puts the Python stack of a crash into the log.
_RUNNER = ["-P", "-X", "faulthandler", "-m", "dyno.runner"]
_RUNNER += ["--request-fd", str(REQUEST_FD), "--frames-fd", str(FRAMES_FD)]

_KILLED_WITHIN_S = 2.0  # what is still there then hangs in the kernel, and nobody is to wait for that


class Launcher:
    """One per worker, for one runner at a time; call it from one thread at a time.

    `worker_start` "spawn" forks never, "fork" always, "auto" until `fall_back` is called for a framework. `cgroup` is
    what its runners are born in; it goes with the launcher.
    """

    def __init__(self, worker_start: str, cores: Sequence[int], cgroup: Cgroup | None = None) -> None:
        self.cgroup = cgroup or Cgroup()
        self._worker_start = worker_start
        self._cores = cores
        self._zygotes: dict[str | None, ZygoteProcess] = {}
        self._reasons: dict[str, str] = {}  # framework -> why its runners are spawned
        self._prove: Callable[[str], None] | None = None
        self._proven: set[str] = set()
        # One worker thread that never ends before shutdown: see above.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")

    def forks(self, framework: str) -> tuple[bool, str | None]:
        """Whether runners of this framework are forked, and if they aren't, why."""
        if self._worker_start == "spawn":
            return False, "settings: worker_start is spawn"
        reason = self._reasons.get(framework)
        return reason is None, reason

    def prove_with(self, prove: Callable[[str], None], proven: str) -> None:
        """Have `prove(framework)` called once for each framework but `proven`, before its first runner is forked.

        It starts a runner of that framework itself, and calls `fall_back` if that doesn't work.
        """
        self._prove = prove
        self._proven.add(proven)

    def fall_back(self, framework: str, reason: str) -> bool:
        """Spawn from now on; False: the settings insist on forking."""
        if self._worker_start == "fork":
            return False
        self._reasons.setdefault(framework, reason)
        self._drop(framework)
        return True

    def describe(self, device: Device) -> Device:
        """`device` with how its runners start; the default framework speaks for all."""
        forks, reason = self.forks(DEFAULT_FRAMEWORK)
        return device.model_copy(update={"started_with": "fork" if forks else "spawn", "started_with_reason": reason})

    def prepare(self, framework: str) -> None:
        """Start the zygote, so that the first job doesn't wait for the import. Returns before it has loaded."""
        self._zygote(framework if self.forks(framework)[0] else None)

    def start(self, request: RunRequest) -> Runner:
        """Start one runner of the request's spec: its status says when it lives, or why not.

        Returns at once, but for a framework that is still to be proven.
        """
        framework = request.spec.framework
        if request.spec.measure.cold_start or not self._forks_proven(framework):
            spawned = request.model_copy(update={"process_start": "spawned"})
            return self.spawn(_RUNNER, spawned.model_dump_json().encode())
        forked = request.model_copy(update={"process_start": "forked"})
        return self._launch(framework, None, forked.model_dump_json().encode())

    def spawn(self, arguments: list[str], request: bytes) -> Runner:
        """A fresh interpreter with `arguments`; it finds `request` at REQUEST_FD and writes frames to FRAMES_FD."""
        return self._launch(None, arguments, request)

    def run(self, module: str, arguments: Sequence[str], timeout_s: float) -> str:
        """What `python -P -m module arguments…` prints. Raises OSError, or subprocess.SubprocessError with what it said
        last on stderr; never waits on.

        `--parent <pid>` comes first, for `dyno.processes.die_with_parent`.
        """
        command = [sys.executable, "-P", "-m", module, "--parent", str(os.getpid()), *arguments]
        process = self._starter.submit(
            subprocess.Popen,
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ).result()
        try:
            printed, complaints = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_WITHIN_S)
            raise
        finally:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        if process.returncode != 0:
            last = complaints.strip().rpartition("\n")[2]
            raise subprocess.SubprocessError(f"{module} ended with exit code {process.returncode}: {last}")
        return printed

    def close(self) -> None:
        """End the zygotes and with them every runner."""
        for framework in list(self._zygotes):
            self._drop(framework)
        self._starter.shutdown()
        self.cgroup.close()

    def _forks_proven(self, framework: str) -> bool:
        if self._prove is not None and self.forks(framework)[0] and framework not in self._proven:
            self._proven.add(framework)
            self._prove(framework)
        return self.forks(framework)[0]

    def _launch(self, framework: str | None, argv: list[str] | None, request: bytes) -> Runner:
        frames_read, frames_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(frames_read, False)
        log = LogTail()
        request_fd = _file_of(request)
        given = [frames_write, log.write_fd, request_fd, status_write]
        zygote_pid = None
        for _ in range(2):  # it may have died since it was looked at: once more, with a new one
            try:
                zygote = self._zygote(framework)
                zygote.ask(argv, given)
                zygote_pid = zygote.pid
                break
            except (BrokenPipeError, ConnectionResetError):
                self._drop(framework)
        for fd in given:  # a request that nobody took shows as a status pipe that nobody can write
            os.close(fd)
        start: Literal["forked", "spawned"] = "spawned" if framework is None else "forked"
        return Runner(start, frames_read, status_read, log, lambda: self._drop(framework), zygote_pid)

    def _zygote(self, framework: str | None) -> ZygoteProcess:
        zygote = self._zygotes.get(framework)
        if zygote is not None and (obituary := zygote.obituary()) is not None:
            event("zygote-died", logging.WARNING, framework=framework, pid=zygote.pid, how=obituary)
            self._drop(framework)
            zygote = None
        if zygote is None:
            zygote = self._starter.submit(ZygoteProcess, framework, self._cores, self.cgroup.doors).result()
            self._zygotes[framework] = zygote
        return zygote

    def _drop(self, framework: str | None) -> None:
        zygote = self._zygotes.pop(framework, None)
        if zygote is not None:
            zygote.end()


def _file_of(data: bytes) -> int:
    """`data` as an open file of its own: unlike a pipe it takes any length without a reader."""
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
