"""Advice: which device of the fleet does most of a workload per second, per joule and per unit of currency."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue

from dyno.bench.contract import ResolvedSpec
from dyno.bench.devices.environment import hardware_id
from dyno.bench.measure import compare_results, device_advice
from dyno.bench.registry import fill_defaults, resolve, validate_params
from dyno.errors import FieldError, InvalidSpec, NoResult, UnknownJob, UnknownWorkload
from dyno.models.advice import Advice, NotRanked
from dyno.models.inventory import DeviceStatus
from dyno.models.job import Job, Status
from dyno.models.result import ResultSummary, Verdict
from dyno.models.spec import FrameworkName, InterleavedSpec, Spec
from dyno.store.records import read_result_summaries
from service import auth, dependencies, problems
from service.state import State

router = APIRouter(prefix="/v1/advice", tags=["results"])

MOST_RESULTS = 500  # of one request, which takes 0.1 s
_PAGE = 100


class AdviceFilter(BaseModel, extra="forbid"):
    """The spec to choose a device for."""

    workload: Annotated[str, Field(max_length=64, examples=["matmul"])]
    params: Annotated[str, Field(max_length=4000)] = Field("{}", description="A JSON object, as in a spec")
    framework: FrameworkName = "tensorflow"
    metric: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="A rate of the workload, such as `throughput`; by default its first"
    )


@dataclass(frozen=True)
class _Asked:
    """The spec with all of its params, those that the request has, and the metric to rank by."""

    resolved: ResolvedSpec
    given: Mapping[str, JsonValue]
    metric: str

    def is_of(self, spec: Spec) -> bool:
        """Whether a job of that spec did the same amount of work in the same way."""
        own, workload = self.resolved.spec, self.resolved.workload
        if isinstance(spec, InterleavedSpec) or (spec.framework, spec.replicas) != (own.framework, own.replicas):
            return False
        try:
            filled = fill_defaults(spec, validate_params(workload, spec.params, spec.replicas, spec.framework))
        except InvalidSpec:  # of another version
            return False
        free = workload.params.how | workload.untimed_for(self.metric)
        return not any(
            compare_results.changes_amount(each, free) for each in compare_results.spec_differences([own, filled])
        )

    def command(self, device: str) -> str:
        words = ["dyno", "run", self.resolved.spec.workload, "--device", device]
        if self.resolved.spec.framework != "tensorflow":
            words += ["--framework", self.resolved.spec.framework]
        words += [word for name, value in self.given.items() for word in ("--param", f"{name}={json.dumps(value)}")]
        return shlex.join(words)


@router.get(
    "",
    operation_id="getAdvice",
    summary="Choose a device for a workload",
    responses=problems.documented("invalid-request", "record-unreadable", "store-unavailable"),
)
@auth.requires(auth.READ, auth.OWN)
async def show(state: dependencies.StateDep, wanted: Annotated[AdviceFilter, Query()]) -> Advice:
    """Rank the devices that are up by their newest comparable results of a spec, and say where results are missing.

    `best` of a ranking has the devices that can't be told apart from the first. Without an interval, the value alone
    ranks a device. Prices are those of `DYNO_PRICES`.
    """
    asked = _asked(state, wanted)
    candidates, read, has_more = await _candidates(state, asked)
    chosen, not_ranked = list[device_advice.DeviceResult](), list[NotRanked]()
    for device in await state.devices.read():
        found = await _chosen(state, device, candidates, asked)
        if isinstance(found, NotRanked):
            not_ranked.append(found)
        else:
            chosen.append(found)
    ranked = await anyio.to_thread.run_sync(  # in a thread: it imports SciPy
        device_advice.ranked, chosen, asked.resolved.workload, asked.metric, datetime.now(UTC)
    )
    return Advice(
        workload=wanted.workload,
        params=asked.resolved.spec.params,
        framework=wanted.framework,
        metric=asked.metric,
        rows=ranked.rows,
        rankings=ranked.rankings,
        crossovers=ranked.crossovers,
        not_ranked=sorted([*not_ranked, *ranked.not_ranked], key=lambda each: each.device),
        notes=ranked.notes,
        results_read=read,
        has_more=has_more,
    )


def _asked(state: State, wanted: AdviceFilter) -> _Asked:
    """Raises InvalidRequest."""
    try:
        given = json.loads(wanted.params)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise problems.InvalidRequest(
            [FieldError("/query/params", "not-json", 'send a JSON object, such as {"n": 512}')]
        )
    try:
        with dependencies.as_parameter_errors():
            spec = Spec(workload=wanted.workload, params=given, framework=wanted.framework)
            resolved = resolve(spec, state.workloads)
    except UnknownWorkload as unknown:
        raise problems.InvalidRequest([FieldError("/query/workload", "unknown-workload", unknown.detail)]) from unknown
    sampled = resolved.workload.sampled_for(resolved.params)
    rates = [each.name for each in sampled if each.better == "higher" and each.unit.endswith("/s")]
    metric = wanted.metric or next(iter(rates), None)
    if metric is None or metric not in rates:
        choices = f"choose {' or '.join(rates)}" if rates else f"{wanted.workload} has none"
        raise problems.InvalidRequest([FieldError("/query/metric", "not-a-rate", f"advice needs a rate; {choices}")])
    return _Asked(resolved, given, metric)


_Candidates = dict[str, list[tuple[Job, ResultSummary]]]  # by device, with its host


async def _candidates(state: State, asked: _Asked) -> tuple[_Candidates, int, bool]:
    """The newest results of the spec, the number of results looked at, and whether there are older ones."""
    found, read, cursor = _Candidates(), 0, None
    while read < MOST_RESULTS:
        workload = asked.resolved.spec.workload
        page = await state.jobs.list(status=Status.SUCCEEDED, workload=workload, cursor=cursor, limit=_PAGE)
        read, cursor = read + len(page.data), page.next_cursor
        same = [job for job in page.data if asked.is_of(job.spec)]
        figures = await read_result_summaries(state.client, state.settings, [job.id for job in same])
        for job, each in zip(same, figures, strict=True):
            if each is not None and job.worker is not None:
                found.setdefault(job.worker.full_device, []).append((job, each))
        if cursor is None:
            break
    return found, read, cursor is not None


async def _chosen(
    state: State, device: DeviceStatus, candidates: _Candidates, asked: _Asked
) -> device_advice.DeviceResult | NotRanked:
    """The device with its newest usable result, or why it has none."""
    name, framework = device.full_id, asked.resolved.spec.framework
    if framework not in device.frameworks:
        return NotRanked(device=name, reason=f"{framework} isn't installed there")
    if device.emulated:
        return NotRanked(device=name, reason="the device is emulated, so it has no speed of its own")
    reason = "no result of this spec"
    for job, summary in candidates.get(name, ()):
        if wrong := next(_faults(device, job, summary, asked.metric), None):
            reason = wrong
            continue
        try:
            result = await state.jobs.result(job.id)
        except (UnknownJob, NoResult):  # it has expired since
            continue
        return device_advice.DeviceResult(device, job, result, _price(state, device))
    return NotRanked(device=name, reason=reason, run=asked.command(name))


def _faults(device: DeviceStatus, job: Job, summary: ResultSummary, metric: str) -> Iterator[str]:
    """Why a result says nothing about the device as it is."""
    if summary.verdict is Verdict.UNTRUSTED:
        codes = ", ".join(warning.code for warning in summary.warnings if warning.severity == "A")
        yield f"{job.id} is untrusted" + (f" ({codes})" if codes else "")
    if summary.hardware_id != hardware_id(device):
        yield f"{job.id} is from before the device's hardware changed"
    if not any(each.name == metric and device_advice.is_rate(each) for each in summary.metrics):
        yield f"{job.id} has no figure of {metric} for each run"


def _price(state: State, device: DeviceStatus) -> float | None:
    prices = dict(state.settings.prices)
    return next((prices[name] for name in (device.full_id, device.id, device.model) if name in prices), None)
