"""The clocks that sampling reads; a protocol, so that tests can say how long everything took."""

from __future__ import annotations

import resource
import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Monotonic seconds from an arbitrary zero: for durations."""

    def epoch_s(self) -> float:
        """Wall clock, seconds since 1970: only to be compared with `now_s`, as it may jump."""

    def cpu_s(self) -> tuple[float, float]:
        """(user, system) processor seconds this process has used so far, over all its threads."""


class HostClock:
    """The real one. CLOCK_MONOTONIC is what `perf_counter` reads on Linux: 1 ns, about 50 ns a call."""

    def now_s(self) -> float:
        return time.perf_counter()

    def epoch_s(self) -> float:
        return time.time()

    def cpu_s(self) -> tuple[float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime, usage.ru_stime
