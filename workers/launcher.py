"""Starts runners, forked from a zygote or spawned, and speaks with both processes over pipes and a socket.

The parent-death signal follows the *thread* that started a process, not the process. A zygote started on a pool's
thread would die when that thread does, and the runner in it. So every zygote is started and restarted on one thread
of the launcher's own, which lives as long as the worker.

Stdout and stderr of a runner are a pipe of which the end is kept, so a flood of output fills no disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from dyno.devices.device import Device
from dyno.devices.discovery import installed_frameworks
from dyno.models.runner_protocol import (
    FRAME,
    DoneFrame,
    FailedFrame,
    FirstOpFrame,
    ProgressFrame,
    RunRequest,
    StartedFrame,
)
from workers.limits import Cgroup
from workers.log import event
from workers.zygote import FRAMES_FD, REQUEST_FD

TAIL_BYTES = 4096
_READ_BYTES = 65536
_MOST_READS = 32  # a pipe holds 1 MiB at most


class LogTail:
    """Keeps the last `TAIL_BYTES`. `write_fd` is given to the runner and closed here afterwards.

    `pass_on` is told of all that is read.
    """

    def __init__(self) -> None:
        self.pass_on: Callable[[bytes], object] = lambda data: None
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        self._tail = b""

    def read(self) -> int | None:
        """Read what is there, at most a pipe full, so that a flood can't hold its reader.

        Returns the number of bytes, 0 once nobody can write any more, None if there is nothing now.
        """
        try:
            data = os.read(self.read_fd, _READ_BYTES)
        except BlockingIOError:
            return None
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if data:
            self.pass_on(data)
        return len(data)

    def drain(self) -> None:
        """Read what a dead writer left in the pipe; one that escaped and still floods it is not waited for."""
        for _ in range(_MOST_READS):
            if not self.read():
                return

    def text(self) -> str | None:
        """What was kept, None if nothing was printed. Bytes that aren't UTF-8 are replaced."""
        return self._tail.decode("utf-8", "replace") or None

    def close(self) -> None:
        os.close(self.read_fd)


# What may hold one: a URL a password, headers for a collector of traces a token.
_SECRET = re.compile(r"^DYNO_(REDIS|ARTIFACT)_URL$|API_KEY|SECRET|PASSWORD|_(TOKEN|HEADERS)$")
_GRACE_S = 3.0  # it waits itself for 2 s at most, for what it kills


