"""Rank the devices of a fleet for one spec, by one comparable result of each device.

- Results are comparable if workload, timed params, precision and method agree (`dyno.bench.measure.differences`). Only
  the largest group of comparable results is ranked. If groups are equally large, the newest result decides.
- A ratio is computed as in a comparison, from the runs of two jobs. But clocks aren't adjusted, since a device with a
  low clock is slow. Prices have no error. A device whose ratio has no interval is ranked by its value alone.
- Work per joule is the mean over the runs. If a run reports no energy, the job's value is used, without an interval.
- The time for an amount of work is `fixed_s` + amount x time per unit. `fixed_s` is the sum of a run's phases before
  its first sample: import, device, data, build, compile and first execution. Two devices are equally fast at the amount
  (difference of fixed times) / (difference of times per unit). The amount's interval is Fieller's over the runs of both
  jobs, with the degrees of freedom of the job with fewer runs. If the times per unit don't differ significantly, the
  amount is unknown.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dyno.bench.contract import Workload
from dyno.bench.measure import compare_results, ratios, result_metrics, statistics
from dyno.bench.measure.differences import changes_work, free_params
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
    """A device, its chosen result, and its price for an hour (None: unknown)."""

    device: DeviceStatus
    job: Job
    result: Result
    price: float | None = None

    @property
    def name(self) -> str:
        return self.device.full_id


def is_rate(metric: Metric) -> bool:
    """Whether this metric is work per second and was measured in each run."""
    return metric.unit.endswith("/s") and metric.better == "higher" and bool(metric.by_run) and metric.value is not None


def _comparable(
    candidates: Sequence[DeviceResult], workload: Workload, metric: str
) -> tuple[list[DeviceResult], list[advice.NotRanked]]:
    """The largest group of results of the same work, and why the others aren't ranked."""
    groups = defaultdict[tuple[Any, ...], list[DeviceResult]](list)
    for candidate in sorted(candidates, key=lambda result: result.job.created_at, reverse=True):
        for first, *_ in list(groups.values()):
            if not _other_work(first, candidate, workload, metric):
                groups[(first.name,)].append(candidate)
                break
        else:
            groups[(candidate.name,)].append(candidate)
    largest = max(groups.values(), key=len, default=[])
    return largest, [
        _of_other_work(largest[0], result, workload, metric)
        for group in groups.values()
        if group is not largest
        for result in group
    ]


def _other_work(first: DeviceResult, other: DeviceResult, workload: Workload, metric: str) -> list[str]:
    entries = [compare_results.ComparisonEntry(side.job, side.result) for side in (first, other)]
    free = free_params(metric, workload)
    return [field.field for field in compare_results.what_differs(entries) if changes_work(field, free)]


def _of_other_work(first: DeviceResult, other: DeviceResult, workload: Workload, metric: str) -> advice.NotRanked:
    fields = ", ".join(_other_work(first, other, workload, metric))
    reason = f"{other.job.id} isn't comparable with {first.job.id}: they differ in {fields}"
    return advice.NotRanked(device=other.name, reason=reason)


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
    comparable, not_ranked = _comparable(chosen, workload, metric)
    by_name = {result.name: result for result in comparable}
    figures = _figures(comparable, metric)
    order = _order(figures["per_s"])
    return RankedDevices(
        rows=[_row(by_name[name], figures, now) for name in order],
        rankings=[_ranking(by, metrics) for by, metrics in figures.items() if metrics],
        crossovers=[_crossover(by_name[order[0]], by_name[name], figures["per_s"]) for name in order[1:]],
        not_ranked=not_ranked,
        notes=[*_NOTES] if len(comparable) > 1 else [],
    )


_Figures = Mapping[advice.Criterion, dict[str, Metric]]  # by device; empty for a criterion without figures


def _figures(results: Sequence[DeviceResult], metric: str) -> _Figures:
    figures: _Figures = {"per_s": {}, "per_joule": {}, "per_currency": {}}
    for candidate in results:
        rate = candidate.result.metric(metric)
        assert rate is not None, "the results were chosen by it"
        figures["per_s"][candidate.name] = rate
        if (of_energy := _per_joule(candidate.result, rate)) is not None:
            figures["per_joule"][candidate.name] = of_energy
        if candidate.price is not None:
            figures["per_currency"][candidate.name] = _per_currency(rate, candidate.price)
    return figures


