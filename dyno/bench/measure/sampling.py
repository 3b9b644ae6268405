"""Sample one run: clocks, executions per sample, warm-up detection and the run's summary.

The sampler detects warm-up in two steps. First, gradual warm-up: after each sample, it compares the last two windows of
five samples. The windows agree if Mann & Whitney's U doesn't separate them (two-sided 5.6 %), or if their medians
differ by at most `steady_rel_ci` (the target, but at most 2 %). Second, plateaus: from these windows on, Pettitt's test
searches the first samples (20, or fewer if the rule requires fewer) for a change point. Samples before the agreeing
windows, or before a change point, are warm-up and are kept separately.

Once the target is met, a sharper test searches all samples again, because many samples reveal changes that windows of
five can't separate from noise. Up to three times, samples before such a change also become warm-up and sampling
continues. If the samples then still change by more than the target, they are kept, and the run reports no steady state.

If the run has a share of a budget, only the windows are compared. If they don't agree before the share's time is over,
the last ten samples are used. For fewer than ten samples, `dyno.bench.measure.stability` checks all runs together.

All tests compare ranks or medians of samples, not their spread, so a noisy run may still be steady. A coefficient of
variation (Georges et al. 2007, 3.2.2) can't separate noise from warm-up. Change points replace the manual inspection of
plots in Kalibera & Jones (2013), section 4. Barrett et al. (2017) also detect warm-up by change points.

`Clock` is a protocol, so that tests can supply the time.
"""

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from dyno.bench.measure.statistics import change_point, mad, median, median_interval, quartiles, separated
from dyno.bench.measure.stopping_rule import StoppingRule, least_samples
from dyno.models.result import CoreShares, Cpu, Phases, RunSummary, Sensors


class Clock(Protocol):
    def now_s(self) -> float:
        """Monotonic seconds from an arbitrary zero: for durations."""

    def epoch_s(self) -> float:
        """Wall clock, seconds since 1970. It may jump, so use its differences only to check `now_s`."""

    def cpu_s(self) -> tuple[float, float]:
        """(user, system) processor seconds of this process so far, over all its threads and its ended children.

        A framework's compiler may be a child process: XLA runs NVIDIA's ptxas. All time of a child is added when the
        child ends.
        """


class HostClock:
    """The clock of this host. On Linux, `perf_counter` reads CLOCK_MONOTONIC: 1 ns resolution, about 50 ns per call."""

    def now_s(self) -> float:
        return time.perf_counter()

    def epoch_s(self) -> float:
        return time.time()

    def cpu_s(self) -> tuple[float, float]:
        process, children = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return process.ru_utime + children.ru_utime, process.ru_stime + children.ru_stime


@dataclass(frozen=True)
class ClockReading:
    """A reading of all clocks of one process: monotonic, wall and processor time."""

    now_s: float
    epoch_s: float
    user_s: float
    system_s: float

    @classmethod
    def now(cls, clock: Clock) -> Self:
        return cls(clock.now_s(), clock.epoch_s(), *clock.cpu_s())


@dataclass(frozen=True)
class TimedSample:
    """A number of executions between two readings of the clocks."""

    start: ClockReading
    end: ClockReading
    executions: int

    @property
    def duration_s(self) -> float:
        return self.end.now_s - self.start.now_s

    @property
    def per_execution_s(self) -> float:
        """Rounded to 12 digits: further digits are rounding errors, and would double the size of a stored record."""
        return float(f"{self.duration_s / self.executions:.12g}")


StoppedBecause = Literal["target", "max_samples", "max_s", "budget"]
Execute = Callable[[int], None]  # executes this number of times, then drains the device
Report = Callable[[int, int | None], None]  # samples taken, samples expected

WINDOW = 5
# Between z = 1.98 (U = 3) and z = 1.78 (U = 4), where z = |U - 12.5| / 4.787. For windows of five, U <= 3 has a chance
# of 5.6 % (tables of U).
WINDOW_Z = 1.9
PLATEAU_BLOCK = 20
PLATEAU_P = 0.01
# The search for late warm-up removes a third to two thirds of the error that a gradual warm-up leaves in a value
# (docs/results/coverage.md).
LATE_P, LATE_SHARE, LATE_CUTS = 0.05, 0.25, 3  # the share is of `steady_rel_ci`
MOST_RESETS = 2  # maximum restarts with longer samples once the run's share of the budget is used up
# One in a thousand: on average, one in 200 jobs of five steady runs has a false alarm.
DRIFT_P = 0.001
MAX_GROWTH = 10  # times the executions per sample, in one step: a first reading may be a thousand times too slow
PREDICTING_SHARE = 0.05  # a reading of at least this share of the minimum length predicts the executions per sample
MAX_EXECUTIONS = 10**9  # a bound for empty work, which never fills a sample
MARGIN = 1.1  # times the minimum length: the intended length, so that even the fastest samples reach the minimum