class ZygoteProcess:
    """Started by the constructor, on the thread whose life its own is tied to. Loading goes on in the background."""

    def __init__(self, framework: str | None, cores: Sequence[int], doors: Sequence[str] = ()) -> None:
        """`doors`: the files through which it joins the groups of its runners."""
        self.framework = framework
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # TensorFlow greets everybody who imports it; that is kept from the worker's stderr until it matters.
        self._log_fd = os.memfd_create("zygote-log", os.MFD_CLOEXEC)
        with theirs:
            self._process = subprocess.Popen(
                _command(framework, theirs.fileno(), cores, doors),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log_fd,
                stderr=self._log_fd,
                env=_environment(framework),
                start_new_session=True,  # Ctrl-C in the worker's terminal is the supervisor's to handle
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, argv: list[str] | None, fds: list[int]) -> None:
        """Ask for a child with `fds` = frames, log, request, status; `argv` is what a spawned one executes.

        Raises BrokenPipeError or ConnectionResetError if the zygote is gone.
        """
        socket.send_fds(self._control, [json.dumps({"argv": argv}).encode()], fds)

    def end(self) -> None:
        """End it and with it its children and what they orphaned; reap it. One that doesn't hear is killed."""
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._log_fd)

    def obituary(self) -> str | None:
        """Of a zygote that died by itself: how, and its last words; None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        start = max(0, os.fstat(self._log_fd).st_size - TAIL_BYTES)
        return f"exit code {code}\n{os.pread(self._log_fd, TAIL_BYTES, start).decode('utf-8', 'replace')}"


def _command(framework: str | None, socket_fd: int, cores: Sequence[int], doors: Sequence[str]) -> list[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "workers.zygote",
        "--socket-fd",
        str(socket_fd),
        "--parent",
        str(os.getpid()),
    ]
    if framework is not None:
        command += ["--framework", framework]
    if cores:
        command += ["--cores", ",".join(map(str, cores))]
    for door in doors:
        command += ["--join", door]
    return command


def _environment(framework: str | None) -> dict[str, str]:
    """The worker's, without what a runner has no use for and may hold a secret, with Keras' backend."""
    environment = {name: value for name, value in os.environ.items() if _SECRET.search(name) is None}
    if framework is not None:
        environment["KERAS_BACKEND"] = framework
    return environment


AnyFrame = StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame

_LINE_BYTES = 64 * 1024 * 1024  # a record with 100,000 samples takes 10 MB


@dataclass(frozen=True)
class RunnerExit:
    """How a runner ended: its exit code or signal, or `lost` because the zygote died and the runner with it.

    `refused` says why it was never begun, where the zygote wouldn't or couldn't; `passing`: only for the moment.
    """

    code: int | None = None
    signal: int | None = None
    lost: bool = False
    refused: str | None = None
    passing: bool = False


@dataclass
class RunnerProcess:
    """One process that runs one spec once. Descriptors never block.

    `kill_zygote` is for one without a pid yet, or whose end isn't told.
    """

    start: Literal["forked", "spawned"]
    frames_fd: int
    status_fd: int
    log: LogTail
    kill_zygote: Callable[[], None]
    zygote_pid: int | None = None
    pid: int | None = None
    exit: RunnerExit | None = None
    frames_open: bool = True
    _frames: bytearray = field(default_factory=bytearray)
    _status: bytes = b""

    def read_frames(self) -> list[AnyFrame] | None:
        """The frames that have arrived; None: nothing to read now. A line that is no frame is left out."""
        try:
            data = os.read(self.frames_fd, _READ_BYTES)
        except BlockingIOError:
            return None
        if not data:
            self.frames_open = False
            return None
        self._frames += data
        lines = self._frames.split(b"\n") if b"\n" in data else [self._frames]
        self._frames = bytearray() if len(lines[-1]) > _LINE_BYTES else lines[-1]
        return [frame for line in lines[:-1] if (frame := _parse_frame(line)) is not None]

    def read_status(self) -> None:
        """Take in what the zygote says: sets `pid`, then `exit`."""
        data = os.read(self.status_fd, _READ_BYTES)
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            self._learn(json.loads(line))
        if not data and self.exit is None:
            began = self.pid is not None
            self.exit = RunnerExit(lost=True, refused=None if began else "the zygote died before it had forked")

    def _learn(self, word: dict[str, int | str]) -> None:
        if "pid" in word:
            self.pid = int(word["pid"])
        elif "refused" in word:
            self.exit = RunnerExit(refused=str(word["refused"]), passing=bool(word.get("passing")))
        else:
            code = os.waitstatus_to_exitcode(int(word["status"]))
            self.exit = RunnerExit(signal=-code) if code < 0 else RunnerExit(code=code)

    def send(self, number: signal.Signals) -> None:
        """Signal the runner's whole process group; a runner that hasn't begun takes its zygote with it."""
        if self.exit is not None:
            return
        if self.pid is None:
            self.kill_zygote()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def give_up(self) -> None:
        """End its zygote: of a runner that even KILL doesn't end, or whose end the zygote doesn't tell."""
        if self.exit is None:
            self.kill_zygote()

    def __enter__(self) -> RunnerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)  # only what an exception left running
        for fd in (self.frames_fd, self.status_fd):
            os.close(fd)
        self.log.close()


def _parse_frame(line: bytes | bytearray) -> AnyFrame | None:
    try:
        return FRAME.validate_json(line)
    except ValueError:
        return None


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

    def start(self, request: RunRequest) -> RunnerProcess:
        """Start one runner of the request's spec: its status says when it lives, or why not.

        Returns at once, but for a framework that is still to be proven.
        """
        framework = request.spec.framework
        if request.spec.measure.cold_start or not self._forks_proven(framework):
            spawned = request.model_copy(update={"process_start": "spawned"})
            return self.spawn(_RUNNER, spawned.model_dump_json().encode())
        forked = request.model_copy(update={"process_start": "forked"})
        return self._launch(framework, None, forked.model_dump_json().encode())

    def spawn(self, arguments: list[str], request: bytes) -> RunnerProcess:
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

    def _launch(self, framework: str | None, argv: list[str] | None, request: bytes) -> RunnerProcess:
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
        return RunnerProcess(start, frames_read, status_read, log, lambda: self._drop(framework), zygote_pid)

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
