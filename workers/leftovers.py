"""What a runner leaves behind: what left its process group is adopted by the zygote, and ends with the runner.

A process whose parent dies goes to its nearest living ancestor that asked for it (PR_SET_CHILD_SUBREAPER, prctl(2)).
That costs a runner's start nothing, and neither `setsid` nor a second fork gets past it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Collection

from workers.tree import children_of

PR_SET_CHILD_SUBREAPER = 36

_PATIENCE_S = 2.0  # a process in an uninterruptible call outlives SIGKILL: it is left to the reaping to come
_ASK_AGAIN_S = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of all below whose own parent dies. A fork doesn't pass it on, an exec keeps it."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_adopted(own: Collection[int]) -> None:
    """Kill and reap every child of this process (which has one thread) but `own`; whatever those leave, too."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while strangers := children_of(os.getpid()) - set(own):
        for pid in strangers:  # all before any is waited for: they may be starting more of themselves
            with contextlib.suppress(OSError):  # it may be gone, or run under another user's id
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
    """Raises ChildProcessError where it is no child of ours."""
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
