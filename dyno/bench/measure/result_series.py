"""Group results into series by spec and device, and find their levels, changes and alarms.

A series has the results of one spec on one device (docs/method.md, "History"). Values of a CPU with a known clock are
adjusted to one target clock (`dyno.bench.measure.series`); all other values aren't. If a result's clock is more than
10 % away from the target, its value isn't adjusted, so a device with a low clock remains slow. If the clock's level
changed by more than 10 %, values before and after the change have different targets. `dyno.bench.measure.change_points`
searches for changes within one software environment. A new environment is compared with the previous one.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean
from typing import Any

from dyno.bench.contract import Workload
from dyno.bench.measure.change_points import MIN_LEVEL, Change, find_changes, ratio_of_levels
from dyno.bench.measure.differences import differing, leaves
from dyno.bench.measure.peers import digest, work_of
from dyno.bench.measure.series import (
    BAND_FLOOR,
    MIN_PEERS,
    factor,
    has_changed,
    is_adjustable,
    mean_clock_hz,
    robust_band,
)
from dyno.bench.measure.statistics import median
from dyno.models.comparison import Difference
from dyno.models.history import (
    AlarmRecord,
    AlarmState,
    ClassBand,
    HistoryChange,
    HistoryContext,
    HistoryPoint,
    ResultSeries,
)
from dyno.models.job import Job
from dyno.models.result import Metric, ResultSummary, Verdict

# This limit gives 0.06 to 0.25 false alarms a year if results deviate by 4 % with the recorded autocorrelation (0.44),
# and about 4 if the autocorrelation is 0.8: docs/results/history.md
ALARM_Z = 6.0
ALARM_RATIO = 0.05
LEVEL_POINTS = 10  # the number of values in the present level, and on each side of a new context
MOST_DIFFERENCES = 20
_CLOCK_CHANGE = math.log1p(BAND_FLOOR)


@dataclass(frozen=True)
class SeriesEntry:
    """A result of a series: its job, the summary, and the metric of the series."""

    job: Job
    summary: ResultSummary
    metric: Metric

    @property
    def time(self) -> datetime:
        return self.job.finished_at or self.job.created_at

    @property
    def device(self) -> str | None:
        worker = self.job.worker
        return None if worker is None else worker.full_device

    @property
    def counted(self) -> bool:
        is_positive = self.metric.value is not None and self.metric.value > 0
        return is_positive and self.summary.verdict is not Verdict.UNTRUSTED and not self.summary.device.get("emulated")


def history_of(
    results: Iterable[tuple[Job, ResultSummary]], metric: str | None, workloads: Mapping[str, Workload]
) -> list[ResultSeries]:
    """Group the results into series; the series with the newest result comes first. `with_changes` adds their changes.

    `metric`: None means each result's headline metric. Jobs that ran two specs in turns are left out.
    """
    groups = defaultdict[tuple[Any, ...], list[SeriesEntry]](list)
    for job, summary in results:
        chosen = _metric(summary, metric)
        if chosen is not None and not summary.arms:
            entry = SeriesEntry(job, summary, chosen)
            workload = workloads.get(job.spec.workload)
            spec_id = _spec_id(entry, workload.untimed_for(chosen.name) if workload else frozenset())
            groups[job.owner, spec_id, summary.hardware_id, entry.device, chosen.name].append(entry)
    series = [_series(key, sorted(entries, key=lambda entry: entry.time)) for key, entries in groups.items()]
    return sorted(_with_classes(series), key=lambda group: group.points[-1].time, reverse=True)


def _metric(summary: ResultSummary, name: str | None) -> Metric | None:
    """The metric `name`, or if `name` is None, the first metric with a figure for each run. None without a value."""
    metrics = (metric for metric in summary.metrics if (metric.name == name if name else metric.by_run))
    chosen = next(metrics, None)
    return chosen if chosen is not None and chosen.value is not None else None


def _spec_id(entry: SeriesEntry, untimed: frozenset[str]) -> str:
    work = work_of(entry.job.spec, entry.summary, entry.job.spec.params, untimed)
    return f"spec_{_digest(work)}"


def _series(key: tuple[Any, ...], results: Sequence[SeriesEntry]) -> ResultSeries:
    owner, spec_id, hardware_id, device, metric = key
    last = results[-1]
    clock_hz, adjusted = _at_one_clock(results)
    points = [_point(entry, value) for entry, value in zip(results, adjusted, strict=True)]
    better = last.metric.better
    return ResultSeries(
        series_id=f"ser_{_digest(key)}",
        spec_id=spec_id,
        hardware_id=hardware_id,
        device=device,
        device_model=last.summary.device.get("model"),
        workload=last.job.spec.workload,
        framework=last.job.spec.framework,
        params=last.job.spec.params | last.summary.params,
        precision=last.summary.precision and last.summary.precision.in_words,
        owner=owner,
        emulated=bool(last.summary.device.get("emulated")),
        metric=metric,
        headline=last.metric is _metric(last.summary, None),
        unit=last.metric.unit,
        better=better,
        clock_hz=clock_hz,
        points=points,
        contexts=list(_contexts(results, points, better)),
        changes=[],  # see `with_changes`
        of_class=None,
    )


def _at_one_clock(results: Sequence[SeriesEntry]) -> tuple[float | None, list[float | None]]:
    """The target clock of the newest values, and the adjusted values.

    A value is None for a result that isn't counted, or whose clock is unknown or more than 10 % away from the target.
    """
    usable = [entry.counted and is_adjustable(entry.summary.device) for entry in results]
    repeats = [entry.metric.repeat for entry, is_usable in zip(results, usable, strict=True) if is_usable]
    by = next((repeat.elasticity for repeat in reversed(repeats) if repeat and repeat.elasticity is not None), None)
    timed = {number: clock for number, entry in enumerate(results) if usable[number] and (clock := _clock_hz(entry))}
    if by is None or not timed:
        return None, [None] * len(results)
    clocks, targets = list(timed.values()), list[float]()
    large = [change.index for change in find_changes(clocks) if abs(math.log(change.ratio)) > _CLOCK_CHANGE]
    for start, end in pairwise([0, *large, len(clocks)]):
        targets += [median(clocks[start:end])] * (end - start)
    adjusted = list[float | None]([None] * len(results))
    for (number, clock), target in zip(timed.items(), targets, strict=True):
        if not has_changed(clock, target):
            adjusted[number] = (results[number].metric.value or 0.0) * factor(clock, target, by)
    return targets[-1], adjusted


def _clock_hz(entry: SeriesEntry) -> float | None:
    """The clock in `repeat`, else the runs' mean: a first job of one run has no `repeat`, on a GPU it has no clock."""
    return (entry.metric.repeat and entry.metric.repeat.clock_hz) or mean_clock_hz(entry.summary)


