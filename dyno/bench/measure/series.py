"""Estimate how much results of the same work scatter, predict the next result, and adjust figures to one clock.

`repeat` and METRIC_OUT_OF_BAND (`dyno.bench.measure.peers`), baselines, comparisons and history use this module.
Figures are compared as logarithms, so a rate and its inverse agree, and no bound is below zero.

*Scatter.* A result has two sources of variance, as in ISO 5725-2: between the runs of one job (repeatability), and
between jobs. A one-way random-effects model gives the variance between jobs: the variance of the jobs' values, minus
the part from repeatability (7.4). One result's variance is a weighted mean of the measured variance and of an allowance
with the weight of `ALLOWANCE_JOBS` jobs. The allowance makes a single job's half-width t s sqrt(1 + 1/n), so
that the interval contains one further run (Hahn & Meeker 1991, Statistical Intervals, 4.7). If jobs didn't differ, the
half-width t s sqrt(2/n) would suffice for the mean of n further runs. The rest allows for changes between jobs.

*Strays.* One outlier must not make the interval useless: a single result that was off by a factor of 20 gave an
interval from 1e-6 to 1e6 times the value. A job that is further than STRAY from the median of all jobs is left out,
unless more than one job in ten is that far away (`counting`). The deviation of a job's runs is limited (`WILD`).

*The clock* is a covariate: it explains a part of the scatter. A rate is proportional to clock^elasticity. The
elasticity is 1 if arithmetic bounds the work, and less if memory, input or the framework does. On a host whose clock
wandered from 3.56 to 4.02 GHz between six jobs, `matmul` varied by 3.7 %, and by 1.0 % after an adjustment with an
elasticity of 0.89. `mnist_cnn`'s time per sample varied by 2.1 %, and by 1.0 % after an adjustment with -0.42. The
elasticity of a series is the slope of its log figures over its log clocks, by ridge regression towards an assumed value
(Hoerl & Kennard 1970, Technometrics 12). The assumed value weighs as much as `ASSUMED_JOBS` jobs whose clocks deviate
by `ASSUMED_DEVIATION`. So jobs whose clocks hardly differ hardly change the assumed value, and their figures are hardly
adjusted either. Errors of measured clocks flatten the slope, so adjustments are too small rather than too large.

Only figures of the same work on equal CPUs are adjusted. On other devices, the work may change the clock: a GPU under a
power limit lowers its clock for some work, so the clock is a part of the figure. A TPU's clock is a part of the figure,
too, since no sensor reports it. The clocks of two results may differ by at most LARGEST_CHANGE. Clocks of a shared host
wandered by 9 to 13 % within an hour, and equal devices differ by 8 %. A larger step has its own cause, such as heat, a
power limit or a governor: the device is really slower. An adjustment would hide this, so Dyno raises CLOCK_CHANGED.

*Intervals.* The difference between the next result and the last one (`PeerSeries.half_width`) has twice the variance of
one result (the reproducibility limit of ISO 5725-6, 4.1). This includes the clocks' variance. An interval around
the mean of all jobs would be narrower, but jobs of one hour resemble each other. The ratio of two results
(`ratio_interval`) has the sum of their variances. The band for results of equal devices (`robust_band`) uses the median
and the median absolute deviation instead, so a few bad results or a second mode don't widen it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low
from typing import Any, NamedTuple, Self

from dyno.bench.measure import statistics
from dyno.bench.measure.statistics import median, student_t
from dyno.bench.measure.warnings import warning
from dyno.models.result import BasedOn, Metric, Peer, Repeat, Result, ResultSummary, ResultWarning

# With two jobs, the interval contains 90 % of the next results even if jobs differ far more than runs (tests).
ALLOWANCE_JOBS = 2
STRAY = 0.5  # twice USEFUL, so that workloads whose jobs deviate by 10 % keep all their jobs
MODE = 0.1  # strays are a second mode if they are more than this share of the jobs, and more than one
WILD = 3.0
USEFUL = 0.25  # the largest half-width of a prediction: users search for changes of 5 to 20 %

COMPUTE_BOUND = 0.3  # from this fraction of peak on, arithmetic is assumed to bound the work (see WEAK_BASELINE)
ASSUMED = 1.0
ASSUMED_ELSEWHERE = 0.5
ASSUMED_JOBS = 4
ASSUMED_DEVIATION = 0.01
ASSUMED_ERROR = 0.3  # the assumed value's standard deviation; a uniform distribution from 0 to 1 has 0.29
LARGEST_CHANGE = 0.1
CLOCK_ERROR = 0.01  # deviation of one run's clock; in recorded jobs, clocks deviated by 0.4 to 1.5 % from run to run
CLOCK_DEVIATION = 0.02  # of the clock from job to job, assumed until a series has enough jobs; recorded: 1.2 to 2.7 %
CLOCK_JOBS = 2
_ASSUMED_SQUARES = ASSUMED_JOBS * ASSUMED_DEVIATION**2

BAND_CONFIDENCE = 0.99
BAND_FLOOR = 0.1  # equal devices differ by 8 %: Sinha et al. 2022, "Not All GPUs Are Created Equal", five clusters
MIN_PEERS = 5
_WIDEST = math.log(1e6)  # keeps every bound finite


@dataclass(frozen=True)
class Elasticity:
    """The relative change of a figure for a relative change of the clock: above zero for rates, below for times.

    `lost_degrees`: the degrees of freedom that its estimation takes from the series, 0 to 1. `error`: the standard
    deviation of `value`.
    """

    value: float
    lost_degrees: float = 0.0
    error: float = ASSUMED_ERROR


def mean_clock_hz(result: Result | ResultSummary) -> float | None:
    """The mean of the runs' clocks; None if the clock of a run is unknown."""
    clocks_hz = [run.clock_hz for run in result.runs if run.clock_hz]
    return fmean(clocks_hz) if clocks_hz and len(clocks_hz) == len(result.runs) else None


