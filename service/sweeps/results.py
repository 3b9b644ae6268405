"""Sweeps with their results so far: points with ratios, and tables as CSV, Markdown and JSON."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import anyio.to_thread
from pydantic import JsonValue

from dyno import tables
from dyno.bench.contract import Workload
from dyno.bench.measure import compare_results, differences, ratios, statistics
from dyno.bench.measure.result_metrics import COLD, is_over_seeds, with_accuracy
from dyno.errors import FieldError, InvalidSpec
from dyno.models import sweep as sweep_model
from dyno.models.comparison import Comparative, CompareHow, Ratio
from dyno.models.job import Status
from dyno.models.result import Metric, ResultSummary, Verdict
from dyno.models.spec import Spec
from dyno.store.records import StoredJob, read_spec
from dyno.store.stored_results import read_result_summaries
from dyno.store.sweeps import StoredSweep, Sweeps
from service.state import State

Row = dict[str, JsonValue]
_COUNTED_IF_STOPPED = (Status.QUEUED, Status.RUNNING, Status.SUCCEEDED)
_HOW = CompareHow()  # the default margin and confidence


@dataclass(frozen=True)
class Measured:
    """The jobs and results of a point, by round. A missing job or a missing result is None."""

    jobs: Sequence[StoredJob | None]
    results: Sequence[ResultSummary | None]

    @property
    def statuses(self) -> list[str]:
        return ["gone" if job is None else job.record["status"] for job in self.jobs]

    @property
    def done(self) -> list[ResultSummary]:
        """The results so far."""
        return [result for result in self.results if result]

    @property
    def waits(self) -> bool:
        return Status.QUEUED in self.statuses

    @property
    def is_emulated(self) -> bool:
        return any(result.device.get("emulated") for result in self.results if result)

    def metrics(self, name: str) -> list[Metric | None]:
        """The metric of each round's result."""
        return [result.metric(name) if result else None for result in self.results]

    @cached_property
    def spec(self) -> Spec | None:
        """The spec of the point's jobs; None if it can't be read."""
        text = next((job.record.get("spec", "") for job in reversed(self.jobs) if job), "")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return read_spec(text)
        return None


async def read(state: State, stored: StoredSweep, metric: str | None = None) -> sweep_model.Sweep:
    """The sweep as it is now. `metric`: the metric to compare, instead of the sweep's own.

    Raises InvalidSpec if the sweep has results, and neither the results nor the workload have that metric.
    """
    stored, measured = await _read_together(state, stored)
    if metric is not None:
        _check_metric(state, stored, measured, metric)
    compared_metric = metric or stored.record.metric
    # In a thread: the first ratio imports SciPy.
    points = await anyio.to_thread.run_sync(_points, stored, measured, compared_metric, workload_of(state, stored))
    summary = summarize(stored, [status for point in measured for status in point.statuses])
    live = [job for point in measured for job in point.jobs if job is not None and not job.done]
    return sweep_model.Sweep(
        **summary.model_dump(by_alias=True),
        metric=compared_metric,
        points=points,
        eta_s=await state.jobs.ends_s(live),
        batch_sizes=[_batch_sizes(limit, points, compared_metric) for limit in stored.record.batch_limits],
        notes=_notes(points),
    )


def _notes(points: Sequence[sweep_model.SweepPoint]) -> list[str]:
    count = sum(point.ratio is not None and point.ratio.low is not None for point in points)
    many = f"The intervals of these {count} ratios aren't corrected for multiple comparisons"
    return [f"{many}: {compare_results.chance_of_miss(_HOW.confidence)} misses on average."] if count > 1 else []


async def _read_together(state: State, stored: StoredSweep) -> tuple[StoredSweep, list[Measured]]:
    """The sweep and its results so far. Reads both again if a point was stopped or the sweep canceled in between.

    Raises UnknownSweep if the sweep is gone.
    """
    measured = await read_measured(state, stored)
    while any(Status.CANCELED in point.statuses for point in measured):
        now = await Sweeps(state.client, state.settings, state.jobs).get(stored.id)
        if (now.stopped, now.cancel_requested_at) == (stored.stopped, stored.cancel_requested_at):
            break
        stored, measured = now, await read_measured(state, now)
    return stored, measured


