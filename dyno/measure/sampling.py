"""One run's samples: how many executions make one, when warm-up is over, when it is enough.

Warm-up is found, not guessed, in two steps. Gradual: the last two windows of five samples are compared at every step;
they agree when Mann & Whitney's U keeps them together (two-sided 5.6 %) or their medians differ by no more than the
target (a caller's looser one counts as 2 %: `steady_rel_ci`). In plateaus: the first samples from there on (20, or as
many as the rule asks for) are searched for a change point with Pettitt's test. What lies before agreeing windows and
before a change point is warm-up; it is kept apart. Once the target is met, all samples are searched again, more
sharply: what windows of five can't tell from noise shows in twenty. Up to three times what lies before such a change is
taken for warm-up too, and sampling goes on. A change of more than the target that is left then moves nothing any more:
the run has no steady state, and says so.

Both tests look at the order of samples, not at their spread, so that a noisy run may still be steady; a coefficient of
variation (Georges et al. 2007, 3.2.2) can't tell the two apart. Change points stand in for the person who would look
at each plot in Kalibera & Jones (2013), section 4; Barrett et al. (2017) find warm-up the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dyno.measure.clock import Clock
from dyno.measure.reading import Instant, Reading
from dyno.measure.rule import StoppingRule
from dyno.measure.statistics import change_point, median, median_interval, separated

StoppedBecause = Literal["target", "max_samples", "max_s"]
Execute = Callable[[int], None]  # execute so often, then drain the device
Report = Callable[[int, int | None], None]  # samples taken, samples expected

WINDOW = 5
# U <= 3 of 25 for 5 against 5 comes by chance in 5.6 % (tables of U); |3 - 12.5| / 4.787 = 1.98, U = 4 gives 1.78.
WINDOW_Z = 1.9
PLATEAU_BLOCK = 20
PLATEAU_P = 0.01
# Takes a third to two thirds of what a gradual warm-up leaves in a value (docs/results/coverage.md).
LATE_P, LATE_SHARE, LATE_CUTS = 0.05, 0.25, 3  # the share is of `steady_rel_ci`
# One in a thousand: five runs of a steady job raise a false alarm once in two hundred.
DRIFT_P = 0.001
MAX_GROWTH = 10  # of the executions per sample in one step: a first reading may be a thousand times too slow
MAX_EXECUTIONS = 10**9  # an execution of nothing never fills a sample
MARGIN = 1.1  # aims above the least length, so that the fastest samples keep it too


@dataclass(frozen=True)
class Samples:
    """What `sample` took. `warmup` and `samples` are seconds per execution in the order they were taken.

    `sample_cpu_s` holds (user, system) processor seconds of each whole sample. The window runs from the first
    sample's start to the last one's end; `epoch_s` is its length by the wall clock, which CLOCK_SKEW compares.
    """

    warmup: list[float]
    samples: list[float]
    executions_per_sample: int
    steady: bool
    stopped_because: StoppedBecause
    sample_cpu_s: list[tuple[float, float]]
    warmup_s: float
    wall_s: float
    user_s: float
    system_s: float
    epoch_s: float


def sample(
    execute: Execute, rule: StoppingRule, clock: Clock, report: Report, before_each: Callable[[], None] = lambda: None
) -> Samples:
    """Time `execute` until `rule` is met; at least one sample is taken, however long it lasts.

    `report` and, right before each one (warm-up included), `before_each` are called between samples, never inside.
    """
    return _Sampler(execute, rule, clock, report, before_each).run()


class _Sampler:
    def __init__(
        self, execute: Execute, rule: StoppingRule, clock: Clock, report: Report, before_each: Callable[[], None]
    ) -> None:
        self._execute, self._rule, self._clock, self._report = execute, rule, clock, report
        self._before_each = before_each
        self._begin_s = clock.now_s()
        self._warmup: list[Reading] = []
        self._taken: list[Reading] = []

    def run(self) -> Samples:
        self._report(0, self._rule.min_samples)
        self._calibrate()
        settled = self._warm_up()
        reason = self._until_ended()
        for _ in range(LATE_CUTS):
            if reason != "target" or not self._cut_late_warm_up():
                break
            reason = self._until_ended()
        return self._samples(reason, steady=settled and self._change(DRIFT_P) is None)

    def _until_ended(self) -> StoppedBecause:
        self._report(len(self._taken), self._expected())
        while (reason := self._ended()) is None:
            self._take()
            self._report(len(self._taken), self._expected())
        return reason

    def _calibrate(self) -> None:
        """Find how many executions make one sample; the last reading is long enough and counts as the first sample."""
        reading = self._read(1)
        while reading.duration_s < self._rule.min_sample_s and reading.executions < MAX_EXECUTIONS:
            self._warmup.append(reading)
            reading = self._read(self._longer(reading))
        self._taken.append(reading)

    def _longer(self, reading: Reading) -> int:
        """How many executions should last `min_sample_s`, one more than now at least and ten times as many at most."""
        wanted = reading.executions * MAX_GROWTH
        if reading.duration_s > 0:
            wanted = math.ceil(self._rule.min_sample_s * MARGIN / reading.per_execution_s)
        return max(reading.executions + 1, min(wanted, reading.executions * MAX_GROWTH))

    def _warm_up(self) -> bool:
        """Move warm-up apart until a block of samples is steady; false if half of `max_s` was not enough for that.

        A rule of fewer samples than two windows can't know.
        """
        if self._rule.max_samples < 2 * WINDOW:
            return False
        block = max(2 * WINDOW, min(PLATEAU_BLOCK, self._rule.min_samples))
        if not self._take_until(self._windows_agree):
            return False
        self._cut(len(self._taken) - 2 * WINDOW)
        while self._take_until(lambda: len(self._taken) >= block):
            change = self._change(PLATEAU_P)
            if change is None:
                return True
            self._cut(change)
            self._lengthened()
        return False

    def _cut_late_warm_up(self) -> bool:
        """False where there is none, or no time for as many samples again."""
        change = self._change(LATE_P, LATE_SHARE) if self._elapsed_s() < self._rule.max_s / 2 else None
        if change is None:
            return False
        self._cut(change)
        self._lengthened()
        return True

    def _take_until(self, done: Callable[[], bool]) -> bool:
        while not done():
            if self._elapsed_s() >= self._rule.max_s / 2:
                return False
            self._take()
            self._report(0, self._rule.min_samples)
        return True

    def _cut(self, count: int) -> None:
        self._warmup += self._taken[:count]
        self._taken = self._taken[count:]

    def _windows_agree(self) -> bool:
        if len(self._taken) < 2 * WINDOW:
            return False
        if self._lengthened():
            return False
        before, after = self._times()[-2 * WINDOW : -WINDOW], self._times()[-WINDOW:]
        return not (self._shifted(before, after) and separated(before, after, WINDOW_Z))

    def _lengthened(self) -> bool:
        """Whether executions got so much faster while warming up that it starts again, with longer samples."""
        if median([reading.duration_s for reading in self._taken[-WINDOW:]]) >= self._rule.min_sample_s:
            return False
        longer = self._longer(self._taken[-1])
        self._warmup += self._taken
        self._taken = [self._read(longer)]
        return True

    def _ended(self) -> StoppedBecause | None:
        if len(self._taken) >= self._rule.min_samples and self._window_s() >= self._rule.min_s and self._on_target():
            return "target"
        if len(self._taken) >= self._rule.max_samples:
            return "max_samples"
        return "max_s" if self._elapsed_s() >= self._rule.max_s else None

    def _on_target(self) -> bool:
        width = median_interval(self._times()).rel_half_width
        return width is not None and width <= self._rule.target_rel_ci and self._change(DRIFT_P) is None

    def _change(self, significance: float, share: float = 1.0) -> int | None:
        """Where the samples change by more than this share of `steady_rel_ci`, if they do."""
        times = self._times()
        place = change_point(times, significance)
        return place if place is not None and self._shifted(times[:place], times[place:], share) else None

    def _shifted(self, before: list[float], after: list[float], share: float = 1.0) -> bool:
        return abs(median(after) - median(before)) > share * self._rule.steady_rel_ci * median(before)

    def _expected(self) -> int:
        """How many samples it will take at this scatter: an interval narrows with the root of their number."""
        count, rule = len(self._taken), self._rule
        width = median_interval(self._times()).rel_half_width or 0.0
        wider = min(width / rule.target_rel_ci, rule.max_samples)  # times as wide as it may be; no target is too small
        for_target = math.ceil(count * wider**2)
        for_time = math.ceil(rule.min_s / max(self._window_s() / count, 1e-9))
        return max(count, min(rule.max_samples, max(rule.min_samples, for_target, for_time)))

    def _take(self) -> None:
        executions = self._taken[-1].executions
        self._taken.append(self._read(executions))

    def _read(self, executions: int) -> Reading:
        self._before_each()
        start = Instant.now(self._clock)
        self._execute(executions)
        return Reading(start, Instant.now(self._clock), executions)

    def _times(self) -> list[float]:
        return [reading.per_execution_s for reading in self._taken]

    def _elapsed_s(self) -> float:
        return self._clock.now_s() - self._begin_s

    def _window_s(self) -> float:
        return self._taken[-1].end.now_s - self._taken[0].start.now_s

    def _samples(self, reason: StoppedBecause, *, steady: bool) -> Samples:
        first, last = self._taken[0].start, self._taken[-1].end
        return Samples(
            warmup=[reading.per_execution_s for reading in self._warmup],
            samples=self._times(),
            executions_per_sample=self._taken[-1].executions,
            steady=steady,
            stopped_because=reason,
            sample_cpu_s=[(r.end.user_s - r.start.user_s, r.end.system_s - r.start.system_s) for r in self._taken],
            warmup_s=first.now_s - self._begin_s,
            wall_s=last.now_s - first.now_s,
            user_s=last.user_s - first.user_s,
            system_s=last.system_s - first.system_s,
            epoch_s=last.epoch_s - first.epoch_s,
        )
