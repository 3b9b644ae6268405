"""Turn a request for a sweep into validated jobs: fill in its preset, make its points, check them, and queue them.

Every point is checked as POST /v1/jobs checks a spec before any job is queued, and all faults are reported together.

Each point is one job, or one in each of several rounds. The jobs of a round are queued in a random order (seeded by the
sweep's id). Otherwise a machine that slowly gets warmer would look like an effect of the axis; this way, such a drift
is scatter. Rounds make that scatter visible: a ratio's interval over rounds covers it, while the runs of a single job
don't show it. A round costs whole jobs, not single runs of them, because a job is what the method can judge: one run is
`indicative` at best, the checks over runs would be lost, and a training workload would train in full for each run. So
one round is the default, and `rounds` with fewer `processes` in each is for points that differ by little.
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
from dyno.bench.measure import accuracy_metric
from dyno.bench.measure.result_metrics import COLD
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
_BATCH_SIZES: list[JsonValue] = [2**power for power in range(5, 17)]  # 65536 is the most that a workload takes
_SHOWN = 3  # points named in the text of one fault
_canonical = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True)
class SweepPlan:
    """A request with its preset filled in. `is_grid`: where faults of the points' values are in the body.

    `seeks_batch`: the batch sizes were "auto", so those that are refused are left out.
    """

    asked: sweep.SweepRequest
    axes: Mapping[str, list[JsonValue]]
    points: Sequence[Mapping[str, JsonValue]]
    bases: Sequence[int | None]
    is_grid: bool
    body_sha256: str
    seeks_batch: bool = False

    def pointer(self, place: int, axis: str, rest: str = "") -> str:
        """The pointer to the value of an axis at a point."""
        if not self.is_grid:
            return pointer(f"/points/{place}", axis) + rest
        if self.seeks_batch and axis == sweep.BATCH_SIZE:
            return pointer("/grid", axis) + "/0"
        value = _canonical(self.points[place][axis])
        index = next(index for index, each in enumerate(self.axes[axis]) if _canonical(each) == value)
        return f"{pointer('/grid', axis)}/{index}{rest}"


@dataclass
class Faults:
    """Faults of points, each with the points that have it."""

    plan: SweepPlan
    found: dict[errors.FieldError, list[int]] = field(default_factory=dict)

    def add(self, place: int, faults: Iterable[errors.FieldError]) -> None:
        """`faults` have pointers into the spec of the point."""
        for fault in faults:
            at = f"/spec{fault.pointer}"
            for axis in self.plan.points[place]:
                start = f"/params/{axis.removeprefix(sweep.PARAM)}" if axis.startswith(sweep.PARAM) else f"/{axis}"
                if fault.pointer == start or fault.pointer.startswith(f"{start}/"):
                    at = self.plan.pointer(place, axis, fault.pointer.removeprefix(start))
            places = self.found.setdefault(errors.FieldError(at, fault.code, fault.detail), [])
            if place not in places:
                places.append(place)

    def forget(self, place: int) -> str:
        """Remove the faults of a point. Returns the first one's text."""
        of_point = [fault for fault, places in self.found.items() if place in places]
        self.found = {
            fault: left for fault, places in self.found.items() if (left := [each for each in places if each != place])
        }
        return of_point[0].detail

    def check(self) -> None:
        """Raises InvalidSweep if there are any."""
        if self.found:
            raise errors.InvalidSweep([self._of_points(fault, places) for fault, places in self.found.items()])

    def _of_points(self, fault: errors.FieldError, places: Sequence[int]) -> errors.FieldError:
        if len(places) == len(self.plan.points):
            return fault
        named = "; ".join(sweep.in_words(self.plan.points[place]) for place in places[:_SHOWN])
        more = f"; and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        return errors.FieldError(fault.pointer, fault.code, f"{fault.detail} (at {named}{more})")


