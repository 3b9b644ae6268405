"""Sweeps with the results that there are so far: points with ratios, and tables as CSV, Markdown and JSON."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import anyio.to_thread
from pydantic import JsonValue

from dyno import tables
from dyno.bench.contract import Workload
from dyno.bench.measure import accuracy_metric, compare_results, ratios, statistics
from dyno.bench.measure.result_metrics import COLD
from dyno.errors import FieldError, InvalidSpec
from dyno.models import sweep
from dyno.models.comparison import Comparative, CompareHow, Ratio
from dyno.models.job import Status
from dyno.models.result import Metric, ResultSummary, Verdict
from dyno.models.spec import Spec
from dyno.store.documents import StoredJob
from dyno.store.records import read_result_summaries, read_spec
from dyno.store.sweeps import StoredSweep, Sweeps
from service.state import State

Row = dict[str, JsonValue]
_COUNTED_IF_STOPPED = (Status.QUEUED, Status.RUNNING, Status.SUCCEEDED)
_HOW = CompareHow()  # the default margin and confidence


@dataclass(frozen=True)
class Measured:
    """The jobs of a point, by round: None for one that is gone, and for a result that isn't there."""

    jobs: Sequence[StoredJob | None]
    results: Sequence[ResultSummary | None]

    @property
    def statuses(self) -> list[str]:
        return ["gone" if job is None else job.record["status"] for job in self.jobs]

    @property
    def done(self) -> list[ResultSummary]:
        """The results that there are."""
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


async def read(state: State, stored: StoredSweep, metric: str | None = None) -> sweep.Sweep:
    """The sweep as it is now. `metric`: what to compare instead of its own metric.

    Raises InvalidSpec if there are results, and neither they nor the workload have that metric.
    """
    stored, measured = await _read_together(state, stored)
    if metric is not None:
        _check_metric(state, stored, measured, metric)
    wanted = metric or stored.record.metric
    # In a thread: the first ratio imports SciPy.
    points = await anyio.to_thread.run_sync(_points, stored, measured, wanted, workload_of(state, stored))
    summary = summarize(stored, [status for each in measured for status in each.statuses])
    live = [job for each in measured for job in each.jobs if job is not None and not job.done]
    return sweep.Sweep(
        **summary.model_dump(by_alias=True),
        metric=wanted,
        points=points,
        eta_s=await state.jobs.ends_s(live),
        batch_sizes=[_batch_sizes(limit, points, wanted) for limit in stored.record.batch_limits],
        notes=_notes(points),
    )


def _notes(points: Sequence[sweep.SweepPoint]) -> list[str]:
    count = sum(point.ratio is not None and point.ratio.low is not None for point in points)
    many = f"The intervals of these {count} ratios aren't corrected for multiple comparisons"
    return [f"{many}: {compare_results.chance_of_miss(_HOW.confidence)} misses on average."] if count > 1 else []


async def _read_together(state: State, stored: StoredSweep) -> tuple[StoredSweep, list[Measured]]:
    """The sweep and what there is of its points, read again if a point was stopped or the sweep canceled in between.

    Raises UnknownSweep if it is gone.
    """
    measured = await read_measured(state, stored)
    while any(Status.CANCELED in each.statuses for each in measured):
        now = await Sweeps(state.client, state.settings, state.jobs).get(stored.id)
        if (now.stopped, now.cancel_requested_at) == (stored.stopped, stored.cancel_requested_at):
            break
        stored, measured = now, await read_measured(state, now)
    return stored, measured


def _check_metric(state: State, stored: StoredSweep, measured: Sequence[Measured], metric: str) -> None:
    workload = workload_of(state, stored)
    known = dict.fromkeys([stored.record.metric, *(each.name for each in workload.metrics)] if workload else ())
    known |= dict.fromkeys(each.name for point in measured for result in point.done for each in result.metrics)
    if any(point.done for point in measured) and metric.removeprefix(COLD) not in known:
        detail = f'"{metric[:64]}" is not a metric of this sweep; choose one of: {", ".join(known)}'
        raise InvalidSpec([FieldError("/metric", "unknown-metric", detail)])


async def read_measured(state: State, stored: StoredSweep) -> list[Measured]:
    """What there is of each point so far."""
    jobs = await state.jobs.read_all(stored.job_ids)
    done = [job.id for job in jobs if job is not None and job.record["status"] == Status.SUCCEEDED]
    found = await read_result_summaries(state.client, state.settings, done)
    results = {
        job_id: result and accuracy_metric.with_accuracy(result) for job_id, result in zip(done, found, strict=True)
    }
    by_id = {job.id: job for job in jobs if job is not None}
    return [
        Measured([by_id.get(each) for each in point.jobs], [results.get(each) for each in point.jobs])
        for point in stored.record.points
    ]


