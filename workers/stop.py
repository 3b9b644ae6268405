"""Why and how a runner is stopped."""

from __future__ import annotations

import math
import os
import select
from enum import StrEnum


class StopReason(StrEnum):
    """Why the supervisor ended a runner."""

    SUPERSEDED = "superseded"  # another attempt owns the job
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    STALL = "stall"
    EXCESS = "excess"  # it took more of its host than it may; `Ended.excess` says what
    SHUTDOWN = "shutdown"


class StopSwitch:
    """How a signal handler tells the supervisor to end: a number and a descriptor, no lock to be caught in.

    Readable (`fileno`) from the first `stop` on; `deadline_s` is when what still runs is handed back.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.deadline_s = math.inf

    @property
    def stopping(self) -> bool:
        return self.deadline_s < math.inf

    def comes_within(self, patience_s: float) -> bool:
        """Whether a stop has been asked for, or is in `patience_s`."""
        return bool(select.select([self._fd], [], [], patience_s)[0])

    def stop(self, deadline_s: float) -> None:
        """Ask for the end by `deadline_s` on the supervisor's clock; only ever brings it forward."""
        self.deadline_s = min(self.deadline_s, deadline_s)
        os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd
