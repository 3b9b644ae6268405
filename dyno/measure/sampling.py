"""One run's samples: how many executions make one, when warm-up is over, when it is enough.

Warm-up is found, not guessed. The last two windows of five samples are compared at every step: they agree when
Mann & Whitney's U keeps them together (two-sided 5 %) or their medians differ by no more than the target. All before
two agreeing windows is warm-up; it is kept apart. A drift that this can't see, because it is slow, is looked for once
more over all samples, first half against second half. Both look at the order of samples, not at their spread, so
that a noisy run may still be steady; a coefficient of variation (Georges et al. 2007, 3.2.2) can't tell the two apart.
Automated, for want of a person to look at each plot as Kalibera & Jones (2013), section 4, would have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dyno.measure.clock import Clock
from dyno.measure.statistics import median, median_interval, separated
from dyno.spec import DeviceKind, Measure

StoppedBecause = Literal["target", "max_samples", "max_s"]
Execute = Callable[[int], None]  # execute so often, then drain the device
Report = Callable[[int, int | None], None]  # samples taken, samples expected

WINDOW = 5
# U <= 2 of 25 is the tabled two-sided 5 % limit for 5 against 5: |2 - 12.5| / 4.787 = 2.19, while U = 3 gives 1.98.
WINDOW_Z = 2.1
# One in a thousand: five runs of a steady job raise a false alarm once in two hundred.
DRIFT_Z = 3.29
MAX_SAMPLES = 200
MIN_FOR_INTERVAL = 6  # fewer samples give no 95 % interval of a median
MAX_GROWTH = 10  # of the executions per sample in one step: a first reading may be a thousand times too slow
MAX_EXECUTIONS = 10**9  # an execution of nothing never fills a sample
MARGIN = 1.1  # aims above the least length, so that the fastest samples keep it too


@dataclass(frozen=True)
class StoppingRule:
    """When sampling may stop. Times in seconds; `target_rel_ci` is the median's relative half-width."""

    min_samples: int = 20
    min_s: float = 2.0
    max_s: float = 60.0
    target_rel_ci: float = 0.01
    min_sample_s: float = 0.1
    max_samples: int = MAX_SAMPLES

    @classmethod
    def of(cls, measure: Measure, kind: DeviceKind) -> StoppingRule:
        """The method's rule for a device of `kind`, with what the caller asked for.

        Who asks for fewer samples than an interval needs gets just these, and they get short enough for `max_s`.
        """
        longest_s = measure.max_s / measure.min_samples
        return cls(
            min_samples=measure.min_samples,
            min_s=measure.min_s,
            max_s=measure.max_s,
            target_rel_ci=measure.target_rel_ci,
            min_sample_s=min(0.1 if kind == "cpu" else 0.05, longest_s),
            max_samples=MAX_SAMPLES if measure.min_samples >= MIN_FOR_INTERVAL else measure.min_samples,
        )


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


@dataclass(frozen=True)
class _Instant:
    now_s: float
    epoch_s: float
    user_s: float
    system_s: float


@dataclass(frozen=True)
class _Reading:
    start: _Instant
    end: _Instant
    executions: int

    @property
    def duration_s(self) -> float:
        return self.end.now_s - self.start.now_s

    @property
    def per_execution_s(self) -> float:
        return self.duration_s / self.executions


def sample(execute: Execute, rule: StoppingRule, clock: Clock, report: Report) -> Samples:
    """Time `execute` until `rule` is met; at least one sample is taken, however long it lasts.

    `report` is called between samples, never inside one.
    """
    return _Sampler(execute, rule, clock, report).run()


class _Sampler:
    def __init__(self, execute: Execute, rule: StoppingRule, clock: Clock, report: Report) -> None:
        self._execute, self._rule, self._clock, self._report = execute, rule, clock, report
        self._begin_s = clock.now_s()
        self._warmup: list[_Reading] = []
        self._taken: list[_Reading] = []

    def run(self) -> Samples:
        self._report(0, self._rule.min_samples)
        self._calibrate()
        settled = self._warm_up()
        while (reason := self._ended()) is None:
            self._take()
            self._report(len(self._taken), self._expected())
        return self._samples(reason, steady=settled and not self._drifts())

    def _calibrate(self) -> None:
        """Find how many executions make one sample; the last reading is long enough and counts as the first sample."""
        reading = self._read(1)
        while reading.duration_s < self._rule.min_sample_s and reading.executions < MAX_EXECUTIONS:
            self._warmup.append(reading)
            reading = self._read(self._longer(reading))
        self._taken.append(reading)

    def _longer(self, reading: _Reading) -> int:
        """How many executions should last `min_sample_s`, one more than now at least and ten times as many at most."""
        wanted = reading.executions * MAX_GROWTH
        if reading.duration_s > 0:
            wanted = math.ceil(self._rule.min_sample_s * MARGIN / reading.per_execution_s)
        return max(reading.executions + 1, min(wanted, reading.executions * MAX_GROWTH))

    def _warm_up(self) -> bool:
        """Take samples until the last two windows agree; false if half of `max_s` was not enough for that.

        What came before the two windows moves to the warm-up. A rule of fewer samples than two windows can't know.
        """
        if self._rule.max_samples < 2 * WINDOW:
            return False
        while not self._windows_agree():
            if self._elapsed_s() >= self._rule.max_s / 2:
                return False
            self._take()
            self._report(0, self._rule.min_samples)
        self._warmup += self._taken[: -2 * WINDOW]
        self._taken = self._taken[-2 * WINDOW :]
        return True

    def _windows_agree(self) -> bool:
        if len(self._taken) < 2 * WINDOW:
            return False
        if median([reading.duration_s for reading in self._taken[-WINDOW:]]) < self._rule.min_sample_s:
            self._rescale()
            return False
        times = self._times()
        return not self._apart(times[-2 * WINDOW : -WINDOW], times[-WINDOW:], WINDOW_Z)

    def _rescale(self) -> None:
        """Executions got faster while warming up: start again with longer samples."""
        longer = self._longer(self._taken[-1])
        self._warmup += self._taken
        self._taken = [self._read(longer)]

    def _ended(self) -> StoppedBecause | None:
        if len(self._taken) >= self._rule.min_samples and self._window_s() >= self._rule.min_s and self._on_target():
            return "target"
        if len(self._taken) >= self._rule.max_samples:
            return "max_samples"
        return "max_s" if self._elapsed_s() >= self._rule.max_s else None

    def _on_target(self) -> bool:
        width = median_interval(self._times()).rel_half_width
        return width is not None and width <= self._rule.target_rel_ci and not self._drifts()

    def _drifts(self) -> bool:
        times = self._times()
        half = len(times) // 2
        return half >= WINDOW and self._apart(times[:half], times[-half:], DRIFT_Z)

    def _apart(self, before: list[float], after: list[float], z_limit: float) -> bool:
        shift = abs(median(after) - median(before))
        return shift > self._rule.target_rel_ci * median(before) and separated(before, after, z_limit)

    def _expected(self) -> int:
        """How many samples it will take at this scatter: an interval narrows with the root of their number."""
        count, rule = len(self._taken), self._rule
        width = median_interval(self._times()).rel_half_width or 0.0
        for_target = math.ceil(count * (width / rule.target_rel_ci) ** 2)
        for_time = math.ceil(rule.min_s / max(self._window_s() / count, 1e-9))
        return max(count, min(rule.max_samples, max(rule.min_samples, for_target, for_time)))

    def _take(self) -> None:
        executions = self._taken[-1].executions
        self._taken.append(self._read(executions))

    def _read(self, executions: int) -> _Reading:
        start = self._instant()
        self._execute(executions)
        return _Reading(start, self._instant(), executions)

    def _instant(self) -> _Instant:
        return _Instant(self._clock.now_s(), self._clock.epoch_s(), *self._clock.cpu_s())

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
