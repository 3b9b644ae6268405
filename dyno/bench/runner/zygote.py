"""A single-threaded process that has imported one framework and forks runners: `python -P -m dyno.bench.runner.zygote`.

Without `--framework` it imports nothing, and its children exec a new interpreter: these are the spawned runners. So all
runners start in the same way, with the same parent-death signal, process group and reaping.

A request is one message on the control socket with four descriptors: frames, log, request, status. The zygote writes
JSON objects to the status pipe, one per line. The first is `{"pid": …}` or `{"refused": …}`, with `"passing": true` if
a retry may succeed. The last is `{"status": …}`, as returned by `waitpid`. If the status pipe closes without a
`status`, the zygote has died.

Orphans: the zygote adopts processes that left their runner's process group (PR_SET_CHILD_SUBREAPER, prctl(2)), and ends
them with the runner. Adoption doesn't slow down a runner's start, and neither `setsid` nor a second fork escapes it.
The zygote finds descendants through `children` of each thread in /proc, so the cost depends on the number of the
runner's threads, not of the host's processes. A kernel without CONFIG_PROC_CHILDREN doesn't list children; then the
zygote reads the parent of each process.

Import nothing heavy here, and nothing that starts a thread: only a process with one thread can fork safely.
"""

import argparse
import contextlib
import ctypes
import errno
import faulthandler
import gc
import json
import os
import resource
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

from dyno.processes import die_with_parent

_PROC = Path("/proc")
_LISTS_CHILDREN = (_PROC / "thread-self/children").exists()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> dict[int, int]:
    """pid -> number of threads, for every descendant of `root`. Omits processes that end during the search."""
    children = _children()
    threads_of: dict[int, int] = {}
    waiting = list(children(root))
    while waiting:
        pid = waiting.pop()
        if threads := len(_threads(pid)):
            threads_of[pid] = threads
            waiting += children(pid)
    return threads_of


def children_of(pid: int) -> set[int]:
    """The children of all threads of the process."""
    return set(_children()(pid))


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory of the processes. Memory that several processes share is counted once for each of them."""
    return sum(int(words[1]) * _PAGE_BYTES for pid in pids if len(words := _text(_PROC / f"{pid}/statm").split()) > 1)


def proportional_bytes(pids: Iterable[int]) -> int:
    """Memory of the processes, with shared memory divided among its users. The kernel walks all pages: about 10 ms."""
    return sum(_pss_bytes(_text(_PROC / f"{pid}/smaps_rollup")) for pid in pids)


def _pss_bytes(rollup: str) -> int:
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / f"{pid}/task").iterdir())
    except OSError:
        return []


def _children() -> Callable[[int], Iterable[int]]:
    return _listed_children if _LISTS_CHILDREN else _children_by_parent()


def _listed_children(pid: int) -> list[int]:
    return [int(child) for thread in _threads(pid) for child in _text(thread / "children").split()]


def _children_by_parent() -> Callable[[int], Iterable[int]]:
    below: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        _, _, behind_the_name = _text(folder / "stat").rpartition(")")  # the name may contain any character
        if words := behind_the_name.split():
            below[int(words[1])].append(int(folder.name))
    return lambda pid: below.get(pid, [])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


PR_SET_CHILD_SUBREAPER = 36

_PATIENCE_S = 2.0  # a process in an uninterruptible call survives SIGKILL; the zygote reaps it later
_ASK_AGAIN_S = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies. Forks don't inherit this role; an exec keeps it."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_adopted(runners: Collection[int]) -> None:
    """Kill and reap all children of this single-threaded process except `runners`, until it adopts no more orphans."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while strangers := children_of(os.getpid()) - set(runners):
        for pid in strangers:  # kill all of them before waiting: they may be forking
            with contextlib.suppress(OSError):  # it may be gone, or run as another user
                os.kill(pid, signal.SIGKILL)
        for pid in strangers:
            _reap(pid, deadline_s)
        if time.monotonic() >= deadline_s:
            return


def _reap(pid: int, deadline_s: float) -> None:
    with contextlib.suppress(ChildProcessError):
        _wait(pid, deadline_s)
        os.waitpid(pid, os.WNOHANG)


def _wait(pid: int, deadline_s: float) -> None:
    """Wait for the child to end. Raises ChildProcessError if it isn't a child of this process."""
    try:
        ended = os.pidfd_open(pid)
    except OSError:  # a sandbox may forbid it
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline_s:
            time.sleep(_ASK_AGAIN_S)
        return
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)
    finally:
        os.close(ended)


FRAMES_FD = 3
REQUEST_FD = 4

_ABOVE_OWN_FDS = 16
_OOM_SCORE = "700"  # when memory runs out, the kernel kills the runner first, not Redis or the supervisor


def become_runner(zygote_pid: int, frames: int, log: int, request: int) -> None:
    """Detach from the zygote. Afterwards descriptor 0 is /dev/null, 1 and 2 the log, 3 the frames, 4 the request."""
    die_with_parent(zygote_pid)
    with contextlib.suppress(PermissionError):  # the zygote does the same, so that neither has to wait for the other
        os.setpgid(0, 0)
    _reset_signals()
    _arrange_fds(frames, log, request)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(file=2)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _arrange_fds(frames: int, log: int, request: int) -> None:
    import fcntl

    # Move the descriptors up first, so that no dup2 below overwrites a descriptor that is still needed.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_OWN_FDS) for fd in (log, log, frames, request)]
    for target, source in enumerate([os.open(os.devnull, os.O_RDONLY), *high]):
        os.dup2(source, target)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > REQUEST_FD:
            with contextlib.suppress(OSError):  # the descriptor of the listing is closed already
                os.close(int(entry.name))


