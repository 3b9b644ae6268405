"""Rank the devices of a fleet for one spec, by one comparable result of each.

- Results are comparable if workload, timed params, precision and method agree (`dyno.bench.measure.compare_results`).
  If they
  don't, the largest group of comparable results counts, and of equal groups the one with the newest result.
- The ratios are those of comparisons, between the runs of two jobs. Clocks aren't adjusted: a device whose clock is low
  is slow. A price has no error. A device whose ratio has no interval is ranked by its value alone.
- Work per joule is the mean over the runs. If a run has no energy of its own, it is that of the job, with no interval.
- The time for an amount of work is `fixed_s` + amount x time per unit. `fixed_s` is the sum of a run's phases before
  its first sample: import, device, data, build, compile and first execution. The devices are equally fast at the
  amount (difference of fixed times) / (difference of times per unit); its interval is Fieller's, over the runs of both
  jobs, with the degrees of freedom of the smaller one. Where the times per unit can't be told apart, it isn't known.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dyno.bench.contract import Workload
from dyno.bench.measure import compare_results, ratios, result_metrics, statistics
from dyno.models import advice
from dyno.models.comparison import Comparative, CompareHow, Ratio
from dyno.models.inventory import DeviceStatus
from dyno.models.job import Job
from dyno.models.result import Metric, Phases, Result, RunSummary

_HOUR_S = 3600.0
_HOW = CompareHow()  # the default margin and confidence
_NOTES = (
    "The results were measured one after the other, not side by side. The ratios include changes of the machines in "
    "between, which the intervals don't cover. The intervals aren't corrected for multiple comparisons.",
)
_FIXED = ("import_s", "device_s", "data_s", "build_s", "compile_s", "first_execution_s")


@dataclass(frozen=True)
class DeviceResult:
    """A device, its chosen result, and its price for an hour, if that is known."""

    device: DeviceStatus
    job: Job
    result: Result
    price: float | None = None

    @property
    def name(self) -> str:
        return self.device.full_id


def is_rate(metric: Metric) -> bool:
    """Whether this is a metric of work per second that each run has measured."""
    return metric.unit.endswith("/s") and metric.better == "higher" and bool(metric.by_run) and metric.value is not None


def _comparable(
    found: Sequence[DeviceResult], workload: Workload, metric: str
) -> tuple[list[DeviceResult], list[advice.NotRanked]]:
    """The results of the same work as most of them, and why the others aren't ranked."""
    groups = defaultdict[tuple[Any, ...], list[DeviceResult]](list)
    for each in sorted(found, key=lambda one: one.job.created_at, reverse=True):
        for first, *_ in list(groups.values()):
            if not _other_work(first, each, workload, metric):
                groups[(first.name,)].append(each)
                break
        else:
            groups[(each.name,)].append(each)
    most = max(groups.values(), key=len, default=[])
    return most, [
        _of_other_work(most[0], each, workload, metric)
        for group in groups.values()
        if group is not most
        for each in group
    ]


def _other_work(first: DeviceResult, other: DeviceResult, workload: Workload, metric: str) -> list[str]:
    entries = [compare_results.ComparisonEntry(each.job, each.result) for each in (first, other)]
    free = workload.params.how | workload.untimed_for(metric)
    return [each.field for each in compare_results.differences(entries) if compare_results.changes_work(each, free)]


def _of_other_work(first: DeviceResult, each: DeviceResult, workload: Workload, metric: str) -> advice.NotRanked:
    fields = ", ".join(_other_work(first, each, workload, metric))
    reason = f"{each.job.id} isn't comparable with {first.job.id}: they differ in {fields}"
    return advice.NotRanked(device=each.name, reason=reason)


@dataclass(frozen=True)
class RankedDevices:
    """The parts of an `Advice` that follow from the chosen results."""

    rows: list[advice.AdviceRow]
    rankings: list[advice.AdviceRanking]
    crossovers: list[advice.Crossover]
    not_ranked: list[advice.NotRanked]
    notes: list[str]


def ranked(chosen: Sequence[DeviceResult], workload: Workload, metric: str, now: datetime) -> RankedDevices:
    """Rank the devices by results that have the metric."""
    found, not_ranked = _comparable(chosen, workload, metric)
    by_name = {each.name: each for each in found}
    figures = _figures(found, metric)
    order = _order(figures["per_s"])
    return RankedDevices(
        rows=[_row(by_name[name], figures, now) for name in order],
        rankings=[_ranking(by, metrics) for by, metrics in figures.items() if metrics],
        crossovers=[_crossover(by_name[order[0]], by_name[name], figures["per_s"]) for name in order[1:]],
        not_ranked=not_ranked,
        notes=[*_NOTES] if len(found) > 1 else [],
    )


_Figures = Mapping[advice.Criterion, dict[str, Metric]]  # by device; empty for a criterion without figures


def _figures(found: Sequence[DeviceResult], metric: str) -> _Figures:
    figures: _Figures = {"per_s": {}, "per_joule": {}, "per_currency": {}}
    for each in found:
        rate = each.result.metric(metric)
        assert rate is not None, "the results were chosen by it"
        figures["per_s"][each.name] = rate
        if (of_energy := _per_joule(each.result, rate)) is not None:
            figures["per_joule"][each.name] = of_energy
        if each.price is not None:
            figures["per_currency"][each.name] = _per_currency(rate, each.price)
    return figures


def _order(metrics: Mapping[str, Metric]) -> list[str]:
    return sorted(metrics, key=lambda name: metrics[name].value or 0.0, reverse=True)