def is_adjustable(device: Mapping[str, Any]) -> bool:
    """Whether figures of this device can be adjusted to another clock."""
    return device.get("kind") == "cpu"


def assumed_elasticity(result: Result, better: str | None) -> float:
    """The elasticity to assume for a metric of this direction if there are no earlier results."""
    of_rate = ASSUMED if (result.peak.fraction or 0.0) >= COMPUTE_BOUND else ASSUMED_ELSEWHERE
    return of_rate if better == "higher" else -of_rate


def elasticity(jobs: Sequence[Peer], assumed: float) -> Elasticity:
    """The elasticity of a series, with the sign of `assumed`. All jobs must have clocks."""
    clocks, figures = (
        statistics.centred(statistics.logs(values))
        for values in ([job.clock_hz or 0.0 for job in jobs], [job.value for job in jobs])
    )
    squares = statistics.product(clocks, clocks)
    slope = (assumed * _ASSUMED_SQUARES + statistics.product(clocks, figures)) / (_ASSUMED_SQUARES + squares)
    lowest, highest = min(0.0, math.copysign(1.0, assumed)), max(0.0, math.copysign(1.0, assumed))
    value, learned = min(max(slope, lowest), highest), squares / (_ASSUMED_SQUARES + squares)
    residual = math.fsum((figure - value * clock) ** 2 for clock, figure in zip(clocks, figures, strict=True))
    variance = residual / max(len(jobs) - 1 - learned, 1.0)
    of_slope = learned**2 * variance / squares if squares > 0 else 0.0
    error = math.sqrt(((1 - learned) * ASSUMED_ERROR) ** 2 + of_slope)
    return Elasticity(value, learned, min(error, ASSUMED_ERROR))


def headline_metric(result: Result) -> Metric | None:
    """The first metric that has a figure for each run."""
    return next((metric for metric in result.metrics if metric.by_run), None)


def series_elasticity(result: Result, jobs: Sequence[Peer]) -> Elasticity:
    """The elasticity of the headline figure from these jobs, which all have clocks."""
    headline = headline_metric(result)
    return elasticity(counting(jobs), assumed_elasticity(result, headline.better if headline else None))