def plan(document: Mapping[str, Any], faults: Sequence[errors.FieldError], max_jobs: int) -> SweepPlan:
    """Raises InvalidSweep."""
    given = validation.validate_model(sweep.SweepRequest, document, faults, errors.InvalidSweep)
    asked = _with_preset(given)
    if asked.stop_hopeless and asked.rounds == 1:
        detail = "it cancels further rounds: set rounds to 2 or more"
        raise errors.InvalidSweep([errors.FieldError("/stop_hopeless", "needs-rounds", detail)])
    seeks_batch = (asked.grid or {}).get(sweep.BATCH_SIZE) == [sweep.AUTO]
    if seeks_batch:
        asked = asked.model_copy(update={"grid": {**(asked.grid or {}), sweep.BATCH_SIZE: _BATCH_SIZES}})
    count = len(asked.points) if asked.points else math.prod(map(len, (asked.grid or {}).values()))
    rounds = f" in {asked.rounds} rounds" if asked.rounds > 1 else ""
    if count * asked.rounds > max_jobs:
        raise _too_many_jobs(not asked.points, f"{count} points{rounds}", "a sweep", max_jobs)
    points = asked.points or [
        dict(zip(asked.grid or {}, values, strict=True)) for values in itertools.product(*(asked.grid or {}).values())
    ]
    _check_repeated(asked, points)
    return SweepPlan(
        asked=asked,
        axes=asked.grid or _axes_of(points),
        points=points,
        bases=_bases(asked, points),
        is_grid=asked.grid is not None,
        body_sha256=validation.body_digest(document),
        seeks_batch=seeks_batch,
    )


def _too_many_jobs(is_grid: bool, count: str, of_what: str, most: int) -> errors.InvalidSweep:
    detail = f"the sweep has {count}; the limit of {of_what} is {most} jobs"
    return errors.InvalidSweep([errors.FieldError("/grid" if is_grid else "/points", "too-many-jobs", detail)])


def _with_preset(given: sweep.SweepRequest) -> sweep.SweepRequest:
    """The request, with its preset's fields where it has none of its own."""
    if given.preset is None:
        return given
    known = sweep.presets().get(given.preset)
    if known is None:
        detail = f'no preset "{given.preset}"; presets: {", ".join(sweep.presets())}'
        raise errors.InvalidSweep([errors.FieldError("/preset", "unknown-preset", detail)])
    merged = {name: _merged(known.spec.get(name), given.spec.get(name)) for name in _MERGED}
    spec = {**known.spec, **given.spec, **{name: value for name, value in merged.items() if value is not None}}
    fixed = {name: value for name, value in given.spec.items() if name not in _MERGED} | _params_of(given.spec)
    points = given.points or (None if given.grid else known.points)
    axes = known.grid or {}
    grid = {axis: values for axis, values in axes.items() if axis not in fixed} | (given.grid or {})
    grid = grid or {axis: [fixed[axis]] for axis in axes}  # a sweep of one point
    base = given.base
    if base is None and known.base and all(_among(value, grid.get(axis, [])) for axis, value in known.base.items()):
        base = None if points else known.base  # the request may have replaced its axis
    changes = {"spec": spec, "grid": None if points else grid, "points": points, "base": base}
    rounds = given.rounds if "rounds" in given.model_fields_set else known.rounds
    return given.model_copy(update={**changes, "metric": given.metric or known.metric, "rounds": rounds})


def _merged(known: JsonValue, given: JsonValue) -> JsonValue:
    if isinstance(known, dict) and isinstance(given, dict):
        return {**known, **given}
    return known if given is None else given