def workload_of(state: State, stored: StoredSweep) -> Workload | None:
    """None for a workload of another version."""
    return state.workloads.get(stored.record.workload)


async def read_summaries(sweeps: Sweeps, stored: Sequence[StoredSweep]) -> list[sweep.SweepSummary]:
    """The sweeps as in a list."""
    found: list[sweep.SweepSummary] = []
    for each, statuses in zip(stored, await sweeps.statuses(stored), strict=True):
        found.append(summarize(each, statuses))
        await asyncio.sleep(0)
    return found


def summarize(stored: StoredSweep, statuses: Sequence[str]) -> sweep.SweepSummary:
    record = stored.record
    places = [place for place, point in enumerate(record.points) for _ in point.jobs]
    counted = [
        status
        for place, status in zip(places, statuses, strict=True)
        if place not in stored.stopped or status in _COUNTED_IF_STOPPED
    ]
    return sweep.SweepSummary(
        id=stored.id,
        status=sweep.sweep_status(counted, stored.cancel_requested_at is not None),
        created_at=stored.created_at,
        cancel_requested_at=stored.cancel_requested_at,
        workload=record.workload,
        preset=record.preset,
        axes=record.axes,
        base=record.base,
        rounds=record.rounds,
        counts={"total": len(statuses), **Counter(statuses)},
        urls=sweep.sweep_urls(stored.id),
        owner=stored.owner,
        schema=record.schema_version,
    )


def _points(
    stored: StoredSweep, measured: Sequence[Measured], metric: str, workload: Workload | None
) -> list[sweep.SweepPoint]:
    found: list[sweep.SweepPoint] = []
    for place, (point, each) in enumerate(zip(stored.record.points, measured, strict=True)):
        known = {} if point.base is None else _compared(measured[point.base], each, metric, workload)
        found.append(_point(point, each, known | {"stopped": stored.stopped.get(place)}))
    return found


def _point(point: sweep.StoredPoint, measured: Measured, known: dict[str, Any]) -> sweep.SweepPoint:
    results, statuses = measured.done, measured.statuses
    if known["stopped"] is not None:
        statuses = [status for status in statuses if status != Status.CANCELED] or statuses
    if results:
        device = results[-1].device
        known |= {
            "metrics": [pooled(measured.metrics(each.name)) for each in results[-1].metrics],
            "verdict": min((each.verdict for each in results), key=lambda verdict: verdict.rank),
            "warnings": list(dict.fromkeys(warning.code for each in results for warning in each.warnings)),
            "device": f"{device.get('id')}@{device.get('host')}",
        }
    reasons = [job.record.get("status_reason") for job in measured.jobs if job]
    return sweep.SweepPoint(
        values=point.values,
        job=point.jobs[0],
        jobs=point.jobs,
        status=sweep.point_status(statuses),
        status_reason=next((reason for reason in reasons if reason), None),
        base=point.base,
        **known,
    )


def pooled(of_rounds: Sequence[Metric | None]) -> sweep.PointMetric:
    """The metric over the rounds that have it; that of the last job if there is only one, or if the metric is over
    seeds, which all rounds share.
    """
    found = [metric for metric in of_rounds if metric is not None]
    last = sweep.PointMetric.model_validate(found[-1], from_attributes=True)
    values = [metric.value for metric in found if metric.value is not None]
    if len(values) < 2 or accuracy_metric.is_over_seeds(last.name):
        return last
    interval = statistics.mean_interval(values)
    low = None if interval.low is None else max(0.0, interval.low)  # times and rates are positive
    return last.model_copy(update={"value": interval.value, "low": low, "high": interval.high, "reason": None})


def _batch_sizes(limit: sweep.BatchLimit, points: Sequence[sweep.SweepPoint], metric: str) -> sweep.BatchSizes:
    at = [point for point in points if limit.values.items() <= point.values.items()]
    sizes = {sweep.batch_size(point.values): point for point in at if point.metrics}
    known = {
        size: each
        for size, point in sizes.items()
        if point.verdict is not Verdict.UNTRUSTED
        and (each := point.metric(metric)) is not None
        and each.value is not None
    }
    is_rate = any(each.better == "higher" for each in known.values())
    ended = next((point for point in at if point.stopped and point.stopped.reason == "out_of_memory"), None)
    return sweep.BatchSizes(
        values=limit.values,
        largest_that_fits=max(sizes, default=None),
        fastest=(max if is_rate else min)(known, key=lambda size: known[size].value or 0.0, default=None),
        limit=f"{sweep.batch_size(ended.values)} ran out of memory" if ended else limit.detail,
    )