def _check_metric(state: State, stored: StoredSweep, measured: Sequence[Measured], metric: str) -> None:
    workload = workload_of(state, stored)
    names = dict.fromkeys(
        [stored.record.metric, *(metric_of_workload.name for metric_of_workload in workload.metrics)]
        if workload
        else ()
    )
    names |= dict.fromkeys(figure.name for point in measured for result in point.done for figure in result.metrics)
    if any(point.done for point in measured) and metric.removeprefix(COLD) not in names:
        detail = f'"{metric[:64]}" is not a metric of this sweep; choose one of: {", ".join(names)}'
        raise InvalidSpec([FieldError("/metric", "unknown-metric", detail)])


async def read_measured(state: State, stored: StoredSweep) -> list[Measured]:
    """The jobs and results of each point so far."""
    jobs = await state.jobs.read_all(stored.job_ids)
    done = [job.id for job in jobs if job is not None and job.record["status"] == Status.SUCCEEDED]
    summaries = await read_result_summaries(state.client, state.settings, done)
    results = {job_id: result and with_accuracy(result) for job_id, result in zip(done, summaries, strict=True)}
    by_id = {job.id: job for job in jobs if job is not None}
    return [
        Measured([by_id.get(one_job) for one_job in point.jobs], [results.get(one_job) for one_job in point.jobs])
        for point in stored.record.points
    ]


def workload_of(state: State, stored: StoredSweep) -> Workload | None:
    """The sweep's workload; None if this version doesn't have it."""
    return state.workloads.get(stored.record.workload)


async def read_summaries(sweeps: Sweeps, stored: Sequence[StoredSweep]) -> list[sweep_model.SweepSummary]:
    """Summarize the sweeps for a list response."""
    summaries: list[sweep_model.SweepSummary] = []
    for sweep, statuses in zip(stored, await sweeps.statuses(stored), strict=True):
        summaries.append(summarize(sweep, statuses))
        await asyncio.sleep(0)
    return summaries


def summarize(stored: StoredSweep, statuses: Sequence[str]) -> sweep_model.SweepSummary:
    record = stored.record
    positions = [position for position, point in enumerate(record.points) for _ in point.jobs]
    counted = [
        status
        for position, status in zip(positions, statuses, strict=True)
        if position not in stored.stopped or status in _COUNTED_IF_STOPPED
    ]
    return sweep_model.SweepSummary(
        id=stored.id,
        status=sweep_model.sweep_status(counted, stored.cancel_requested_at is not None),
        created_at=stored.created_at,
        cancel_requested_at=stored.cancel_requested_at,
        workload=record.workload,
        preset=record.preset,
        axes=record.axes,
        base=record.base,
        rounds=record.rounds,
        counts={"total": len(statuses), **Counter(statuses)},
        urls=sweep_model.sweep_urls(stored.id),
        owner=stored.owner,
        schema=record.schema_version,
    )


def _points(
    stored: StoredSweep, measured: Sequence[Measured], metric: str, workload: Workload | None
) -> list[sweep_model.SweepPoint]:
    shown: list[sweep_model.SweepPoint] = []
    for position, (point, point_jobs) in enumerate(zip(stored.record.points, measured, strict=True)):
        compared = {} if point.base is None else _compared(measured[point.base], point_jobs, metric, workload)
        shown.append(_point(point, point_jobs, compared | {"stopped": stored.stopped.get(position)}))
    return shown


def _point(point: sweep_model.StoredPoint, measured: Measured, compared: dict[str, Any]) -> sweep_model.SweepPoint:
    results, statuses = measured.done, measured.statuses
    if compared["stopped"] is not None:
        statuses = [status for status in statuses if status != Status.CANCELED] or statuses
    if results:
        device = results[-1].device
        compared |= {
            "metrics": [pooled(measured.metrics(metric.name)) for metric in results[-1].metrics],
            "verdict": min((result.verdict for result in results), key=lambda verdict: verdict.rank),
            "warnings": list(dict.fromkeys(warning.code for result in results for warning in result.warnings)),
            "device": f"{device.get('id')}@{device.get('host')}",
        }
    reasons = [job.record.get("status_reason") for job in measured.jobs if job]
    return sweep_model.SweepPoint(
        values=point.values,
        job=point.jobs[0],
        jobs=point.jobs,
        status=sweep_model.point_status(statuses),
        status_reason=next((reason for reason in reasons if reason), None),
        base=point.base,
        **compared,
    )