def _params_of(spec: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    params = spec.get("params")
    return {f"{sweep.PARAM}{name}": value for name, value in params.items()} if isinstance(params, dict) else {}


def _among(value: JsonValue, values: Iterable[JsonValue]) -> bool:
    return _canonical(value) in map(_canonical, values)


def _axes_of(points: Sequence[Mapping[str, JsonValue]]) -> dict[str, list[JsonValue]]:
    found: dict[str, dict[str, JsonValue]] = {}
    for point in points:
        for axis, value in point.items():
            found.setdefault(axis, {}).setdefault(_canonical(value), value)
    return {axis: list(values.values()) for axis, values in found.items()}


def _check_repeated(asked: sweep.SweepRequest, points: Sequence[Mapping[str, JsonValue]]) -> None:
    wrong: list[errors.FieldError] = []
    lists = [(pointer("/grid", axis), values) for axis, values in (asked.grid or {}).items()]
    for at, values in lists or [("/points", [dict(point) for point in points])]:
        seen = set[str]()
        for index, value in enumerate(values):
            text = _canonical(value)
            if text in seen:
                wrong.append(errors.FieldError(f"{at}/{index}", "repeated", "it is in the list already; give it once"))
            seen.add(text)
    if wrong:
        raise errors.InvalidSweep(wrong)


def _bases(asked: sweep.SweepRequest, points: Sequence[Mapping[str, JsonValue]]) -> list[int | None]:
    """The place of each point's base: the point with the values of `base` and otherwise its own.

    A point without one, as in a list of unlike points, is compared with the only point that has these values, if it is
    the only one. Raises InvalidSweep if no point has the values.
    """
    base = asked.base
    if base is None:
        return [None] * len(points)
    places = {_canonical(dict(point)): place for place, point in enumerate(points)}
    fitting = [place for place, point in enumerate(points) if _canonical({**point, **base}) == _canonical(dict(point))]
    if not fitting:
        detail = f"no point has {sweep.in_words(base)}: choose values of the axes"
        raise errors.InvalidSweep([errors.FieldError("/base", "no-base", detail)])
    only = fitting[0] if len(fitting) == 1 else None
    found = [places.get(_canonical({**point, **base}), only) for point in points]
    return [None if base_place == place else base_place for place, base_place in enumerate(found)]


def validate(
    planned: SweepPlan, sweep_id: str, workloads: Mapping[str, Workload], faults: Faults
) -> dict[int, validation.JobRequest]:
    """The jobs of the valid points, by place; adds the faults of the others. Raises InvalidSweep for a fault of all."""
    requests: dict[int, validation.JobRequest] = {}
    labels = planned.asked.spec.get("labels", {})
    if isinstance(labels, dict) and sweep.LABEL in labels:
        at = f"/spec/labels/{sweep.LABEL}"
        raise errors.InvalidSweep([errors.FieldError(at, "reserved", "this label has the sweep's id; leave it out")])
    for place, values in enumerate(planned.points):
        try:
            document = _document(planned.asked.spec, values, workloads)
            document["labels"] = {**labels, sweep.LABEL: sweep_id} if isinstance(labels, dict) else labels
            requests[place] = validation.validate_job(document, (), workloads)
        except errors.InvalidSpec as invalid:
            faults.add(place, invalid.errors)
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
    )  # the workload's name is the fault
    found = next((each for each in sweep.PRECISION_PARAMS if each in fields), None)
    if found is None:
        raise errors.InvalidSpec(
            [errors.FieldError("/precision", "unknown-axis", f"{name} has no precision to choose")]
        )
    return found


def _check_metric(metric: str | None, requests: Collection[validation.JobRequest]) -> None:
    """Raises InvalidSweep if no valid point has the metric."""
    known: dict[str, None] = {}
    for each in requests:
        known |= dict.fromkeys(_metrics(each))
    if requests and metric is not None and metric.removeprefix(COLD) not in known:
        detail = f'"{metric}" is not a metric of these points; choose one of: {", ".join(known)}'
        raise errors.InvalidSweep([errors.FieldError("/metric", "unknown-metric", detail)])


def _metrics(request: validation.JobRequest) -> list[str]:
    """The names of the metrics, the headline first."""
    found = [*request.workload.sampled_for(request.params), *request.workload.metrics_for(request.params)]
    return list(dict.fromkeys([*(each.name for each in found), *accuracy_metric.names_for(request.params)]))


