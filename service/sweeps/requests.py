"""Turn a request for a sweep into validated jobs: fill in its preset, make its points, check them, and queue them.

Every point is checked as POST /v1/jobs checks a spec before any job is queued, and all faults are reported together.

Each point is one job, or one job in each of several rounds. The jobs of a round are queued in a random order (seeded by
the sweep's id). In the order of the axis, the slow warming of a machine would look like an effect of the axis. In a
random order, such a drift becomes scatter. A ratio's interval over rounds includes this scatter; the interval over the
runs of a single job doesn't. A round has whole jobs, not single runs: a single run is `indicative` at best, has no
checks across runs, and trains a training workload in full. So one round is the default. For points that differ little,
use more `rounds` with fewer `processes` in each.
"""

import asyncio
import itertools
import json
import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue

from dyno import errors
from dyno.bench.contract import Workload
from dyno.bench.measure.result_metrics import COLD, accuracy_names
from dyno.models import sweep
from dyno.models.baseline import Baseline
from dyno.models.job import new_job_id
from dyno.store import api_keys
from dyno.store.sweeps import NewJob, Sweeps
from dyno.validation_messages import pointer
from service import submission, validation
from service.admission import Admission
from service.state import State

_MERGED = ("params", "measure", "labels")  # fields of a spec that are merged name by name
_BATCH_SIZES: list[JsonValue] = [2**power for power in range(5, 17)]  # 65536 is the largest that a workload accepts
_SHOWN = 3  # number of points that the text of one fault names
_canonical = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True)
class SweepPlan:
    """A request completed from its preset. `is_grid`: whether errors of values point into `grid`.

    `seeks_batch`: the batch sizes were "auto", so the plan leaves out sizes that are refused.
    """

    asked: sweep.SweepRequest
    axes: Mapping[str, list[JsonValue]]
    points: Sequence[Mapping[str, JsonValue]]
    bases: Sequence[int | None]
    is_grid: bool
    body_sha256: str
    seeks_batch: bool = False

    def pointer(self, position: int, axis: str, rest: str = "") -> str:
        """The pointer to a point's value of an axis."""
        if not self.is_grid:
            return pointer(f"/points/{position}", axis) + rest
        if self.seeks_batch and axis == sweep.BATCH_SIZE:
            return pointer("/grid", axis) + "/0"
        value = _canonical(self.points[position][axis])
        index = next(index for index, listed in enumerate(self.axes[axis]) if _canonical(listed) == value)
        return f"{pointer('/grid', axis)}/{index}{rest}"


@dataclass
class Faults:
    """Faults of points. Each fault is stored with the points that have it."""

    plan: SweepPlan
    found: dict[errors.FieldError, list[int]] = field(default_factory=dict)

    def add(self, position: int, faults: Iterable[errors.FieldError]) -> None:
        """`faults` have pointers into the spec of the point."""
        for fault in faults:
            at = f"/spec{fault.pointer}"
            for axis in self.plan.points[position]:
                start = f"/params/{axis.removeprefix(sweep.PARAM)}" if axis.startswith(sweep.PARAM) else f"/{axis}"
                if fault.pointer == start or fault.pointer.startswith(f"{start}/"):
                    at = self.plan.pointer(position, axis, fault.pointer.removeprefix(start))
            positions = self.found.setdefault(errors.FieldError(at, fault.code, fault.detail), [])
            if position not in positions:
                positions.append(position)

    def forget(self, position: int) -> str:
        """Remove the faults of a point. Returns the text of the first fault."""
        of_point = [fault for fault, positions in self.found.items() if position in positions]
        self.found = {
            fault: left
            for fault, positions in self.found.items()
            if (left := [other for other in positions if other != position])
        }
        return of_point[0].detail

    def check(self) -> None:
        """Raises InvalidSweep if there are faults."""
        if self.found:
            raise errors.InvalidSweep([self._of_points(fault, positions) for fault, positions in self.found.items()])

    def _of_points(self, fault: errors.FieldError, positions: Sequence[int]) -> errors.FieldError:
        if len(positions) == len(self.plan.points):
            return fault
        examples = "; ".join(sweep.in_words(self.plan.points[position]) for position in positions[:_SHOWN])
        more = f"; and {len(positions) - _SHOWN} more" if len(positions) > _SHOWN else ""
        return errors.FieldError(fault.pointer, fault.code, f"{fault.detail} (at {examples}{more})")


