"""Sweeps with the results that there are so far: points with ratios, and tables as CSV, Markdown and JSON."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from pydantic import JsonValue

from dyno import sweep_tables
from dyno.measure import compare_results, ratios, statistics
from dyno.models import sweep
from dyno.models.comparison import Comparative, CompareHow, Ratio
from dyno.models.job import Status
from dyno.models.result import Metric, ResultSummary
from dyno.store.documents import StoredJob
from dyno.store.records import read_result_summaries
from dyno.store.sweeps import StoredSweep, Sweeps
from service.responses import spreadsheet_cell
from service.state import State

Row = dict[str, JsonValue]
_HOW = CompareHow()  # the default margin and confidence


@dataclass(frozen=True)
class _Measured:
    """The jobs of a point, by round: None for one that is gone, and for a result that isn't there."""

    jobs: Sequence[StoredJob | None]
    results: Sequence[ResultSummary | None]

    @property
    def statuses(self) -> list[str]:
        return ["gone" if job is None else job.record["status"] for job in self.jobs]

    @property
    def is_emulated(self) -> bool:
        return any(result.device.get("emulated") for result in self.results if result)

    def metrics(self, name: str) -> list[Metric | None]:
        """The metric of each round's result."""
        return [
            next((m for m in result.metrics if m.name == name), None) if result else None for result in self.results
        ]


async def read(state: State, stored: StoredSweep, metric: str | None = None) -> sweep.Sweep:
    """The sweep as it is now. `metric`: what to compare instead of its own metric."""
    jobs = await state.jobs.read_all(stored.job_ids)
    done = [job.id for job in jobs if job is not None and job.record["status"] == Status.SUCCEEDED]
    results = dict(zip(done, await read_result_summaries(state.client, state.settings, done), strict=True))
    by_id = {job.id: job for job in jobs if job is not None}
    measured = [
        _Measured([by_id.get(each) for each in point.jobs], [results.get(each) for each in point.jobs])
        for point in stored.record.points
    ]
    wanted = metric or stored.record.metric
    points = await anyio.to_thread.run_sync(_points, stored.record, measured, wanted)  # the first ratio imports SciPy
    summary = summarize(stored, [status for each in measured for status in each.statuses])
    live = [job for job in jobs if job is not None and not job.done]
    known = summary.model_dump(by_alias=True)
    return sweep.Sweep(**known, metric=wanted, points=points, eta_s=await state.jobs.ends_s(live))


async def read_summary(sweeps: Sweeps, stored: StoredSweep) -> sweep.SweepSummary:
    """The sweep as in a list."""
    return summarize(stored, await sweeps.statuses(stored))


def summarize(stored: StoredSweep, statuses: Sequence[str]) -> sweep.SweepSummary:
    record = stored.record
    return sweep.SweepSummary(
        id=stored.id,
        status=sweep.sweep_status(statuses, stored.cancel_requested_at is not None),
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


def _points(record: sweep.SweepRecord, measured: Sequence[_Measured], metric: str) -> list[sweep.SweepPoint]:
    return [
        _point(point, each, None if point.base is None else _ratio(measured[point.base], each, metric))
        for point, each in zip(record.points, measured, strict=True)
    ]


def _point(point: sweep.StoredPoint, measured: _Measured, ratio: Ratio | None) -> sweep.SweepPoint:
    results, known = [result for result in measured.results if result], dict[str, Any]()
    if results:
        device = results[-1].device
        known = {
            "metrics": [_pooled(measured.metrics(each.name)) for each in results[-1].metrics],
            "verdict": min((each.verdict for each in results), key=lambda verdict: verdict.rank),
            "warnings": list(dict.fromkeys(warning.code for each in results for warning in each.warnings)),
            "device": f"{device.get('id')}@{device.get('host')}",
        }
    reasons = [job.record.get("status_reason") for job in measured.jobs if job]
    return sweep.SweepPoint(
        values=point.values,
        job=point.jobs[0],
        jobs=point.jobs,
        status=sweep.point_status(measured.statuses),
        status_reason=next((reason for reason in reasons if reason), None),
        base=point.base,
        ratio=ratio,
        **known,
    )


def _pooled(of_rounds: Sequence[Metric | None]) -> sweep.PointMetric:
    """The metric over the rounds that have it; that of the job if there is only one."""
    found = [metric for metric in of_rounds if metric is not None]
    pooled = sweep.PointMetric.model_validate(found[-1], from_attributes=True)
    values = [metric.value for metric in found if metric.value is not None]
    if len(values) < 2:
        return pooled
    interval = statistics.mean_interval(values)
    low = None if interval.low is None else max(0.0, interval.low)  # times and rates are positive
    return pooled.model_copy(update={"value": interval.value, "low": low, "high": interval.high})


def _ratio(base: _Measured, other: _Measured, metric: str) -> Ratio | None:
    """How many times as good as the base; None until both have a result with the metric."""
    pairs = [
        (first, second)
        for first, second in zip(base.metrics(metric), other.metrics(metric), strict=True)
        if first is not None and second is not None
    ]
    if not pairs:
        return None
    if base.is_emulated != other.is_emulated:
        reason = "one of the two devices is emulated"
        return Ratio(verdict=Comparative.INCONCLUSIVE, value=None, reason=reason)
    if len(base.jobs) == 1:
        return compare_results.ratio(*pairs[0], _HOW, ratios.ratio_of_means)
    return _ratio_over_rounds(pairs)


def _ratio_over_rounds(pairs: Sequence[tuple[Metric, Metric]]) -> Ratio:
    values = [(first.value, second.value) for first, second in pairs if first.value and second.value]
    if not values or min(map(min, values)) <= 0:
        return Ratio(verdict=Comparative.INCONCLUSIVE, value=None, reason="a figure is missing, zero or below")
    firsts, seconds = zip(*values, strict=True)
    over, under = (seconds, firsts) if pairs[0][0].better == "higher" else (firsts, seconds)
    found = ratios.ratio_over_rounds(over, under, _HOW.confidence)
    return Ratio(
        verdict=ratios.comparative_verdict(found.interval, _HOW.margin),
        value=found.interval.value,
        low=found.interval.low,
        high=found.interval.high,
        degrees_of_freedom=found.degrees,
        smallest_effect=found.smallest_effect,
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
    if found.base is not None:
        given = (ratio.value, ratio.low, ratio.high, str(ratio.verdict)) if ratio else (None,) * len(_OF_RATIO)
        row |= dict(zip(_OF_RATIO, given, strict=True))
    return row | {"warnings": " ".join(point.warnings or ())}


def _flat(value: JsonValue) -> JsonValue:
    """Lists and objects as text."""
    return (
        sweep.value_text(value) if isinstance(value, dict) else json.dumps(value) if isinstance(value, list) else value
    )


def as_csv(found: sweep.Sweep) -> str:
    text, table = io.StringIO(), rows(found)
    lines = csv.DictWriter(text, list(table[0]), lineterminator="\r\n")  # RFC 4180
    lines.writeheader()
    lines.writerows({name: spreadsheet_cell(value) for name, value in row.items()} for row in table)
    return text.getvalue()


def as_markdown(found: sweep.Sweep) -> str:
    """A table with rounded figures."""
    head = sweep_tables.headings(found)
    lines: list[list[str]] = [head, ["---"] * len(head), *sweep_tables.cells(found)]
    return "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)


def _escaped(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


def varying(found: sweep.Sweep) -> Mapping[str, Sequence[JsonValue]]:
    """The axes with more than one value."""
    return {axis: values for axis, values in found.axes.items() if len(values) > 1}
