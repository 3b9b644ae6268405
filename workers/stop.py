"""Why and how a runner is stopped."""

from __future__ import annotations

import math
import os
import select
from collections.abc import Callable
from enum import StrEnum
from itertools import chain, repeat
from signal import Signals

from workers.log import event


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
        self._deadlines_s = [math.inf]

    @property
    def deadline_s(self) -> float:
        return min(self._deadlines_s)

    @property
    def stopping(self) -> bool:
        return self.deadline_s < math.inf

    def comes_within(self, patience_s: float) -> bool:
        """Whether a stop has been asked for, or is in `patience_s`."""
        return bool(select.select([self._fd], [], [], patience_s)[0])

    def stop(self, deadline_s: float) -> None:
        """Ask for the end by `deadline_s` on the supervisor's clock; only ever brings it forward.

        Added in one step: what compares and then writes could undo a stop that comes between the two.
        """
        self._deadlines_s.append(deadline_s)
        os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd


def stopping_within(
    patience_s: float, stop: Callable[[float], None], hear_no_more: Callable[[], None]
) -> Callable[[Signals], None]:
    """What a signal does: the first lets the job at hand finish within `patience_s`, the next hands it back at once.

    Which is the first is settled in one step: a signal may come at any instruction of handling another.
    """
    patiences_s = chain([patience_s], repeat(0.0))

    def end(number: Signals) -> None:
        within_s = next(patiences_s)
        stop(within_s)
        hear_no_more()
        event("stopping", signal=number.name, within_s=within_s)

    return end
