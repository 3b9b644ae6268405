"""Predict where the next result of the same spec on this device falls with a probability of 95 %: a metric's `repeat`.

A figure's own interval describes one stretch of time. The next result falls in another stretch, so `repeat` is a
prediction interval. It has two sources of variance, as in ISO 5725-2: repeatability (between the runs of one job), and
the variance between jobs. Figures are compared as logarithms, so a rate and its time agree, and no bound is below zero.

*From the runs alone*, the half-width is Student's t times the deviation between runs times sqrt(1 + 1/n), which holds
one further run (Hahn & Meeker 1991, Statistical Intervals, 4.7). If jobs didn't differ, sqrt(2/n) would hold the mean
of n further runs. The rest is the allowance for changes between jobs. On recorded series, this interval held the next
mean of five runs in 92 % of cases, and the figure's own interval in 65 %.

*With earlier results*, a one-way random-effects model gives the variance between jobs: the variance of the jobs' values
less the part that repeatability explains (ISO 5725-2, 7.4). The variance of one result is a weighted mean of this
variance and of the allowance, which counts as `ALLOWANCE_JOBS` jobs. The degrees of freedom are Satterthwaite's. The
interval describes the difference between two results, 2 variances, around the own value (the reproducibility limit of
ISO 5725-6, 4.1). Around the mean of all jobs it would be narrower, but jobs of one hour resemble each other.

*Strays.* One wild job must not hide what all others show: with a single result 20 times away, the variance made an
interval from 1 / 1e6 to 1e6 times the value. A job further than STRAY from the median of all doesn't count, unless
more than one job in ten is as far away (`counting`). The runs of a wild job count with a bounded deviation.

If clocks are known, all values are adjusted to the clock of this result (`dyno.bench.measure.clock_adjustment`). The
next result has another clock. So the interval adds the variance of the jobs' clocks, times the square of the
elasticity: without it, the interval held 79 % of 38 recorded next values as measured. Until jobs show that variance,
CLOCK_DEVIATION stands for it and counts as CLOCK_JOBS jobs.

*Not known yet.* An interval wider than USEFUL to a side answers no question, and a result that is itself a stray
doesn't show where the next result falls. Neither gets a prediction. No bound is beyond a data sheet's peak. A measured
peak bounds nothing, because it belongs to the clock of one moment.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low
from typing import Any

from dyno.bench.measure import clock_adjustment
from dyno.bench.measure.statistics import median, student_t
from dyno.models.result import BasedOn, Metric, Peer, Repeat, Result

# With two, the interval holds 90 % of the next results even if jobs differ far more than runs (tests).
ALLOWANCE_JOBS = 2
USEFUL = 0.25  # people look for changes of 5 to 20 %
CLOCK_DEVIATION = 0.02  # of clocks from job to job, until jobs show it; recorded jobs deviated by 1.2 to 2.7 %
CLOCK_JOBS = 2
STRAY = 0.5  # twice USEFUL: workloads whose jobs deviate by 10 % need their deviations
MODE = 0.1  # more than this share of the jobs, and more than one job, form a second mode
WILD = 3.0
_WIDEST = math.log(1e6)  # keeps every bound finite


def from_runs(value: float, figures: Sequence[float]) -> Repeat | None:
    """The prediction around a job's `value`, from the `figures` of its runs alone. None for a single run."""
    count = len(figures)
    if count < 2:
        return None
    based_on = BasedOn(runs=count)
    if min(figures) > 0:
        return _around(
            value, half_width(Peer(job="", value=value, runs=count, scatter=log_deviation(figures)), []), based_on
        )
    half = student_t(count - 1) * _deviation(figures) * math.sqrt(1 + 1 / count)  # a share may be zero
    return Repeat(low=max(0.0, value - half), high=value + half, based_on=based_on)


def log_deviation(figures: Sequence[float]) -> float | None:
    """The standard deviation of the logarithms; None for a single figure, or if a figure isn't above zero."""
    if len(figures) < 2 or min(figures) <= 0:
        return None
    return _deviation([math.log(figure) for figure in figures])


def headline_metric(result: Result) -> Metric | None:
    """The first metric that has a figure for each run."""
    return next((metric for metric in result.metrics if metric.by_run), None)


def with_earlier_results(result: Result, own: Peer, peers: Sequence[Peer], sampled: Collection[str]) -> Result:
    """The result with a `repeat` that also uses earlier results: the `peers` on the same hardware and software.

    `own` is the headline figure. `repeat` applies to the `sampled` metrics, which are the same times in other units.
    """
    earlier = [peer for peer in peers if same_conditions(own, peer)]
    of_clock = clock_elasticity(result, own, earlier)
    half = half_width(own, earlier, of_clock)
    if half is None:
        return result
    based_on, peak = BasedOn(runs=own.runs or 1, jobs=len(earlier)), result.peak
    fraction = peak.fraction if peak.provenance == "datasheet" else None
    prediction = _Prediction(half, based_on, own.clock_hz, of_clock, fraction or 0.0, _stray(own, earlier, of_clock))
    metrics = [prediction.of(metric) if metric.name in sampled else metric for metric in result.metrics]
    return result.model_copy(update={"metrics": metrics})