def _point(entry: SeriesEntry, adjusted: float | None) -> HistoryPoint:
    return HistoryPoint(
        time=entry.time,
        job=entry.job.id,
        value=entry.metric.value or 0.0,
        low=entry.metric.low,
        high=entry.metric.high,
        verdict=entry.summary.verdict,
        warnings=[warning.code for warning in entry.summary.warnings],
        context_id=entry.summary.context_id,
        labels=entry.job.spec.labels,
        rerun_of=entry.job.rerun_of,
        clock_hz=_clock_hz(entry),
        adjusted_value=adjusted,
        counted=entry.counted,
    )


def _compared(point: HistoryPoint) -> float:
    return point.value if point.adjusted_value is None else point.adjusted_value


def _of_context(points: Iterable[HistoryPoint], context_id: str | None) -> list[HistoryPoint]:
    return [point for point in points if point.counted and point.context_id == context_id]


def _changes(points: Sequence[HistoryPoint], better: str) -> Iterator[HistoryChange]:
    """The changes within each context. Points of several contexts may alternate."""
    for context_id in dict.fromkeys(point.context_id for point in points):
        counted = _of_context(points, context_id)
        for change in find_changes([_compared(point) for point in counted]):
            at = counted[change.index]
            ratio, low, high = _as_good(change, better)
            yield HistoryChange(
                time=at.time,
                job=at.job,
                context_id=context_id,
                ratio=ratio,
                low=low,
                high=high,
                z=change.z,
                before=change.before,
                after=change.after,
            )


def _as_good(change: Change, better: str) -> tuple[float, float, float]:
    """The ratio and its interval, inverted if lower figures are better, so that above 1 is better."""
    if better == "higher":
        return change.ratio, change.low, change.high
    return 1 / change.ratio, 1 / change.high, 1 / change.low


def _contexts(results: Sequence[SeriesEntry], points: Sequence[HistoryPoint], better: str) -> Iterator[HistoryContext]:
    first = dict[str | None, SeriesEntry]()
    for entry in results:
        first.setdefault(entry.summary.context_id, entry)
    before: SeriesEntry | None = None
    for context_id, entry in first.items():
        change, differences = None, list[Difference]()
        if before is not None:
            old, new = (_levels(_of_context(points, context)) for context in (before.summary.context_id, context_id))
            change = ratio_of_levels(old[-1][-LEVEL_POINTS:], new[0][:LEVEL_POINTS])
            sides = (before.summary.environment, entry.summary.environment)
            differences = differing([leaves("/environment", side, depth=2) for side in sides])
        ratio, low, high = _as_good(change, better) if change else (None, None, None)
        yield HistoryContext(
            context_id=context_id,
            since=entry.time,
            job=entry.job.id,
            points=sum(point.context_id == context_id for point in points),
            differences=differences[:MOST_DIFFERENCES],
            ratio=ratio,
            low=low,
            high=high,
        )
        before = entry