def adjusted(job: Peer, to_hz: float | None, by: float | None) -> float:
    """The value at the clock `to_hz`; unchanged if a clock or the elasticity is unknown."""
    return job.value * factor(job.clock_hz, to_hz, by)


def factor(from_hz: float | None, to_hz: float | None, by: float | None) -> float:
    """The factor that turns a figure at `from_hz` into the figure at `to_hz`; 1 if anything is unknown."""
    return (to_hz / from_hz) ** by if from_hz and to_hz and by is not None else 1.0


def has_changed(first_hz: float | None, other_hz: float | None) -> bool:
    """Whether the clocks are known and differ by more than LARGEST_CHANGE."""
    clocks_hz = [hz for hz in (first_hz, other_hz) if hz]
    return len(clocks_hz) == 2 and max(clocks_hz) > (1 + LARGEST_CHANGE) * min(clocks_hz)


class Adjustment(NamedTuple):
    """The factor that turns a figure into the figure at another clock, and the variance that its logarithm gains."""

    factor: float = 1.0
    log_variance: float = 0.0


def adjustment(
    from_hz: float | None, to_hz: float | None, runs: tuple[int, int], by: Elasticity, device: Mapping[str, Any]
) -> Adjustment | None:
    """The adjustment; None if a clock is unknown or part of the figure, or if the clocks differ too much.

    The variance is log(to / from)² times the variance of the elasticity, plus elasticity² times the variance of the
    clocks. `runs`: the number of runs of each result.
    """
    if not from_hz or not to_hz or has_changed(from_hz, to_hz) or not is_adjustable(device):
        return None
    of_clocks = CLOCK_ERROR**2 * math.fsum(1 / max(count, 1) for count in runs)
    variance = math.log(to_hz / from_hz) ** 2 * by.error**2 + by.value**2 * of_clocks
    return Adjustment(factor(from_hz, to_hz, by.value), variance)


def clock_changed(changed: Sequence[tuple[str, float]], base: str, base_hz: float) -> ResultWarning:
    """CLOCK_CHANGED. `changed`: names and clocks of the results whose clocks are far from the clock of `base`."""
    ran = ", ".join(f"{name} ran at {hz / 1e9:.2f} GHz" for name, hz in changed)
    return warning(
        "CLOCK_CHANGED",
        f"{ran}, and {base} at {base_hz / 1e9:.2f} GHz. The ratio is as measured.",
        jobs=[name for name, _ in changed],
        clocks_hz=[base_hz, *(hz for _, hz in changed)],
    )


def same_conditions(own: Peer, peer: Peer) -> bool:
    """Whether `peer` has the same hardware and software, and has a clock if `own` has a clock."""
    alike = (peer.hardware_id, peer.context_id) == (own.hardware_id, own.context_id)
    return alike and peer.value > 0 and (bool(peer.clock_hz) or not own.clock_hz)


def counting(jobs: Sequence[Peer], clock_hz: float | None = None, slope: float = 0.0) -> list[Peer]:
    """The jobs that are used to estimate how much jobs differ, chosen by their values at the clock `clock_hz`.

    A job that is further than STRAY from the median of all jobs had another condition and is left out. If there are two
    jobs and they are too far apart, both are left out. But if several jobs, more than MODE of all, are that far away,
    they are a second mode, and all jobs are used.
    """
    logs = _logs_at_clock(jobs, clock_hz, slope)
    near = [job for job, log in zip(jobs, logs, strict=True) if abs(log - median(logs)) <= math.log1p(STRAY)]
    has_modes = len(jobs) > 2 and len(jobs) - len(near) > max(1.0, MODE * len(jobs))
    return list(jobs) if has_modes else near


def _logs_at_clock(jobs: Sequence[Peer], clock_hz: float | None, slope: float) -> list[float]:
    return statistics.logs([adjusted(job, clock_hz, slope) for job in jobs])


@dataclass(frozen=True)
class ResultScatter:
    """How much one result scatters: the variance of its logarithm, and the degrees of freedom of that variance."""

    variance: float
    degrees: float