def _per_joule(result: Result, rate: Metric) -> Metric | None:
    """The work per joule of each run, or of the job if a run has no energy of its own. None but for the throughput."""
    energy, work = result.energy, rate.unit.removesuffix("/s")
    if rate.name != "throughput":
        return None
    of_job = energy.flop_per_joule if work == "FLOP" else energy.joules_per_sample and 1 / energy.joules_per_sample
    if not of_job:
        return None
    by_run = _by_energy_of_runs(of_job, result.runs)
    interval = (
        statistics.mean_interval(by_run)
        if by_run
        else statistics.Interval(of_job, reason="the energy is that of the whole job: no interval")
    )
    figure = _as_figure(f"{work}/J", interval).model_dump()
    return rate.model_copy(update={**figure, "by_run": by_run})


def _by_energy_of_runs(of_job: float, runs: Sequence[RunSummary]) -> list[float]:
    """The work per joule of each run, from that of the job; empty if a run has no energy of its own."""
    joules = [result_metrics.joules_per_execution([run]) for run in runs]
    of_all = result_metrics.joules_per_execution(runs) if all(joules) else None
    return [of_job * of_all / each for each in joules if each] if of_all else []


def _per_currency(rate: Metric, price: float) -> Metric:
    """The price of a device-hour has no error, so the figures of the runs scale."""
    scale = _HOUR_S / price
    scaled = {
        name: None if (value := getattr(rate, name)) is None else value * scale for name in ("value", "low", "high")
    }
    return rate.model_copy(
        update={**scaled, "unit": rate.unit.removesuffix("/s"), "by_run": [value * scale for value in rate.by_run]}
    )


def _ranking(by: advice.Criterion, metrics: Mapping[str, Metric]) -> advice.AdviceRanking:
    first, *others = _order(metrics)
    ranked = [advice.RankedDevice(device=first, ratio=None)]
    for name in others:
        ratio = compare_results.ratio(metrics[first], metrics[name], _HOW, ratios.ratio_of_means)
        ranked.append(advice.RankedDevice(device=name, ratio=ratio))
    best = [each.device for each in ranked if each.ratio is None or _is_alike(each.ratio)]
    return advice.AdviceRanking(by=by, devices=ranked, best=best)


def _is_alike(ratio: Ratio) -> bool:
    """Whether the figures can't be told apart. Without an interval nothing is known, and the value alone ranks."""
    return ratio.low is not None and ratio.verdict is not Comparative.SLOWER


def _row(each: DeviceResult, figures: _Figures, now: datetime) -> advice.AdviceRow:
    result, ended = each.result, each.job.finished_at or each.job.created_at
    known = {by: _figure(metrics[each.name]) if each.name in metrics else None for by, metrics in figures.items()}
    fixed = _fixed_s(result)
    interval = statistics.mean_interval(fixed) if fixed else None
    return advice.AdviceRow.model_validate(
        {
            **{"device": each.name, "device_model": each.device.model, "job": each.job.id},
            **{"finished_at": each.job.finished_at, "age_s": max(0.0, (now - ended).total_seconds())},
            **{"verdict": result.verdict, "warnings": [warning.code for warning in result.warnings]},
            **{"imported": each.job.imported is not None, "runs": len(result.runs)},
            **known,
            "fixed_s": None if interval is None else _as_figure("s", interval),
        },
        from_attributes=True,
    )


def _figure(metric: Metric) -> advice.AdviceFigure:
    assert metric.value is not None
    return advice.AdviceFigure(
        unit=metric.unit, value=metric.value, low=metric.low, high=metric.high, reason=metric.reason
    )


def _as_figure(unit: str, interval: statistics.Interval) -> advice.AdviceFigure:
    low = None if interval.low is None else max(0.0, interval.low)
    return advice.AdviceFigure(unit=unit, value=interval.value, low=low, high=interval.high, reason=interval.reason)


def _fixed_s(result: Result) -> list[float]:
    """For each run the time before its first sample; empty if a run doesn't know it."""
    return (
        []
        if any(run.phases.first_execution_s is None for run in result.runs)
        else [math.fsum(_known_phases(run.phases)) for run in result.runs]
    )


def _known_phases(phases: Phases) -> Iterator[float]:
    return (seconds for name in _FIXED if (seconds := getattr(phases, name)) is not None)


def _crossover(faster: DeviceResult, slower: DeviceResult, rates: Mapping[str, Metric]) -> advice.Crossover:
    names = {"faster": faster.name, "slower": slower.name, "unit": rates[faster.name].unit.removesuffix("/s")}
    fixed = [_fixed_s(each.result) for each in (faster, slower)]
    each_s = [[1 / rate for rate in rates[each.name].by_run if rate > 0] for each in (slower, faster)]
    least = min(map(len, [*fixed, *each_s]))
    if least < 2:
        reason = "it needs two runs of each device whose phases are known"
        return advice.Crossover(**names, amount=None, reason=reason)
    more, difference = _difference(*fixed), _difference(*each_s)
    t = statistics.student_t(least - 1, _HOW.confidence)
    bounds = ratios.fieller(more.value, difference.value, more.variance, difference.variance, t)
    if bounds is None or difference.value <= 0:
        reason = "the times for a unit of work can't be told apart"
        return advice.Crossover(**names, amount=None, reason=reason)
    low, high = (max(0.0, bound) for bound in bounds)
    always = f"{faster.name} needs no more time before the first sample" if high == 0 else None
    amount = max(0.0, more.value / difference.value)
    return advice.Crossover(**names, amount=amount, low=low, high=high, reason=always)


@dataclass(frozen=True)
class _Difference:
    value: float
    variance: float  # of the value


def _difference(first: Sequence[float], second: Sequence[float]) -> _Difference:
    """Of the means of two groups of runs."""
    means = [math.fsum(values) / len(values) for values in (first, second)]
    variances = [
        math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        for values, mean in zip((first, second), means, strict=True)
    ]
    return _Difference(means[0] - means[1], sum(variances))