def plan(document: Mapping[str, Any], faults: Sequence[errors.FieldError], max_jobs: int) -> SweepPlan:
    """Raises InvalidSweep."""
    given = validation.validate_model(sweep.SweepRequest, document, faults, errors.InvalidSweep)
    request = _with_preset(given)
    if request.stop_hopeless and request.rounds == 1:
        detail = "it cancels further rounds: set rounds to 2 or more"
        raise errors.InvalidSweep([errors.FieldError("/stop_hopeless", "needs-rounds", detail)])
    seeks_batch = (request.grid or {}).get(sweep.BATCH_SIZE) == [sweep.AUTO]
    if seeks_batch:
        request = request.model_copy(update={"grid": {**(request.grid or {}), sweep.BATCH_SIZE: _BATCH_SIZES}})
    count = len(request.points) if request.points else math.prod(map(len, (request.grid or {}).values()))
    rounds = f" in {request.rounds} rounds" if request.rounds > 1 else ""
    if count * request.rounds > max_jobs:
        raise _too_many_jobs(not request.points, f"{count} points{rounds}", "a sweep", max_jobs)
    points = request.points or [
        dict(zip(request.grid or {}, values, strict=True))
        for values in itertools.product(*(request.grid or {}).values())
    ]
    _check_repeated(request, points)
    return SweepPlan(
        asked=request,
        axes=request.grid or _axes_of(points),
        points=points,
        bases=_bases(request, points),
        is_grid=request.grid is not None,
        body_sha256=validation.body_digest(document),
        seeks_batch=seeks_batch,
    )


def _too_many_jobs(is_grid: bool, count: str, of_what: str, most: int) -> errors.InvalidSweep:
    detail = f"the sweep has {count}; the limit of {of_what} is {most} jobs"
    return errors.InvalidSweep([errors.FieldError("/grid" if is_grid else "/points", "too-many-jobs", detail)])


def _with_preset(given: sweep.SweepRequest) -> sweep.SweepRequest:
    """The request, with missing fields filled in from its preset."""
    if given.preset is None:
        return given
    preset = sweep.presets().get(given.preset)
    if preset is None:
        detail = f'no preset "{given.preset}"; presets: {", ".join(sweep.presets())}'
        raise errors.InvalidSweep([errors.FieldError("/preset", "unknown-preset", detail)])
    merged = {name: _merged(preset.spec.get(name), given.spec.get(name)) for name in _MERGED}
    spec = {**preset.spec, **given.spec, **{name: value for name, value in merged.items() if value is not None}}
    fixed = {name: value for name, value in given.spec.items() if name not in _MERGED} | _params_of(given.spec)
    points = given.points or (None if given.grid else preset.points)
    axes = preset.grid or {}
    grid = {axis: values for axis, values in axes.items() if axis not in fixed} | (given.grid or {})
    grid = grid or {axis: [fixed[axis]] for axis in axes}  # a sweep of one point
    base = given.base
    if base is None and preset.base and all(_among(value, grid.get(axis, [])) for axis, value in preset.base.items()):
        base = None if points else preset.base  # `points` replace the preset's grid, and so may leave out its base
    changes = {"spec": spec, "grid": None if points else grid, "points": points, "base": base}
    rounds = given.rounds if "rounds" in given.model_fields_set else preset.rounds
    return given.model_copy(update={**changes, "metric": given.metric or preset.metric, "rounds": rounds})


def _merged(default: JsonValue, given: JsonValue) -> JsonValue:
    if isinstance(default, dict) and isinstance(given, dict):
        return {**default, **given}
    return default if given is None else given