_MESSAGE_BYTES = 4096
_RUNNER_FAILED = 70  # EX_SOFTWARE of sysexits.h
_HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGTERM)
_TRANSIENT_ERRNOS = (errno.EAGAIN, errno.ENOMEM)  # out of processes or memory


class Zygote:
    """Serves `control` until it closes, then ends with its children. `fault`: why the zygote can't fork runners."""

    def __init__(self, control: socket.socket, fault: str | None) -> None:
        self._control = control
        self._fault = fault
        self._children: dict[int, int] = {}  # pid -> status pipe

    def serve(self) -> NoReturn:
        # The wake-up pipe records signals that arrive between two calls of select.
        signals_read, signals_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signals_write, warn_on_full_buffer=False)
        for number in _HANDLED_SIGNALS:
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
            _write_status(status, {"refused": fault})
            os.close(status)
        else:
            self._start(json.loads(message), others, status)
        for fd in others:
            os.close(fd)

    def _why_not(self) -> str | None:
        """Why a fork would be unsafe now: a lock held by another thread would stay locked in the child forever."""
        names = [_text(thread / "comm").strip() for thread in Path("/proc/self/task").iterdir()]
        return self._fault or (f"the zygote has {len(names)} threads: {', '.join(names)}" if len(names) > 1 else None)

    def _start(self, order: dict[str, Any], fds: list[int], status: int) -> None:
        zygote_pid = os.getpid()
        # Block signals until the child has its own handlers: the zygote's inherited handlers would ignore them.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:
            _write_status(status, {"refused": f"fork: {error}", "passing": error.errno in _TRANSIENT_ERRNOS})
            os.close(status)
            return
        finally:
            if os.getpid() == zygote_pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
        if pid == 0:
            _run_child(zygote_pid, order.get("argv"), *fds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
        self._children[pid] = status
        _write_status(status, {"pid": pid})

    def _reap(self) -> None:
        """Reap ended runners, and ended orphans of runners that are still alive."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in self._children:
                    self._bury(ended.si_pid)
                else:
                    os.waitpid(ended.si_pid, 0)

    def _bury(self, pid: int) -> None:
        # The pid isn't reaped yet, so the kernel can't have reused its process group: killing the group is safe.
        _kill_group(pid)
        _, code = os.waitpid(pid, 0)
        status = self._children.pop(pid)
        end_adopted(self._children)
        _write_status(status, {"status": code})
        os.close(status)

    def _end(self) -> NoReturn:
        for pid in self._children:
            _kill_group(pid)
        end_adopted(())
        os._exit(0)


def _run_child(zygote_pid: int, argv: list[str] | None, frames: int, log: int, request: int) -> NoReturn:
    """Become the runner. Never returns to the zygote's loop."""
    code = _RUNNER_FAILED
    try:
        become_runner(zygote_pid, frames, log, request)
        if argv is not None:
            os.execv(sys.executable, [sys.executable, *argv])
        _run_forked()
        code = 0
    except BaseException:  # noqa: BLE001 - reported in the log's tail
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _run_forked() -> None:
    from dyno.bench.runner.run import main as run
    from dyno.models.runner_protocol import RunRequest

    with os.fdopen(REQUEST_FD, "rb") as file:
        request = RunRequest.model_validate_json(file.read())
    run(request, FRAMES_FD)


def _write_status(status: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the launcher has closed its end
        os.write(status, json.dumps(message).encode() + b"\n")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _load(name: str) -> str | None:
    """Import all modules that a runner needs. Returns why an import failed, or None.

    Garbage collection is off during the import: it would take 0.8 s of the 3.2 s that TensorFlow's import takes.
    """
    gc.disable()
    from dyno.bench.devices.environment import environment
    from dyno.bench.frameworks import framework
    from dyno.errors import DynoError

    _keep_from_starting_threads()
    try:
        framework(name).load()
        environment()  # remembers the versions of all packages
        import dyno.bench.runner.run  # noqa: F401
        from dyno.bench.registry import registry

        registry()
    except (DynoError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    _end_library_threads()
    # Freeze the objects: a garbage collection in a child doesn't touch them, so their pages stay shared.
    gc.collect()
    gc.freeze()
    gc.enable()
    return None


def _keep_from_starting_threads() -> None:
    """Keras imports pandas if pandas is installed. pandas imports Arrow, whose jemalloc would start a thread."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def _end_library_threads() -> None:
    """Fork once: OpenBLAS's fork handler ends the threads that OpenBLAS started on import. New threads start later."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyno.bench.runner.zygote")
    parser.add_argument("--framework")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="pid of the process that starts it")
    parser.add_argument(
        "--cores", default="", help="comma-separated cores; libraries size themselves by them at import"
    )
    parser.add_argument(
        "--join", action="append", default=[], help="cgroup.procs of a cgroup for the zygote and its runners"
    )
    args = parser.parse_args()
    die_with_parent(args.parent)
    if args.cores:
        os.sched_setaffinity(0, [int(core) for core in args.cores.split(",")])
    fault = _load(args.framework) if args.framework else None
    for door in args.join:  # after the imports, so that their memory doesn't count towards the limit
        with contextlib.suppress(OSError):  # the supervisor notices, and checks the limits itself
            Path(door).write_text("0")
    # From here on, the parent's death sends TERM: unlike KILL, it lets the zygote end processes that left their groups.
    die_with_parent(args.parent, signal.SIGTERM)
    Zygote(socket.socket(fileno=args.socket_fd), fault).serve()


if __name__ == "__main__":
    main()
