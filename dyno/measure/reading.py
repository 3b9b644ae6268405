"""One timed reading, between two looks at the clocks."""

from __future__ import annotations

from dataclasses import dataclass

from dyno.measure.clock import Clock


@dataclass(frozen=True)
class Instant:
    """Now, by the clocks of one process: wall clocks and the processor's time."""

    now_s: float
    epoch_s: float
    user_s: float
    system_s: float

    @classmethod
    def now(cls, clock: Clock) -> Instant:
        return cls(clock.now_s(), clock.epoch_s(), *clock.cpu_s())


@dataclass(frozen=True)
class Reading:
    """So many executions between two instants."""

    start: Instant
    end: Instant
    executions: int

    @property
    def duration_s(self) -> float:
        return self.end.now_s - self.start.now_s

    @property
    def per_execution_s(self) -> float:
        return self.duration_s / self.executions
