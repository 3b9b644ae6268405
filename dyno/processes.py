"""Dyno's processes on one host: start, restart and stop them, measure their peak memory, and find free ports."""

import ctypes
import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_BACKOFF_S = 30.0
_LAST_PORT = 65535
_TRIED_PORTS = 100
STEADY_S = 60.0  # if a process ran this long before its death, its restart delay is short again
STOP_GRACE_S = 20.0  # a worker needs shutdown_s (1 s here), term_grace_s for its runner, and time to hand back its job

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send the signal `number` to this process when the thread that started it ends for any reason.

    A fork clears this setting, an exec doesn't. Exits at once if the parent died before this call.
    """
    if _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(1)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Let TERM and HUP end the block like Ctrl-C, and ignore further signals during the clean-up."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        for signal_number in STOP_SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _begin(parent_pid: int, mask: Iterable[int], cores: Collection[int]) -> None:
    """In a new child, before exec: reset signals, set the cores, and have the kernel send TERM when the parent ends.

    A worker that receives TERM hands back its job.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    die_with_parent(parent_pid, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if cores:
        os.sched_setaffinity(0, cores)


@dataclass
class ManagedProcess:
    """One process to keep alive. `module` is run as `python -P -m module args…`.

    `says_to`: the file descriptor for its output; None stands for this process' own stdout and stderr. `pass_fds`: open
    files that the child inherits. `cores`: the cores that the child may use; if empty, this process's cores.
    """

    name: str
    module: str
    args: list[str]
    env: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    backoff_s: float = 0.5
    restart_at_s: float | None = None
    says_to: int | None = None
    pass_fds: tuple[int, ...] = ()
    cores: Collection[int] = ()

    def start(self) -> None:
        # The child gets its own process group: Ctrl-C in a terminal reaches only the parent, which then stops the
        # children in order. Signals are blocked until the child is in its group and recorded in `self.process`.
        # Otherwise, a signal in between could end the parent but not the child.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", self.module, *self.args],
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=self.says_to,
                stderr=self.says_to,
                pass_fds=self.pass_fds,
                # The parent has one thread, so Python may run here.
                preexec_fn=partial(_begin, os.getpid(), held, self.cores),
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        self.started_s = time.monotonic()
        self.restart_at_s = None

    def plan_restart(self) -> float:
        """Schedule the next start, and return the seconds until then. The delay doubles with each early death."""
        if time.monotonic() - self.started_s > STEADY_S:
            self.backoff_s = 0.5
        delay_s, self.backoff_s = self.backoff_s, min(self.backoff_s * 2, MAX_BACKOFF_S)
        self.restart_at_s = time.monotonic() + delay_s
        return delay_s


@dataclass
class Stack:
    """Several processes, stopped in reverse order. Use it from one thread: a child dies with its starting thread."""

    say: Callable[[str], None]
    parts: list[ManagedProcess] = field(default_factory=list)
    chores: list[Callable[[], None]] = field(default_factory=list)  # called in each iteration of `watch`

    def start(self, part: ManagedProcess) -> ManagedProcess:
        self.parts.append(part)
        part.start()
        return part

    def watch(self) -> None:
        """Restart processes that die, until a signal handler raises. Checks when a process ends and once a second."""
        while True:
            self._wait(1.0)
            for chore in self.chores:
                chore()
            for part in self.parts:
                self._revive(part)

    def dead(self) -> ManagedProcess | None:
        """The first process that has ended, if any."""
        return next((p for p in self.parts if p.process and p.process.poll() is not None), None)

    def _wait(self, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            fds = [os.pidfd_open(p.process.pid) for p in self.parts if p.process and p.process.poll() is None]
            try:
                for fd in fds:
                    selector.register(fd, selectors.EVENT_READ)
                selector.select(timeout_s)
            finally:
                for fd in fds:
                    os.close(fd)

    def _revive(self, part: ManagedProcess) -> None:
        if part.restart_at_s is not None:
            if time.monotonic() >= part.restart_at_s:
                part.start()
                self.say(f"{part.name} restarted")
        elif part.process and (code := part.process.poll()) is not None:
            delay_s = part.plan_restart()
            self.say(f"{part.name} died ({_describe_exit(code)}); restarting it in {delay_s:.1f} s")

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Send TERM in reverse order of start, then KILL to processes that outlive the grace period."""
        running = [p for p in reversed(self.parts) if p.process and p.process.poll() is None]
        for part in running:
            _signal(part, signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        for part in running:
            assert part.process is not None
            try:
                part.process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(part, signal.SIGKILL)
                part.process.wait()


def _signal(part: ManagedProcess, number: signal.Signals) -> None:
    assert part.process is not None
    part.process.send_signal(number)


def _describe_exit(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def bind_error(host: str, port: int) -> str | None:
    """Why a service can't listen on the port, and what to do; None if it can. Port 0 stands for any free port."""
    if (error := _listen_error(host, port)) is None:
        return None
    if error.errno != errno.EADDRINUSE:
        return f"can't bind {host}, port {port}: {error.strerror}; choose another with --port or DYNO_HOST"
    others = range(port + 1, min(port + _TRIED_PORTS, _LAST_PORT) + 1)
    free = next((other for other in others if _listen_error(host, other) is None), 0)
    return f"port {port} is taken; try --port {free}"


def _listen_error(host: str, port: int) -> OSError | None:
    """The error of a test bind, or None. It binds as a server does: with SO_REUSEADDR, to every address of the name."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        return error
    return None


_RESET_PEAK = "5"  # proc(5), /proc/pid/clear_refs: resets VmHWM to the current resident memory


def reset_host_peak() -> None:
    """Reset the peak, since a forked runner inherits its zygote's peak. If the kernel refuses, that peak stays."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return


def host_peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Peak resident memory since the start or the last reset (VmHWM); None if the kernel doesn't report it."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    peaks = [line.split() for line in lines if line.startswith("VmHWM:")]
    return int(peaks[0][1]) * 1024 if peaks else None