def clock_elasticity(result: Result, own: Peer, earlier: Sequence[Peer]) -> clock_adjustment.Elasticity | None:
    """The elasticity of the headline figure; None if the clock is unknown or a part of the figure."""
    if not own.clock_hz or not clock_adjustment.is_adjustable(result.device):
        return None
    return series_elasticity(result, [own, *earlier])


def series_elasticity(result: Result, jobs: Sequence[Peer]) -> clock_adjustment.Elasticity:
    """The elasticity of the headline figure from these jobs, which all have clocks."""
    assumed, headline = clock_adjustment.assumed_elasticity(result), headline_metric(result)
    is_rate = headline is not None and headline.better == "higher"
    return clock_adjustment.elasticity(counting(jobs), assumed if is_rate else -assumed)


def _stray(own: Peer, earlier: Sequence[Peer], of_clock: clock_adjustment.Elasticity | None) -> str | None:
    """Why the next result isn't near this one; None if it may be."""
    counted = counting([own, *earlier], own.clock_hz, of_clock.value if of_clock else 0.0)
    if any(job is own for job in counted):
        return None
    share = own.value / median([job.value for job in earlier]) - 1
    return f"not known yet: this result is {abs(share):.0%} {'above' if share > 0 else 'below'} the earlier ones"


def usable(repeat: Repeat | None) -> dict[str, Any]:
    """The prediction as fields of a metric: null with a reason if it is too wide to be of use."""
    if repeat is None or repeat.high <= (1 + USEFUL) ** 2 * repeat.low:
        return {"repeat": repeat, "repeat_reason": None}
    jobs = f" and {repeat.based_on.jobs} earlier results" if repeat.based_on.jobs else ""
    reason = f"not known yet: by {repeat.based_on.runs} runs{jobs}, it could be more than {USEFUL:.0%} away"
    return {"repeat": None, "repeat_reason": reason}


@dataclass(frozen=True)
class _Prediction:
    """`half`: half of the interval in logarithms. `fraction`: of a peak that no result exceeds; 0 if unknown.

    `stray`: why there is no prediction.
    """

    half: float
    based_on: BasedOn
    clock_hz: float | None
    of_clock: clock_adjustment.Elasticity | None
    fraction: float
    stray: str | None

    def of(self, metric: Metric) -> Metric:
        if not metric.value or metric.value < 0:
            return metric
        if self.stray:
            return metric.model_copy(update={"repeat": None, "repeat_reason": self.stray})
        fields = usable(_around(metric.value, self.half, self.based_on))
        repeat: Repeat | None = fields["repeat"]
        if repeat is None:
            return metric.model_copy(update=fields)
        if 0 < self.fraction <= 1:
            best = metric.value / self.fraction if metric.better == "higher" else metric.value * self.fraction
            bound = {"high": min(repeat.high, best)} if metric.better == "higher" else {"low": max(repeat.low, best)}
            repeat = repeat.model_copy(update=bound)
        if self.of_clock is not None:
            elasticity = math.copysign(self.of_clock.value, 1 if metric.better == "higher" else -1)
            of_clock = {"clock_hz": self.clock_hz, "elasticity": elasticity, "elasticity_error": self.of_clock.error}
            repeat = repeat.model_copy(update=of_clock)
        return metric.model_copy(update={"repeat": repeat, "repeat_reason": None})


def same_conditions(own: Peer, peer: Peer) -> bool:
    """Whether `peer` has the same hardware and software, and has a clock if `own` has a clock."""
    alike = (peer.hardware_id, peer.context_id) == (own.hardware_id, own.context_id)
    return alike and peer.value > 0 and (bool(peer.clock_hz) or not own.clock_hz)


@dataclass(frozen=True)
class ResultScatter:
    """How much one result scatters: the variance of its logarithm, and the degrees of freedom of that variance."""

    variance: float
    degrees: float