@dataclass(frozen=True)
class PeerSeries:
    """A result, `own`, and `earlier` results under the same conditions.

    With `of_clock`, all results have clocks and are compared at the clock of `own`.
    """

    own: Peer
    earlier: Sequence[Peer] = ()
    of_clock: Elasticity | None = None

    @classmethod
    def of(cls, result: Result, own: Peer, peers: Sequence[Peer]) -> Self:
        """The series of `own` (the headline figure of `result`) and of the `peers` under the same conditions.

        The clock is used unless it is unknown or a part of the figure.
        """
        earlier = [peer for peer in peers if same_conditions(own, peer)]
        is_clocked = own.clock_hz and is_adjustable(result.device)
        return cls(own, earlier, series_elasticity(result, [own, *earlier]) if is_clocked else None)

    @property
    def is_stray(self) -> bool:
        """Whether the own result is so far from the earlier results that it can't predict the next result."""
        slope = self.of_clock.value if self.of_clock else 0.0
        return not any(job is self.own for job in counting([self.own, *self.earlier], self.own.clock_hz, slope))

    def scatter(self, *, own_counts: bool = True) -> ResultScatter | None:
        """The scatter of the own result; None if it can't be estimated.

        Without `own_counts`, only the earlier results are used to estimate how much jobs differ: the effect of changed
        code isn't scatter.
        """
        own, slope = self.own, self.of_clock or Elasticity(0.0)
        shown_by = counting([own, *self.earlier] if own_counts else self.earlier, own.clock_hz, slope.value)
        runs = [job.runs or 1 for job in shown_by]  # a figure taken once has no runs
        squares = statistics.squares(_logs_at_clock(shown_by, own.clock_hz, slope.value))
        between_degrees = max(0.0, len(shown_by) - 1 - slope.lost_degrees)
        within, within_degrees = _repeatability([own, *self.earlier])
        if within_degrees == 0:
            return None if between_degrees < 1 else ResultScatter(squares / between_degrees, between_degrees)
        own_runs = own.runs or 1
        allowance = within * (1 + 1 / own_runs) / 2
        explained = between_degrees * within * fmean(1 / count for count in runs) if runs else 0.0
        between = max(0.0, squares - explained) + between_degrees * within / own_runs
        shares = [weighted / (ALLOWANCE_JOBS + between_degrees) for weighted in (ALLOWANCE_JOBS * allowance, between)]
        degrees = statistics.satterthwaite(shares, [within_degrees, max(1.0, between_degrees)])
        return ResultScatter(math.fsum(shares), degrees or within_degrees)

    def half_width(self) -> float | None:
        """The half-width of the next result's interval, in logarithms; None if the scatter can't be estimated.

        The next result has another clock, so the interval includes the clocks' variance, times the square of the
        elasticity. Without this variance, the interval contained 79 % of 38 recorded next values, which weren't
        adjusted. The assumed CLOCK_DEVIATION has the weight of CLOCK_JOBS jobs.
        """
        scatter = self.scatter()
        if scatter is None:
            return None
        if self.of_clock is None:
            return student_t(scatter.degrees) * math.sqrt(2 * scatter.variance)
        clocks = statistics.logs([job.clock_hz for job in (self.own, *self.earlier) if job.clock_hz])
        clock_degrees = CLOCK_JOBS + len(clocks) - 1
        of_clocks = CLOCK_JOBS * CLOCK_DEVIATION**2 + statistics.squares(clocks)
        shares = [scatter.variance, self.of_clock.value**2 * of_clocks / clock_degrees]
        degrees = statistics.satterthwaite(shares, [scatter.degrees, clock_degrees])
        return student_t(degrees or scatter.degrees) * math.sqrt(2 * math.fsum(shares))


def _repeatability(jobs: Sequence[Peer]) -> tuple[float, int]:
    """The variance between the runs of one job, and its degrees of freedom; zero degrees if unknown.

    The variance is pooled over the jobs, but at least the variance of the first job: if its runs scatter more, its
    value is less certain. The deviation of a job is limited to WILD times the deviation of the median job.
    """
    pairs = [(job.runs - 1, job.scatter**2) for job in jobs if job.scatter is not None and job.runs > 1]
    degrees = sum(count for count, _ in pairs)
    middle = median_low([variance for _, variance in pairs]) if pairs else 0.0
    limit = WILD**2 * middle or math.inf  # no limit if the median job's runs have equal figures
    pooled = math.fsum(count * min(variance, limit) for count, variance in pairs) / degrees if degrees else 0.0
    return max(pooled, (jobs[0].scatter or 0.0) ** 2), degrees


