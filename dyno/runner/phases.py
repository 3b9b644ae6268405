"""The phases of a cold start, each timed once per process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dyno.models.result import Phases


class PhaseTimer:
    """Times named blocks. A phase that is entered twice adds up; one that never ran stays null."""

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._report = report
        self._clock = clock
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report the phase, then time the block; `name` is a field of `Phases` without its `_s`."""
        if f"{name}_s" not in Phases.model_fields:
            raise ValueError(f"no phase is called {name}")
        self._report(name)
        began_s = self._clock()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self._clock() - began_s

    def seconds(self, name: str) -> float:
        """How long the phase took; KeyError if it never ran."""
        return self._seconds[name]

    def phases(self) -> Phases:
        return Phases(**{f"{name}_s": seconds for name, seconds in self._seconds.items()})