@dataclass(frozen=True)
class SamplingResult:
    """The result of `sample`. `warmup` and `samples` are seconds per execution in the order they were taken.

    `sample_cpu_s` holds (user, system) processor seconds of each whole sample. `wall_s` is the time from the first
    sample's start to the last sample's end, and `epoch_s` is the same time by the wall clock, for CLOCK_SKEW.
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
) -> SamplingResult:
    """Time `execute` until `rule` is met. At least one sample is taken, however long it lasts.

    `report` is called between samples, and `before_each` right before each sample, warm-up included. Neither is called
    inside a sample.
    """
    return _Sampler(execute, rule, clock, report, before_each).run()


class _Sampler:
    def __init__(
        self, execute: Execute, rule: StoppingRule, clock: Clock, report: Report, before_each: Callable[[], None]
    ) -> None:
        self._execute, self._rule, self._clock, self._report = execute, rule, clock, report
        self._before_each = before_each
        self._begin_s = clock.now_s()
        self._warmup: list[TimedSample] = []
        self._taken: list[TimedSample] = []

    def run(self) -> SamplingResult:
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
        """Find the number of executions per sample. The last reading is long enough and becomes the first sample."""
        reading = self._read(1)
        while reading.duration_s < self._rule.min_sample_s and reading.executions < MAX_EXECUTIONS:
            self._warmup.append(reading)
            reading = self._read(self._longer(reading))
        self._taken.append(reading)

    def _longer(self, reading: TimedSample) -> int:
        """The number of executions that should take `min_sample_s`; at least one more than in `reading`. If `reading`
        is too short to predict the number, it is at most ten times the number in `reading`.
        """
        limit = predicted = reading.executions * MAX_GROWTH
        if reading.duration_s > 0:
            predicted = math.ceil(self._rule.min_sample_s * MARGIN / reading.per_execution_s)
        if reading.duration_s >= PREDICTING_SHARE * self._rule.min_sample_s:
            limit = predicted
        return max(reading.executions + 1, min(predicted, limit))

    def _warm_up(self) -> bool:
        """Separate warm-up until a block of samples is steady. False if half of `max_s` is too short.

        Also False if the rule allows fewer samples than two windows: too few for a decision.
        """
        if self._rule.is_divided:
            return self._warm_up_within_share()
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

    def _warm_up_within_share(self) -> bool:
        """Like `_warm_up`, within the run's share of the budget. Also True with too few samples for a decision."""
        resets = 0
        while not (agree := self._windows_agree()):
            if self._share_is_over():
                if resets == MOST_RESETS or not self._lengthened():
                    break
                resets += 1
            self._take()
            self._report(0, self._rule.max_samples)
        surplus = len(self._taken) - 2 * WINDOW
        if surplus > 0:
            self._cut(surplus)
        return agree or surplus < 0

    def _cut_late_warm_up(self) -> bool:
        """Separate late warm-up. False without late warm-up, or with too little time to take as many samples again."""
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
        """Whether executions became so fast that samples are too short; if so, restart warm-up with longer samples."""
        if median([reading.duration_s for reading in self._taken[-WINDOW:]]) >= self._rule.min_sample_s:
            return False
        longer = self._longer(self._taken[-1])
        self._warmup += self._taken
        self._taken = [self._read(longer)]
        return True

    def _ended(self) -> StoppedBecause | None:
        if self._rule.is_divided:
            return self._share_ended()
        if len(self._taken) >= self._rule.min_samples and self._window_s() >= self._rule.min_s and self._on_target():
            return "target"
        if len(self._taken) >= self._rule.max_samples:
            return "max_samples"
        return "max_s" if self._elapsed_s() >= self._rule.max_s else None

    def _share_ended(self) -> StoppedBecause | None:
        if len(self._taken) >= self._rule.max_samples:
            return "max_samples"
        return "budget" if self._share_is_over() else None

    def _share_is_over(self) -> bool:
        """Whether the share's time is over and the run has the required minimum of samples."""
        required = least_samples(median([reading.duration_s for reading in self._taken]))
        return self._elapsed_s() >= self._rule.max_s and len(self._taken) >= required

    def _on_target(self) -> bool:
        width = median_interval(self._times()).rel_half_width
        return width is not None and width <= self._rule.target_rel_ci and self._change(DRIFT_P) is None

    def _change(self, significance: float, share: float = 1.0) -> int | None:
        """The index of the first sample after a change of more than `share` times `steady_rel_ci`, or None."""
        times = self._times()
        change = change_point(times, significance)
        return change if change is not None and self._shifted(times[:change], times[change:], share) else None

    def _shifted(self, before: list[float], after: list[float], share: float = 1.0) -> bool:
        return abs(median(after) - median(before)) > share * self._rule.steady_rel_ci * median(before)

    def _expected(self) -> int:
        """The expected number of samples at this scatter, at most as many as fit into `max_s`.

        The interval narrows with the square root of the number of samples.
        """
        count, rule = len(self._taken), self._rule
        if rule.is_divided:
            return rule.max_samples
        sample_s = max(self._window_s() / count, 1e-9)
        width = median_interval(self._times()).rel_half_width or 0.0
        wider = min(width / rule.target_rel_ci, rule.max_samples)  # bounded, because targets may be tiny
        for_target = math.ceil(count * wider**2)
        for_time = math.ceil(rule.min_s / sample_s)
        limit = min(rule.max_samples, count + math.ceil(max(0.0, rule.max_s - self._elapsed_s()) / sample_s))
        return max(count, min(limit, max(rule.min_samples, for_target, for_time)))

    def _take(self) -> None:
        executions = self._taken[-1].executions
        self._taken.append(self._read(executions))

    def _read(self, executions: int) -> TimedSample:
        self._before_each()
        start = ClockReading.now(self._clock)
        self._execute(executions)
        return TimedSample(start, ClockReading.now(self._clock), executions)

    def _times(self) -> list[float]:
        return [reading.per_execution_s for reading in self._taken]

    def _elapsed_s(self) -> float:
        return self._clock.now_s() - self._begin_s

    def _window_s(self) -> float:
        return self._taken[-1].end.now_s - self._taken[0].start.now_s

    def _samples(self, reason: StoppedBecause, *, steady: bool) -> SamplingResult:
        first, last = self._taken[0].start, self._taken[-1].end
        return SamplingResult(
            warmup=[reading.per_execution_s for reading in self._warmup],
            samples=self._times(),
            executions_per_sample=self._taken[-1].executions,
            steady=steady,
            stopped_because=reason,
            sample_cpu_s=[
                (round(r.end.user_s - r.start.user_s, 9), round(r.end.system_s - r.start.system_s, 9))
                for r in self._taken  # the kernel counts µs; further digits are rounding errors, a fifth of the record
            ],
            warmup_s=first.now_s - self._begin_s,
            wall_s=last.now_s - first.now_s,
            user_s=last.user_s - first.user_s,
            system_s=last.system_s - first.system_s,
            epoch_s=last.epoch_s - first.epoch_s,
        )


