"""A simulated clock, and sampling with it."""

from __future__ import annotations

from collections.abc import Iterator

from dyno.bench.measure.sampling import SamplingResult, sample
from dyno.bench.measure.stopping_rule import StoppingRule


class Bench:
    """A clock that only executions advance, by the next value of `durations_s` each, on two busy cores."""

    def __init__(self, durations_s: Iterator[float], epoch_drift: float = 1.0) -> None:
        self.time_s = 100.0
        self.executed: list[int] = []
        self.inside = False
        self._durations_s = durations_s
        self._epoch_drift = epoch_drift

    def now_s(self) -> float:
        return self.time_s

    def epoch_s(self) -> float:
        return 1e9 + self.time_s * self._epoch_drift

    def cpu_s(self) -> tuple[float, float]:
        return 2 * self.time_s, self.time_s / 4

    def execute(self, count: int) -> None:
        self.inside = True
        self.executed.append(count)
        for _ in range(count):
            self.time_s += next(self._durations_s)
        self.inside = False


def run(durations_s: Iterator[float], rule: StoppingRule | None = None) -> tuple[SamplingResult, Bench]:
    bench = Bench(durations_s)
    return sample(bench.execute, rule or StoppingRule(), bench, lambda taken, expected: None), bench