def log_deviation(figures: Sequence[float]) -> float | None:
    """The standard deviation of the logarithms; None for a single figure, or if a figure isn't above zero."""
    return statistics.deviation(statistics.logs(figures)) if len(figures) > 1 and min(figures) > 0 else None


class Band(NamedTuple):
    """Bounds around `centre`."""

    low: float
    centre: float
    high: float


def around(centre: float, half: float) -> Band:
    """The band whose half-width in logarithms is `half`; its bounds are finite."""
    factor = math.exp(min(half, _WIDEST))
    return Band(centre / factor, centre, centre * factor)


def from_runs(value: float, figures: Sequence[float]) -> Repeat | None:
    """The prediction around a job's `value`, from the `figures` of its runs alone. None for a single run.

    On recorded series, it contained the next mean of five runs in 92 % of cases; the figure's interval did so in 65 %.
    """
    count = len(figures)
    if count < 2:
        return None
    based_on, scatter = BasedOn(runs=count), log_deviation(figures)
    if scatter is None:  # a figure that is a share may be zero
        half = student_t(count - 1) * statistics.deviation(figures) * math.sqrt(1 + 1 / count)
        return Repeat(low=max(0.0, value - half), high=value + half, based_on=based_on)
    alone = PeerSeries(Peer(job="", value=value, runs=count, scatter=scatter))
    band = around(value, alone.half_width() or 0.0)
    return Repeat(low=band.low, high=band.high, based_on=based_on)


def usable(repeat: Repeat | None) -> dict[str, Any]:
    """The prediction as fields of a metric: null with a reason if it is too wide to be of use.

    Too wide means more than USEFUL on one side.
    """
    if repeat is None or repeat.high <= (1 + USEFUL) ** 2 * repeat.low:
        return {"repeat": repeat, "repeat_reason": None}
    jobs = f" and {repeat.based_on.jobs} earlier results" if repeat.based_on.jobs else ""
    reason = f"not known yet: by {repeat.based_on.runs} runs{jobs}, it could be more than {USEFUL:.0%} away"
    return {"repeat": None, "repeat_reason": reason}


def robust_band(values: Sequence[float]) -> Band:
    """The band around the median of positive `values` that contains a further value with probability BAND_CONFIDENCE.

    Its half-width is the scatter times Student's t, times a factor for the median's own error. The degrees of freedom
    are 37 % of the number of results, the efficiency of the median absolute deviation (`statistics.robust_half_width`).
    With a fixed multiple of that deviation, such as the 3.5 of Iglewicz & Hoaglin (1993), the band of five values would
    contain only seven of eight further normal values. The band is at least BAND_FLOOR wide on either side.

    Raises ValueError for fewer than MIN_PEERS values.
    """
    if len(values) < MIN_PEERS:
        raise ValueError(f"a band needs {MIN_PEERS} values, not {len(values)}")
    logs = statistics.logs(values)
    half = statistics.robust_half_width(logs, BAND_CONFIDENCE)
    return around(math.exp(median(logs)), max(half, math.log1p(BAND_FLOOR)))


def ratio_interval(ratio: float, scatters: Sequence[ResultScatter], log_variance: float) -> Band:
    """The 95 % interval of a ratio of results. Its logarithm has the sum of the results' variances and `log_variance`.

    It is Student's t with Welch's and Satterthwaite's degrees of freedom, but at most the larger of the results'
    degrees, because all results use the same earlier jobs.
    """
    variances, degrees = [of.variance for of in scatters], [of.degrees for of in scatters]
    fitted = statistics.satterthwaite(variances, degrees, known=log_variance)
    t = student_t(1.0 if fitted is None else min(fitted, max(degrees)))
    return around(ratio, t * math.sqrt(math.fsum([*variances, log_variance])))