def half_width(own: Peer, earlier: Sequence[Peer], of_clock: clock_adjustment.Elasticity | None = None) -> float | None:
    """Half of the interval of the next result, in logarithms; None if nothing shows how much results scatter.

    With `of_clock`, all jobs have clocks, and the interval also allows for the next result's other clock.
    """
    scatter = result_scatter(own, earlier, [own, *earlier], of_clock)
    if scatter is None:
        return None
    if of_clock is None:
        return student_t(scatter.degrees) * math.sqrt(2 * scatter.variance)
    clocks = [math.log(job.clock_hz) for job in (own, *earlier) if job.clock_hz]
    squares = math.fsum((clock - fmean(clocks)) ** 2 for clock in clocks)
    clock_degrees = CLOCK_JOBS + len(clocks) - 1
    of_clocks = of_clock.value**2 * (CLOCK_JOBS * CLOCK_DEVIATION**2 + squares) / clock_degrees
    shares = [scatter.variance, of_clocks]
    return student_t(_satterthwaite(shares, [scatter.degrees, clock_degrees])) * math.sqrt(2 * math.fsum(shares))


def result_scatter(
    own: Peer, earlier: Sequence[Peer], shown_by: Sequence[Peer], of_clock: clock_adjustment.Elasticity | None = None
) -> ResultScatter | None:
    """The scatter of the result `own`; None if nothing shows it. `shown_by`: the jobs that show how much jobs differ.

    Leave `own` out of `shown_by` if its work may differ from theirs: that difference isn't scatter.
    """
    jobs, slope = [own, *earlier], of_clock or clock_adjustment.Elasticity(0.0)
    shown_by = counting(shown_by, own.clock_hz, slope.value)
    runs = [job.runs or 1 for job in shown_by]  # a figure taken once has no runs
    logs = _logs_at_clock(shown_by, own.clock_hz, slope.value)
    squares = math.fsum((log - fmean(logs)) ** 2 for log in logs) if logs else 0.0
    between_degrees = max(0.0, len(shown_by) - 1 - slope.lost_degrees)
    within, within_degrees = _repeatability(jobs)
    if within_degrees == 0:
        return None if between_degrees < 1 else ResultScatter(squares / between_degrees, between_degrees)
    own_runs = own.runs or 1
    allowance = within * (1 + 1 / own_runs) / 2
    explained = between_degrees * within * fmean(1 / count for count in runs) if runs else 0.0
    between = max(0.0, squares - explained) + between_degrees * within / own_runs
    shares = [weighted / (ALLOWANCE_JOBS + between_degrees) for weighted in (ALLOWANCE_JOBS * allowance, between)]
    return ResultScatter(math.fsum(shares), _satterthwaite(shares, [within_degrees, max(1.0, between_degrees)]))


def counting(jobs: Sequence[Peer], clock_hz: float | None = None, slope: float = 0.0) -> list[Peer]:
    """The jobs that show how much jobs differ, by their values at the clock `clock_hz`.

    A job further than STRAY from the median of all shows another condition. Of two jobs that are further apart, neither
    shows a scatter. But if several jobs, more than MODE of all, are that far, the work has a second mode: all count.
    """
    logs = _logs_at_clock(jobs, clock_hz, slope)
    near = [job for job, log in zip(jobs, logs, strict=True) if abs(log - median(logs)) <= math.log1p(STRAY)]
    has_modes = len(jobs) > 2 and len(jobs) - len(near) > max(1.0, MODE * len(jobs))
    return list(jobs) if has_modes else near


def _logs_at_clock(jobs: Sequence[Peer], clock_hz: float | None, slope: float) -> list[float]:
    return [math.log(clock_adjustment.adjusted(job, clock_hz, slope)) for job in jobs]


def _repeatability(jobs: Sequence[Peer]) -> tuple[float, int]:
    """The variance between the runs of one job, and its degrees of freedom; zero degrees if unknown.

    The variance is pooled over the jobs, but at least the first job's: if its runs scatter more, its value is less
    certain. A wild job counts with WILD times the median job's deviation.
    """
    pairs = [(job.runs - 1, job.scatter**2) for job in jobs if job.scatter is not None and job.runs > 1]
    degrees = sum(count for count, _ in pairs)
    middle = median_low([variance for _, variance in pairs]) if pairs else 0.0
    limit = WILD**2 * middle or math.inf  # equal figures of the runs tell nothing
    pooled = math.fsum(count * min(variance, limit) for count, variance in pairs) / degrees if degrees else 0.0
    return max(pooled, (jobs[0].scatter or 0.0) ** 2), degrees


def _satterthwaite(shares: Sequence[float], degrees: Sequence[float]) -> float:
    """The degrees of freedom of a sum of variances: Satterthwaite (1946), Biometrics Bulletin 2(6)."""
    spread = math.fsum(share**2 / count for share, count in zip(shares, degrees, strict=True))
    return math.fsum(shares) ** 2 / spread if spread > 0 else degrees[0]


def _around(value: float, half: float | None, based_on: BasedOn) -> Repeat:
    """The interval around `value` whose half-width in logarithms is `half`."""
    factor = math.exp(min(half or 0.0, _WIDEST))
    return Repeat(low=value / factor, high=value * factor, based_on=based_on)


def _deviation(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