def _order(metrics: Mapping[str, Metric]) -> list[str]:
    return sorted(metrics, key=lambda name: metrics[name].value or 0.0, reverse=True)


def _per_joule(result: Result, rate: Metric) -> Metric | None:
    """The work per joule of each run, or of the job if a run has no energy. None unless `rate` is the throughput."""
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
    """The work per joule of each run, scaled from the job's figure; empty if a run has no energy."""
    joules = [result_metrics.joules_per_execution([run]) for run in runs]
    of_all = result_metrics.joules_per_execution(runs) if all(joules) else None
    return [of_job * of_all / run_joules for run_joules in joules if run_joules] if of_all else []


def _per_currency(rate: Metric, price: float) -> Metric:
    """The work per unit of currency. The price of a device-hour has no error, so all figures are only scaled."""
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
    best = [entry.device for entry in ranked if entry.ratio is None or _is_alike(entry.ratio)]
    return advice.AdviceRanking(by=by, devices=ranked, best=best)


def _is_alike(ratio: Ratio) -> bool:
    """Whether the figures don't differ significantly. False without an interval: devices are then ranked by value."""
    return ratio.low is not None and ratio.verdict is not Comparative.SLOWER


def _row(entry: DeviceResult, figures: _Figures, now: datetime) -> advice.AdviceRow:
    result, ended = entry.result, entry.job.finished_at or entry.job.created_at
    ranks = {by: _figure(metrics[entry.name]) if entry.name in metrics else None for by, metrics in figures.items()}
    fixed = _fixed_s(result)
    interval = statistics.mean_interval(fixed) if fixed else None
    return advice.AdviceRow.model_validate(
        {
            **{"device": entry.name, "device_model": entry.device.model, "job": entry.job.id},
            **{"finished_at": entry.job.finished_at, "age_s": max(0.0, (now - ended).total_seconds())},
            **{"verdict": result.verdict, "warnings": [warning.code for warning in result.warnings]},
            **{"imported": entry.job.imported is not None, "runs": len(result.runs)},
            **ranks,
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
    """The time before the first sample, for each run; empty if it is unknown for a run."""
    return (
        []
        if any(run.phases.first_execution_s is None for run in result.runs)
        else [math.fsum(_known_phases(run.phases)) for run in result.runs]
    )


def _known_phases(phases: Phases) -> Iterator[float]:
    return (seconds for name in _FIXED if (seconds := getattr(phases, name)) is not None)


def _crossover(faster: DeviceResult, slower: DeviceResult, rates: Mapping[str, Metric]) -> advice.Crossover:
    names = {"faster": faster.name, "slower": slower.name, "unit": rates[faster.name].unit.removesuffix("/s")}
    fixed = [_fixed_s(side.result) for side in (faster, slower)]
    per_unit_s = [[1 / rate for rate in rates[side.name].by_run if rate > 0] for side in (slower, faster)]
    runs = min(map(len, [*fixed, *per_unit_s]))
    if runs < 2:
        reason = "it needs two runs of each device whose phases are known"
        return advice.Crossover(**names, amount=None, reason=reason)
    first_s, unit_s = ([ratios.Mean.of(of_runs) for of_runs in sides] for sides in (fixed, per_unit_s))
    fixed_gap, unit_gap = (before.value - after.value for before, after in (first_s, unit_s))
    variances = [before.variance + after.variance for before, after in (first_s, unit_s)]
    t = statistics.student_t(runs - 1, _HOW.confidence)
    bounds = ratios.fieller(fixed_gap, unit_gap, variances[0], variances[1], t)
    if bounds is None or unit_gap <= 0:
        reason = "the times for a unit of work can't be told apart"
        return advice.Crossover(**names, amount=None, reason=reason)
    low, high = (max(0.0, bound) for bound in bounds)
    always = f"{faster.name} needs no more time before the first sample" if high == 0 else None
    amount = max(0.0, fixed_gap / unit_gap)
    return advice.Crossover(**names, amount=amount, low=low, high=high, reason=always)