def summarise(
    samples: SamplingResult,
    *,
    process_start: Literal["forked", "spawned"],
    pid: int,
    phases: Phases,
    started_at_s: float,
    first_op_at_s: float | None = None,
    clock_hz: float | None = None,
    sensors: Sensors | None = None,
    core_shares: CoreShares | None = None,
) -> RunSummary:
    """The summary of one run; times are seconds per execution. Adds `warmup_s` and `steady_s` to `phases`."""
    interval = median_interval(samples.samples)
    first, third = quartiles(samples.samples)
    return RunSummary(
        process_start=process_start,
        pid=pid,
        median=interval.value,
        low=interval.low,
        high=interval.high,
        q1=first,
        q3=third,
        min=min(samples.samples),
        max=max(samples.samples),
        mad=mad(samples.samples),
        samples=len(samples.samples),
        executions_per_sample=samples.executions_per_sample,
        warmup_samples=len(samples.warmup),
        steady=samples.steady,
        stopped_because=samples.stopped_because,
        phases=phases.model_copy(update={"warmup_s": samples.warmup_s, "steady_s": samples.wall_s}),
        cpu=Cpu(wall_s=samples.wall_s, user_s=samples.user_s, system_s=samples.system_s),
        core_shares=core_shares,
        clock_hz=clock_hz,
        sensors=sensors,
        started_at_s=started_at_s,
        first_op_at_s=first_op_at_s,
    )