def _levels(counted: Sequence[HistoryPoint]) -> list[list[float]]:
    """The values of each level."""
    values = [_compared(point) for point in counted]
    bounds = [0, *(change.index for change in find_changes(values)), len(values)]
    return [values[start:end] for start, end in pairwise(bounds)]


def _with_classes(series: Sequence[ResultSeries]) -> Iterator[ResultSeries]:
    levels = defaultdict[tuple[Any, ...], dict[str | None, float]](dict)
    for member in series:
        if (level := _present_level(member)) is not None:
            levels[_class(member)][member.device] = level
    for member in series:
        own = levels[_class(member)].get(member.device)
        others = [level for device, level in levels[_class(member)].items() if device != member.device]
        yield member if own is None else member.model_copy(update={"of_class": _class_band(own, others, member.better)})


def _class(series: ResultSeries) -> tuple[Any, ...]:
    return series.owner, series.spec_id, series.hardware_id, series.metric


def _present_level(series: ResultSeries) -> float | None:
    """The median of the last counted values, not adjusted: a device with a low clock is a slow device."""
    counted = [point.value for point in series.points if point.counted]
    return median(counted[-LEVEL_POINTS:]) if counted else None


def _class_band(own: float, others: Sequence[float], better: str) -> ClassBand:
    if len(others) < MIN_PEERS:
        reason = f"a band needs {MIN_PEERS} other devices of this class, and there are {len(others)}"
        return ClassBand(devices=len(others), value=own, outcome="unknown", reason=reason)
    band = robust_band(others)
    outcome = "typical"
    if not band.low <= own <= band.high:
        outcome = "fast" if (own > band.high) == (better == "higher") else "slow"
    return ClassBand.model_validate(
        {
            "devices": len(others),
            "value": own,
            "median": band.centre,
            "low": band.low,
            "high": band.high,
            "outcome": outcome,
        }
    )


@dataclass(frozen=True)
class RaisedAlarm:
    """A large and significant change. `job` identifies the alarm in its series, even if new results move the change by
    a few points."""

    job: str
    change: HistoryChange
    record: AlarmRecord
    state: AlarmState
    is_last: bool  # no later change or environment in this series


def with_changes(series: ResultSeries, records: Mapping[str, AlarmRecord]) -> ResultSeries:
    """The series with its changes. A rerun that checks an alarm isn't counted as a point of the new level.

    `records`: the stored records of the series' alarms, by `RaisedAlarm.job`.
    """
    reruns = {record.rerun for record in records.values()}
    points = [
        point.model_copy(update={"counted": point.counted and point.job not in reruns}) for point in series.points
    ]
    changes = sorted(_changes(points, series.better), key=lambda change: change.time)
    return series.model_copy(update={"points": points, "changes": changes})


def is_alarm(change: Change | HistoryChange) -> bool:
    """Whether a change is large and significant enough for an alarm."""
    return change.z > ALARM_Z and not 1 / (1 + ALARM_RATIO) <= change.ratio <= 1 + ALARM_RATIO


def alarms_of(series: ResultSeries, records: Mapping[str, AlarmRecord]) -> list[RaisedAlarm]:
    """The alarms of a series that `with_changes` returned for these records. Only a headline metric raises alarms."""
    alarms = []
    for change in series.changes:
        if series.headline and is_alarm(change):
            counted = _of_context(series.points, change.context_id)
            job = _recorded_job(change, counted, records) or change.job
            record = records.get(job, AlarmRecord())
            is_last = change is series.changes[-1] and change.context_id == series.points[-1].context_id
            alarms.append(RaisedAlarm(job, change, record, _state(series, change, record), is_last))
    return alarms


def _recorded_job(
    change: HistoryChange, counted: Sequence[HistoryPoint], records: Mapping[str, AlarmRecord]
) -> str | None:
    """The job under which this alarm is recorded: the change's job, or a job too near to be another change."""
    positions = {point.job: position for position, point in enumerate(counted)}
    at = positions[change.job]
    near = [job for job in records if job in positions and abs(positions[job] - at) < MIN_LEVEL]
    return min(near, key=lambda job: abs(positions[job] - at), default=None)


def _state(series: ResultSeries, change: HistoryChange, record: AlarmRecord) -> AlarmState:
    if record.acknowledged_at is not None:
        return "acknowledged"
    rerun = next((point for point in series.points if point.job == record.rerun), None)
    if rerun is None or rerun.value <= 0 or rerun.context_id != change.context_id or rerun.verdict is Verdict.UNTRUSTED:
        return "new"
    counted = _of_context(series.points, change.context_id)
    at = next(position for position, point in enumerate(counted) if point.job == change.job)
    levels = counted[at - change.before : at], counted[at : at + change.after]
    old, new = (fmean(math.log(_compared(point)) for point in level) for level in levels)
    value = math.log(_compared(rerun))
    return "confirmed" if abs(value - new) < abs(value - old) else "not_confirmed"


def _digest(value: object) -> str:
    return digest(value)[:16]