def pooled(of_rounds: Sequence[Metric | None]) -> sweep_model.PointMetric:
    """The metric over the rounds that have it. Returns the last job's metric if only one round has the metric, or if
    the metric is over seeds: all rounds share the seeds.
    """
    metrics = [metric for metric in of_rounds if metric is not None]
    last = sweep_model.PointMetric.model_validate(metrics[-1], from_attributes=True)
    values = [metric.value for metric in metrics if metric.value is not None]
    if len(values) < 2 or is_over_seeds(last.name):
        return last
    interval = statistics.mean_interval(values)
    low = None if interval.low is None else max(0.0, interval.low)  # times and rates are positive
    return last.model_copy(update={"value": interval.value, "low": low, "high": interval.high, "reason": None})


def _batch_sizes(
    limit: sweep_model.BatchLimit, points: Sequence[sweep_model.SweepPoint], metric: str
) -> sweep_model.BatchSizes:
    at = [point for point in points if limit.values.items() <= point.values.items()]
    sizes = {sweep_model.batch_size(point.values): point for point in at if point.metrics}
    figures = {
        size: figure
        for size, point in sizes.items()
        if point.verdict is not Verdict.UNTRUSTED
        and (figure := point.metric(metric)) is not None
        and figure.value is not None
    }
    is_rate = any(figure.better == "higher" for figure in figures.values())
    ended = next((point for point in at if point.stopped and point.stopped.reason == "out_of_memory"), None)
    return sweep_model.BatchSizes(
        values=limit.values,
        largest_that_fits=max(sizes, default=None),
        fastest=(max if is_rate else min)(figures, key=lambda size: figures[size].value or 0.0, default=None),
        limit=f"{sweep_model.batch_size(ended.values)} ran out of memory" if ended else limit.detail,
    )


def _compared(base: Measured, other: Measured, metric: str, workload: Workload | None) -> dict[str, Any]:
    """`ratio` (above 1: better than the base) and `same_work`. Empty until both points have results with the metric.

    As in comparisons of results, totals aren't compared if the amounts of work differ. The ratio isn't adjusted to one
    clock, because points may differ in an axis that affects the clock.
    """
    rounds = [
        ((first, of_base), (second, of_other))
        for first, second in zip(base.results, other.results, strict=True)
        if first and (of_base := first.metric(metric))
        if second and (of_other := second.metric(metric))
    ]
    if not rounds:
        return {}
    last = [result for result, _ in rounds[-1]]
    reason, same_work = comparability(base, other, last, metric, workload)
    if reason is not None:
        return {"ratio": _no_ratio(reason), "same_work": same_work}
    pairs = [(of_base, of_other) for (_, of_base), (_, of_other) in rounds]
    one = len(base.jobs) == 1 or is_over_seeds(metric)
    ratio = compare_results.ratio(*pairs[-1], _HOW, ratios.ratio_of_means) if one else _ratio_over_rounds(pairs)
    if any(result.verdict is Verdict.UNTRUSTED for result in (*base.done, *other.done)):
        ratio = compare_results.without_verdict(ratio, "a result is untrusted, so the ratio is wrong")
        return {"ratio": ratio, "same_work": same_work}
    scaling = None if is_over_seeds(metric) else _scaling(base, other, ratio)
    return {"ratio": ratio, "same_work": same_work, "scaling": scaling}


def _scaling(base: Measured, other: Measured, ratio: Ratio) -> sweep_model.Scaling | None:
    """None unless the specs differ in their replicas alone, or in these and the size of their batches."""
    if base.spec is None or other.spec is None or ratio.value is None:
        return None
    same = {"replicas": 1, "labels": {}}
    specs = [
        spec.model_copy(update=same | {"params": {**spec.params, "batch_size": 0}}) for spec in (base.spec, other.spec)
    ]
    (first, few), (second, many) = ((spec.params.get("batch_size"), spec.replicas) for spec in (base.spec, other.spec))
    if specs[0] != specs[1] or few == many or not isinstance(first, int) or not isinstance(second, int):
        return None
    kind: Literal["strong", "weak"] = "strong" if first == second else "weak"
    if kind == "weak" and first * many != second * few:
        return None
    growth = many / few
    low, high = (bound and bound / growth for bound in (ratio.low, ratio.high))
    return sweep_model.Scaling(kind=kind, efficiency=ratio.value / growth, low=low, high=high)