def _params_of(spec: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    params = spec.get("params")
    return {f"{sweep.PARAM}{name}": value for name, value in params.items()} if isinstance(params, dict) else {}


def _among(value: JsonValue, values: Iterable[JsonValue]) -> bool:
    return _canonical(value) in map(_canonical, values)


def _axes_of(points: Sequence[Mapping[str, JsonValue]]) -> dict[str, list[JsonValue]]:
    axes: dict[str, dict[str, JsonValue]] = {}
    for point in points:
        for axis, value in point.items():
            axes.setdefault(axis, {}).setdefault(_canonical(value), value)
    return {axis: list(values.values()) for axis, values in axes.items()}


def _check_repeated(request: sweep.SweepRequest, points: Sequence[Mapping[str, JsonValue]]) -> None:
    wrong: list[errors.FieldError] = []
    lists = [(pointer("/grid", axis), values) for axis, values in (request.grid or {}).items()]
    for at, values in lists or [("/points", [dict(point) for point in points])]:
        seen = set[str]()
        for index, value in enumerate(values):
            text = _canonical(value)
            if text in seen:
                wrong.append(errors.FieldError(f"{at}/{index}", "repeated", "it is in the list already; give it once"))
            seen.add(text)
    if wrong:
        raise errors.InvalidSweep(wrong)


def _bases(request: sweep.SweepRequest, points: Sequence[Mapping[str, JsonValue]]) -> list[int | None]:
    """The position of each point's base: the point with the values of `base` and the point's own other values.

    If that point doesn't exist, the base is the only point with the values of `base`, or None if several points have
    these values. Raises InvalidSweep if no point has these values.
    """
    base = request.base
    if base is None:
        return [None] * len(points)
    positions = {_canonical(dict(point)): position for position, point in enumerate(points)}
    fitting = [
        position for position, point in enumerate(points) if _canonical({**point, **base}) == _canonical(dict(point))
    ]
    if not fitting:
        detail = f"no point has {sweep.in_words(base)}: choose values of the axes"
        raise errors.InvalidSweep([errors.FieldError("/base", "no-base", detail)])
    only = fitting[0] if len(fitting) == 1 else None
    bases = [positions.get(_canonical({**point, **base}), only) for point in points]
    return [None if base_place == position else base_place for position, base_place in enumerate(bases)]


def validate(
    planned: SweepPlan, sweep_id: str, workloads: Mapping[str, Workload], faults: Faults
) -> dict[int, validation.JobRequest]:
    """The jobs of the valid points, by position; adds the faults of other points to `faults`. Raises InvalidSweep."""
    requests: dict[int, validation.JobRequest] = {}
    labels = planned.asked.spec.get("labels", {})
    if isinstance(labels, dict) and sweep.LABEL in labels:
        at = f"/spec/labels/{sweep.LABEL}"
        raise errors.InvalidSweep([errors.FieldError(at, "reserved", "this label has the sweep's id; leave it out")])
    for position, values in enumerate(planned.points):
        try:
            document = _document(planned.asked.spec, values, workloads)
            document["labels"] = {**labels, sweep.LABEL: sweep_id} if isinstance(labels, dict) else labels
            requests[position] = validation.validate_job(document, (), workloads)
        except errors.InvalidSpec as invalid:
            faults.add(position, invalid.errors)
    _check_metric(planned.asked.metric, requests.values())
    return requests


def _document(
    spec: Mapping[str, JsonValue], values: Mapping[str, JsonValue], workloads: Mapping[str, Workload]
) -> dict[str, JsonValue]:
    """The spec at a point. Raises InvalidSpec if the workload has no param for the precision."""
    document, given = dict(spec), spec.get("params", {})
    params: dict[str, JsonValue] = {}
    for axis, value in values.items():
        if axis == "precision":
            name = _precision(spec.get("workload"), workloads)
            if f"{sweep.PARAM}{name}" in values:
                detail = f"the axis {sweep.PARAM}{name} means the same; leave one of them out"
                raise errors.InvalidSpec([errors.FieldError("/precision", "repeated", detail)])
            params[name] = value
        elif axis.startswith(sweep.PARAM):
            params[axis.removeprefix(sweep.PARAM)] = value
        else:
            document[axis] = value
    if params and isinstance(given, dict):
        document["params"] = {**given, **params}
    return document


def _precision(name: JsonValue, workloads: Mapping[str, Workload]) -> str:
    workload = workloads.get(name) if isinstance(name, str) else None
    fields = (
        workload.params.model_fields if workload else {sweep.PRECISION_PARAMS[0]: None}
    )  # for an unknown workload, another check reports the error
    param = next((candidate for candidate in sweep.PRECISION_PARAMS if candidate in fields), None)
    if param is None:
        raise errors.InvalidSpec(
            [errors.FieldError("/precision", "unknown-axis", f"{name} has no precision to choose")]
        )
    return param


def _check_metric(metric: str | None, requests: Collection[validation.JobRequest]) -> None:
    """Raises InvalidSweep if no valid point has the metric."""
    names: dict[str, None] = {}
    for request in requests:
        names |= dict.fromkeys(_metrics(request))
    if requests and metric is not None and metric.removeprefix(COLD) not in names:
        detail = f'"{metric}" is not a metric of these points; choose one of: {", ".join(names)}'
        raise errors.InvalidSweep([errors.FieldError("/metric", "unknown-metric", detail)])


def _metrics(request: validation.JobRequest) -> list[str]:
    """The names of the metrics, the headline first."""
    metrics = [*request.workload.sampled_for(request.params), *request.workload.metrics_for(request.params)]
    return list(dict.fromkeys([*(metric.name for metric in metrics), *accuracy_names(request.params)]))


async def submit(state: State, sweeps: Sweeps, planned: SweepPlan, idempotency_key: str | None) -> tuple[str, bool]:
    """Queue all jobs, or find the sweep of an earlier request with this key. Returns its id, and True if it existed.

    Raises InvalidSweep, PriorityNotAllowed, StoreUnfit, and what `Sweeps.submit` raises; then no job is queued.
    """
    sweep_id = sweep.new_sweep_id()
    try:
        faults = Faults(planned)
        requests = validate(planned, sweep_id, state.workloads, faults)
        admitted = await _admit_all(state, requests, faults)
        planned, limits = _without_refused_batches(planned, admitted, faults) if planned.seeks_batch else (planned, [])
        faults.check()
        await state.readiness.require_fit()
    except (errors.InvalidSweep, errors.StoreUnfit):
        if idempotency_key and (earlier := await sweeps.earlier(idempotency_key, planned.body_sha256)):
            return earlier, True
        raise
    new = [
        [
            NewJob(new_job_id(), request.spec, admission.warnings, dict(admission.fits), baseline)
            for request, admission, baseline in admitted.values()
        ]
        for _ in range(planned.asked.rounds)
    ]
    queued = _in_order(planned, new, sweep_id)
    try:
        submitted, replayed = await sweeps.submit(
            sweep_id,
            _record(planned, next(iter(requests.values())), new, limits),
            queued,
            idempotency_key=idempotency_key,
            body_sha256=planned.body_sha256,
            traceparent=state.traces.carried(),
        )
    except errors.LimitReached as refused:
        if refused.policy in api_keys.QUEUE_POLICIES and len(queued) > refused.quota:  # the sweep can never fit
            raise _too_many_jobs(
                planned.is_grid, f"{len(queued)} jobs", api_keys.QUEUE_POLICIES[refused.policy], refused.quota
            ) from None
        raise
    if not replayed:
        submission.wake_all(state, [job.spec for job in new[0]])
    return submitted, replayed


def _in_order(planned: SweepPlan, new: Sequence[Sequence[NewJob]], sweep_id: str) -> list[NewJob]:
    """The jobs, round by round, each round in a random order. With batch sizes "auto", smaller sizes come first, so
    that larger sizes needn't run once a size doesn't fit.
    """
    shuffled, jobs = random.Random(sweep_id), list[NewJob]()
    for of_round in new:
        positions = shuffled.sample(range(len(of_round)), len(of_round))
        if planned.seeks_batch:
            positions.sort(key=lambda position: sweep.batch_size(planned.points[position]))
        jobs += [of_round[position] for position in positions]
    return jobs


def _without_refused_batches(
    planned: SweepPlan, admitted: Collection[int], faults: Faults
) -> tuple[SweepPlan, list[sweep.BatchLimit]]:
    """The plan without the batch sizes that are refused, and the limits with the reasons.

    If all batch sizes at one combination of the other axes are refused, their faults are kept.
    """
    alike: dict[str, list[int]] = {}
    rests = [
        {axis: value for axis, value in values_of_point.items() if axis != sweep.BATCH_SIZE}
        for values_of_point in planned.points
    ]
    for position, rest in enumerate(rests):
        alike.setdefault(_canonical(rest), []).append(position)
    limits: list[sweep.BatchLimit] = []
    for positions in alike.values():
        kept = [position for position in positions if position in admitted]
        refused = {position: faults.forget(position) for position in positions if kept and position not in admitted}
        first = next((position for position in refused if position > kept[-1]), None)
        size, why = (None, None) if first is None else (sweep.batch_size(planned.points[first]), refused[first])
        limits.append(sweep.BatchLimit(values=rests[positions[0]], refused=size, detail=why))
    points = [point for position, point in enumerate(planned.points) if position in admitted]
    axes = {
        axis: [value for value in values if any(point[axis] == value for point in points)]
        for axis, values in planned.axes.items()
    }
    bases = _bases(planned.asked, points) if points else []
    return replace(planned, points=points, axes=axes, bases=bases), limits


def _record(
    planned: SweepPlan,
    first: validation.JobRequest,
    new: Sequence[Sequence[NewJob]],
    limits: list[sweep.BatchLimit],
) -> sweep.SweepRecord:
    request = planned.asked
    rows = zip(planned.points, zip(*new, strict=True), planned.bases, strict=True)
    return sweep.SweepRecord(
        workload=first.spec.workload,
        metric=request.metric or _metrics(first)[0],
        preset=request.preset,
        base=request.base,
        axes=dict(planned.axes),
        rounds=request.rounds,
        stop_hopeless=request.stop_hopeless,
        batch_limits=limits,
        points=[
            sweep.StoredPoint(values=dict(values), jobs=[job.id for job in jobs], base=base)
            for values, jobs, base in rows
        ],
    )


async def _admit_all(
    state: State, requests: Mapping[int, validation.JobRequest], faults: Faults
) -> dict[int, tuple[validation.JobRequest, Admission, Baseline | None]]:
    """The jobs that can run, by position. Adds the faults of other jobs to `faults`. Raises PriorityNotAllowed."""
    admitted: dict[int, tuple[validation.JobRequest, Admission, Baseline | None]] = {}
    for position, request in requests.items():
        try:
            admitted[position] = await submission.admitted(state, request)
        except errors.InvalidSpec as invalid:
            faults.add(position, invalid.errors)
        except errors.NoDeviceFits as absent:
            faults.add(position, [errors.FieldError("/device", absent.code, absent.detail)])
        await asyncio.sleep(0)  # let other requests run: each estimate may take a millisecond
    return admitted
