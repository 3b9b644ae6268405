"""A single-threaded process that has imported one framework and forks runners: `python -P -m workers.zygote`.

Without `--framework` it has imported nothing, and its children execute a new interpreter: that is how a runner is
spawned. One way to start processes, then, whose parent-death signal, process group and reaping are the same.

A request is one message on the control socket with four descriptors: frames, log, request, status. On the status
pipe the zygote writes one JSON object a line: `{"pid": …}` or `{"refused": …}` (with `"passing": true` where it may
work later), and `{"status": …}` at the end (as of `waitpid`). A status pipe that closes without that last line means
that the zygote died.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from dyno.processes import die_with_parent
from workers.child import FRAMES_FD, REQUEST_FD, become_runner
from workers.leftovers import adopt_orphans, end_adopted

_MESSAGE_BYTES = 4096
_RUNNER_FAILED = 70  # EX_SOFTWARE of sysexits.h
_HEARD = (signal.SIGCHLD, signal.SIGTERM)
_PASSING = (errno.EAGAIN, errno.ENOMEM)  # no processes or memory left, for now


class Zygote:
    """Serves `control` until it closes, then takes its children with it. `fault`: why it can't fork runners."""

    def __init__(self, control: socket.socket, fault: str | None) -> None:
        self._control = control
        self._fault = fault
        self._children: dict[int, int] = {}  # pid -> status pipe

    def serve(self) -> NoReturn:
        # A signal between select and its return must not get lost: the wake-up pipe keeps it.
        signals_read, signals_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signals_write, warn_on_full_buffer=False)
        for number in _HEARD:
            signal.signal(number, lambda *_: None)
        adopt_orphans()
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(signals_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == signals_read:
                    if signal.SIGTERM in os.read(signals_read, _MESSAGE_BYTES):
                        self._end()
                    self._reap()
                else:
                    self._answer()

    def _answer(self) -> None:
        flags = socket.MSG_CMSG_CLOEXEC
        message, fds, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 4, flags)
        if not message:
            self._end()
        *others, status = fds
        if fault := self._why_not():
            _tell(status, {"refused": fault})
            os.close(status)
        else:
            self._start(json.loads(message), others, status)
        for fd in others:
            os.close(fd)

    def _why_not(self) -> str | None:
        """Why a fork would be unsafe now: a lock held by another thread stays locked in the child for ever."""
        threads = len(list(Path("/proc/self/task").iterdir()))
        return self._fault or (f"the zygote has {threads} threads" if threads > 1 else None)

    def _start(self, order: dict[str, Any], fds: list[int], status: int) -> None:
        zygote_pid = os.getpid()
        # Held back until a child hears them itself: one that came before would be taken for the zygote's, and be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        try:
            pid = os.fork()
        except OSError as error:
            _tell(status, {"refused": f"fork: {error}", "passing": error.errno in _PASSING})
            os.close(status)
            return
        finally:
            if os.getpid() == zygote_pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        if pid == 0:
            _run_child(zygote_pid, order.get("argv"), *fds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
        self._children[pid] = status
        _tell(status, {"pid": pid})

    def _reap(self) -> None:
        """Runners, and what they orphaned while they lived."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in self._children:
                    self._bury(ended.si_pid)
                else:
                    os.waitpid(ended.si_pid, 0)

    def _bury(self, pid: int) -> None:
        # Not yet reaped, so its process group's number can't be anyone else's: what it left behind ends here.
        _kill_group(pid)
        _, code = os.waitpid(pid, 0)
        status = self._children.pop(pid)
        end_adopted(self._children)
        _tell(status, {"status": code})
        os.close(status)

    def _end(self) -> NoReturn:
        for pid in self._children:
            _kill_group(pid)
        end_adopted(())
        os._exit(0)


def _run_child(zygote_pid: int, argv: list[str] | None, frames: int, log: int, request: int) -> NoReturn:
    """Never returns into the zygote's loop, whatever happens."""
    code = _RUNNER_FAILED
    try:
        become_runner(zygote_pid, frames, log, request)
        if argv is not None:
            os.execv(sys.executable, [sys.executable, *argv])
        _run_forked()
        code = 0
    except BaseException:  # noqa: BLE001 - the log's tail is where this is read
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _run_forked() -> None:
    from dyno.models.runner_protocol import RunRequest
    from dyno.runner.run import main as run

    with os.fdopen(REQUEST_FD, "rb") as file:
        request = RunRequest.model_validate_json(file.read())
    run(request, FRAMES_FD)


def _tell(status: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(status, json.dumps(message).encode() + b"\n")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _load(name: str) -> str | None:
    """Import all that a runner needs; returns why that failed, or None."""
    from dyno.errors import DynoError
    from dyno.frameworks import framework

    try:
        framework(name).load()
        _preload()
    except (DynoError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    _end_library_threads()
    # What is here stays: no collection in a child walks it, so its pages stay shared.
    gc.collect()
    gc.freeze()
    return None


def _preload() -> None:
    import dyno.runner.run  # noqa: F401
    from dyno.workloads import registry

    registry()


def _end_library_threads() -> None:
    """OpenBLAS starts threads on import and ends them in its fork handler; it starts new ones when it needs them."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="workers.zygote")
    parser.add_argument("--framework")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="pid of the process that starts it")
    parser.add_argument("--cores", default="", help="comma-separated: libraries size themselves at import by these")
    parser.add_argument("--join", action="append", default=[], help="cgroup.procs of a cgroup for it and its runners")
    args = parser.parse_args()
    die_with_parent(args.parent)
    if args.cores:
        os.sched_setaffinity(0, [int(core) for core in args.cores.split(",")])
    fault = _load(args.framework) if args.framework else None
    for door in args.join:  # only now: what it has imported is not the runners'
        with contextlib.suppress(OSError):  # then the supervisor sees that it isn't in, and looks itself
            Path(door).write_text("0")
    # From here on it hears a TERM, and takes along what has left its runners' groups; a KILL would let that escape.
    die_with_parent(args.parent, signal.SIGTERM)
    Zygote(socket.socket(fileno=args.socket_fd), fault).serve()


if __name__ == "__main__":
    main()