def comparability(
    base: Measured, other: Measured, results: Sequence[ResultSummary], metric: str, workload: Workload | None
) -> tuple[str | None, bool | None]:
    """Returns why two points' results can't be compared (None if they can), and whether their work is the same."""
    if base.spec is None or other.spec is None:
        return "the spec of a job can't be read", None
    free = differences.free_params(metric, workload)
    differing = differences.work_differences([base.spec, other.spec], results)
    same_work = not any(differences.changes_work(difference, free) for difference in differing)
    shared = differences.shared_metrics([result.metrics for result in results], differing, lambda _: free)
    if base.is_emulated != other.is_emulated:
        return "one of the two devices is emulated", same_work
    if metric in shared.totals:
        return f"{metric} depends on the amount of work, which differs", same_work
    return None if metric in shared.comparable else f"{metric} has another unit or direction", same_work


def _no_ratio(reason: str) -> Ratio:
    return Ratio(verdict=Comparative.INCONCLUSIVE, value=None, reason=reason)


def _ratio_over_rounds(pairs: Sequence[tuple[Metric, Metric]]) -> Ratio:
    values = [(first.value, second.value) for first, second in pairs if first.value and second.value]
    if not values or min(map(min, values)) <= 0:
        return _no_ratio("a figure is missing, zero or below")
    firsts, seconds = zip(*values, strict=True)
    over, under = (seconds, firsts) if pairs[0][0].better == "higher" else (firsts, seconds)
    ratio = ratios.ratio_over_rounds(over, under, _HOW.confidence)
    verdict = ratios.comparative_verdict(ratio.interval, _HOW.margin)
    undecided = verdict is Comparative.INCONCLUSIVE
    return Ratio(
        verdict=verdict,
        value=ratio.interval.value,
        as_measured=ratio.interval.value,
        low=ratio.interval.low,
        high=ratio.interval.high,
        degrees_of_freedom=ratio.degrees,
        smallest_effect=ratio.smallest_effect,
        more_runs=ratios.more_runs(ratio, _HOW.margin, _HOW.confidence) if undecided else None,
        reason=ratio.interval.reason,
    )


_OF_RATIO = ("ratio", "ratio_low", "ratio_high", "ratio_verdict")


def rows(sweep: sweep_model.Sweep) -> list[Row]:
    """A row for each point, in the order of the points; all have the same columns."""
    return [_row(sweep, point) for point in sweep.points]


def _row(sweep: sweep_model.Sweep, point: sweep_model.SweepPoint) -> Row:
    metric, ratio = point.metric(sweep.metric), point.ratio
    row: Row = {axis: _flat(point.values.get(axis)) for axis in sweep.axes}
    row |= {
        "job": " ".join(point.jobs),
        "status": str(point.status),
        "verdict": str(point.verdict) if point.verdict else None,
    }
    row |= {"metric": sweep.metric, "unit": metric.unit if metric else None}
    row |= {name: getattr(metric, name, None) for name in ("value", "low", "high")}
    repeat = metric.repeat if metric else None
    row |= {f"repeat_{name}": getattr(repeat, name, None) for name in ("low", "high")}
    row["stopped"] = point.stopped.reason if point.stopped else None
    if sweep.base is not None:
        row["same_work"] = point.same_work
        given = (ratio.value, ratio.low, ratio.high, str(ratio.verdict)) if ratio else (None,) * len(_OF_RATIO)
        row |= dict(zip(_OF_RATIO, given, strict=True))
        row["scaling_efficiency"] = point.scaling.efficiency if point.scaling else None
    return row | {"warnings": " ".join(point.warnings or ())}


def _flat(value: JsonValue) -> JsonValue:
    """Lists and objects as text."""
    return (
        sweep_model.value_text(value)
        if isinstance(value, dict)
        else json.dumps(value)
        if isinstance(value, list)
        else value
    )


def as_csv(sweep: sweep_model.Sweep) -> str:
    table = rows(sweep)
    return tables.csv_text(tables.lines_of(table[0], table))


def as_markdown(sweep: sweep_model.Sweep) -> str:
    """A table with rounded figures."""
    return tables.markdown_text(tables.sweep_headings(sweep), tables.sweep_cells(sweep))