async def submit(state: State, sweeps: Sweeps, planned: SweepPlan, idempotency_key: str | None) -> tuple[str, bool]:
    """Queue all jobs, or find the sweep that an earlier request with this key made. Returns its id, and whether it was.

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
        if refused.policy in api_keys.QUEUE_POLICIES and len(queued) > refused.quota:  # then it never fits
            raise _too_many_jobs(
                planned.is_grid, f"{len(queued)} jobs", api_keys.QUEUE_POLICIES[refused.policy], refused.quota
            ) from None
        raise
    if not replayed:
        submission.wake_all(state, [job.spec for job in new[0]])
    return submitted, replayed


def _in_order(planned: SweepPlan, new: Sequence[Sequence[NewJob]], sweep_id: str) -> list[NewJob]:
    """The jobs, round by round, each round in a random order. With batch sizes "auto", the smaller ones come first, so
    that the first one that doesn't fit spares the larger ones.
    """
    shuffled, found = random.Random(sweep_id), list[NewJob]()
    for of_round in new:
        places = shuffled.sample(range(len(of_round)), len(of_round))
        if planned.seeks_batch:
            places.sort(key=lambda place: sweep.batch_size(planned.points[place]))
        found += [of_round[place] for place in places]
    return found


def _without_refused_batches(
    planned: SweepPlan, admitted: Collection[int], faults: Faults
) -> tuple[SweepPlan, list[sweep.BatchLimit]]:
    """The plan without the batch sizes that are refused, and what refused them.

    If all sizes at the same values of the other axes are refused, their faults stay.
    """
    alike: dict[str, list[int]] = {}
    rests = [{axis: value for axis, value in each.items() if axis != sweep.BATCH_SIZE} for each in planned.points]
    for place, rest in enumerate(rests):
        alike.setdefault(_canonical(rest), []).append(place)
    limits: list[sweep.BatchLimit] = []
    for places in alike.values():
        kept = [place for place in places if place in admitted]
        refused = {place: faults.forget(place) for place in places if kept and place not in admitted}
        first = next((place for place in refused if place > kept[-1]), None)
        size, why = (None, None) if first is None else (sweep.batch_size(planned.points[first]), refused[first])
        limits.append(sweep.BatchLimit(values=rests[places[0]], refused=size, detail=why))
    points = [point for place, point in enumerate(planned.points) if place in admitted]
    axes = {
        axis: [each for each in values if any(point[axis] == each for point in points)]
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
    asked = planned.asked
    rows = zip(planned.points, zip(*new, strict=True), planned.bases, strict=True)
    return sweep.SweepRecord(
        workload=first.spec.workload,
        metric=asked.metric or _metrics(first)[0],
        preset=asked.preset,
        base=asked.base,
        axes=dict(planned.axes),
        rounds=asked.rounds,
        stop_hopeless=asked.stop_hopeless,
        batch_limits=limits,
        points=[
            sweep.StoredPoint(values=dict(values), jobs=[job.id for job in jobs], base=base)
            for values, jobs, base in rows
        ],
    )


async def _admit_all(
    state: State, requests: Mapping[int, validation.JobRequest], faults: Faults
) -> dict[int, tuple[validation.JobRequest, Admission, Baseline | None]]:
    """The jobs that can run, by place; adds why the others can't. Raises PriorityNotAllowed."""
    admitted: dict[int, tuple[validation.JobRequest, Admission, Baseline | None]] = {}
    for place, request in requests.items():
        try:
            allowed = submission.within_rights(state, request)
            admission = await submission.admit_request(state, allowed)
            admitted[place] = allowed, admission, await submission.named_baseline(state, allowed.spec)
        except errors.InvalidSpec as invalid:
            faults.add(place, invalid.errors)
        except errors.NoDeviceFits as absent:
            faults.add(place, [errors.FieldError("/device", absent.code, absent.detail)])
        await asyncio.sleep(0)  # an estimate may take a millisecond, and there are many
    return admitted
