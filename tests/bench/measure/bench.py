"""A simulated clock, and sampling with it."""

from __future__ import annotations

from dyno.bench.measure.sampling import sample
from dyno.bench.measure.stopping_rule import StoppingRule


class Bench:
    """A clock that only executions advance, by the next value of `durations_s` each, on two busy cores."""

    def __init__(self, durations_s, epoch_drift=1.0):
        self.time_s = 100.0
        self.executed: list[int] = []
        self.inside = False
        self._durations_s = durations_s
        self._epoch_drift = epoch_drift

    def now_s(self):
        return self.time_s

    def epoch_s(self):
        return 1e9 + self.time_s * self._epoch_drift

    def cpu_s(self):
        return 2 * self.time_s, self.time_s / 4

    def execute(self, count):
        self.inside = True
        self.executed.append(count)
        for _ in range(count):
            self.time_s += next(self._durations_s)
        self.inside = False


def run(durations_s, rule=None):
    bench = Bench(durations_s)
    return sample(bench.execute, rule or StoppingRule(), bench, lambda taken, expected: None), bench
