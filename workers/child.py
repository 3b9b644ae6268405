"""What a freshly forked child does before it becomes a runner. Only system calls: nothing here may start a thread."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
from pathlib import Path

from dyno.processes import die_with_parent

FRAMES_FD = 3
REQUEST_FD = 4

_ABOVE_OWN_FDS = 16
_OOM_SCORE = "700"  # under memory pressure the kernel takes the runner first, not Redis or the supervisor


def become_runner(zygote_pid: int, frames: int, log: int, request: int) -> None:
    """Cut every tie with the zygote: afterwards 0 is /dev/null, 1 and 2 the log, 3 the frames, 4 the request."""
    die_with_parent(zygote_pid)
    with contextlib.suppress(PermissionError):  # the zygote sets it too, so that neither has to wait for the other
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

    # First out of the way, so that no dup2 below overwrites one that is still needed.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_OWN_FDS) for fd in (log, log, frames, request)]
    for target, source in enumerate([os.open(os.devnull, os.O_RDONLY), *high]):
        os.dup2(source, target)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > REQUEST_FD:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(int(entry.name))