def _compared(base: Measured, other: Measured, metric: str, workload: Workload | None) -> dict[str, Any]:
    """The `ratio`, how many times as good as the base, and `same_work`. Empty until both have a result with the metric.

    As in comparisons of results, totals of other work aren't compared. Points differ by an axis, so another clock is a
    part of the ratio.
    """
    rounds = [
        ((first, of_base), (second, own))
        for first, second in zip(base.results, other.results, strict=True)
        if first and (of_base := first.metric(metric))
        if second and (own := second.metric(metric))
    ]
    if not rounds:
        return {}
    last = [result for result, _ in rounds[-1]]
    reason, same_work = comparability(base, other, last, metric, workload)
    if reason is not None:
        return {"ratio": _no_ratio(reason), "same_work": same_work}
    pairs = [(of_base, own) for (_, of_base), (_, own) in rounds]
    one = len(base.jobs) == 1 or accuracy_metric.is_over_seeds(metric)
    found = compare_results.ratio(*pairs[-1], _HOW, ratios.ratio_of_means) if one else _ratio_over_rounds(pairs)
    if any(result.verdict is Verdict.UNTRUSTED for result in (*base.done, *other.done)):
        found = compare_results.without_verdict(found, "a result is untrusted, so the ratio is wrong")
    return {"ratio": found, "same_work": same_work}


def comparability(
    base: Measured, other: Measured, results: Sequence[ResultSummary], metric: str, workload: Workload | None
) -> tuple[str | None, bool | None]:
    """Why the metric of two results, one of each point, can't be compared, or None; and whether it is the same work."""
    if base.spec is None or other.spec is None:
        return "the spec of a job can't be read", None
    free = compare_results.free_params(metric, workload)
    differing = compare_results.work_differences([base.spec, other.spec], results)
    same_work = not any(compare_results.changes_work(each, free) for each in differing)
    shared = compare_results.shared_metrics([each.metrics for each in results], differing, lambda _: free)
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
    found = ratios.ratio_over_rounds(over, under, _HOW.confidence)
    verdict = ratios.comparative_verdict(found.interval, _HOW.margin)
    undecided = verdict is Comparative.INCONCLUSIVE
    return Ratio(
        verdict=verdict,
        value=found.interval.value,
        as_measured=found.interval.value,
        low=found.interval.low,
        high=found.interval.high,
        degrees_of_freedom=found.degrees,
        smallest_effect=found.smallest_effect,
        more_runs=ratios.more_runs(found, _HOW.margin, _HOW.confidence) if undecided else None,
        reason=found.interval.reason,
    )


_OF_RATIO = ("ratio", "ratio_low", "ratio_high", "ratio_verdict")


def rows(found: sweep.Sweep) -> list[Row]:
    """A row for each point, in the order of the points; all have the same columns."""
    return [_row(found, point) for point in found.points]


def _row(found: sweep.Sweep, point: sweep.SweepPoint) -> Row:
    metric, ratio = point.metric(found.metric), point.ratio
    row: Row = {axis: _flat(point.values.get(axis)) for axis in found.axes}
    row |= {
        "job": " ".join(point.jobs),
        "status": str(point.status),
        "verdict": str(point.verdict) if point.verdict else None,
    }
    row |= {"metric": found.metric, "unit": metric.unit if metric else None}
    row |= {name: getattr(metric, name, None) for name in ("value", "low", "high")}
    repeat = metric.repeat if metric else None
    row |= {f"repeat_{name}": getattr(repeat, name, None) for name in ("low", "high")}
    row["stopped"] = point.stopped.reason if point.stopped else None
    if found.base is not None:
        row["same_work"] = point.same_work
        given = (ratio.value, ratio.low, ratio.high, str(ratio.verdict)) if ratio else (None,) * len(_OF_RATIO)
        row |= dict(zip(_OF_RATIO, given, strict=True))
    return row | {"warnings": " ".join(point.warnings or ())}


def _flat(value: JsonValue) -> JsonValue:
    """Lists and objects as text."""
    return (
        sweep.value_text(value) if isinstance(value, dict) else json.dumps(value) if isinstance(value, list) else value
    )


def as_csv(found: sweep.Sweep) -> str:
    table = rows(found)
    return tables.csv_text(tables.lines_of(table[0], table))


def as_markdown(found: sweep.Sweep) -> str:
    """A table with rounded figures."""
    return tables.markdown_text(tables.sweep_headings(found), tables.sweep_cells(found))


def varying(found: sweep.Sweep) -> Mapping[str, Sequence[JsonValue]]:
    """The axes with more than one value."""
    return {axis: values for axis, values in found.axes.items() if len(values) > 1}
