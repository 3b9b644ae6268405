"""Advice: the devices of the fleet that do most of a workload per second, per joule and per unit of currency."""

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
from dyno.bench.measure import device_advice, differences
from dyno.bench.registry import fill_defaults, resolve, validate_params
from dyno.errors import FieldError, InvalidSpec, NoResult, UnknownJob, UnknownWorkload
from dyno.models.advice import Advice, NotRanked
from dyno.models.inventory import DeviceStatus
from dyno.models.job import Job, Status
from dyno.models.result import ResultSummary, Verdict
from dyno.models.spec import FrameworkName, InterleavedSpec, Spec
from dyno.store.stored_results import read_result_summaries
from service import auth, dependencies, problems
from service.state import State

router = APIRouter(prefix="/v1/advice", tags=["results"])

MOST_RESULTS = 500  # read for one request, in 0.1 s
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
    """The spec with all params, the params that the request gives, and the metric to rank by."""

    resolved: ResolvedSpec
    given: Mapping[str, JsonValue]
    metric: str

    def is_of(self, spec: Spec) -> bool:
        """Whether a job of `spec` does the requested amount of work in the requested way."""
        requested, workload = self.resolved.spec, self.resolved.workload
        if isinstance(spec, InterleavedSpec) or (spec.framework, spec.replicas) != (
            requested.framework,
            requested.replicas,
        ):
            return False
        try:
            filled = fill_defaults(spec, validate_params(workload, spec.params, spec.replicas, spec.framework))
        except InvalidSpec:  # another version accepted this spec
            return False
        free = workload.params.how | workload.untimed_for(self.metric)
        return not any(
            differences.changes_amount(difference, free)
            for difference in differences.spec_differences([requested, filled])
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
    responses=problems.documented("record-unreadable"),
)
@auth.requires(auth.READ, auth.OWN)
async def show(state: dependencies.StateDep, filters: Annotated[AdviceFilter, Query()]) -> Advice:
    """Rank the live devices by their newest comparable results of a spec, and say where results are missing.

    `best` of a ranking lists the first device, and devices that may be as good according to their intervals. A device
    without an interval is ranked by its value alone. Prices come from `DYNO_PRICES`.
    """
    query = _asked(state, filters)
    candidates, read, has_more = await _candidates(state, query)
    chosen, not_ranked = list[device_advice.DeviceResult](), list[NotRanked]()
    for device in await state.devices.read():
        choice = await _chosen(state, device, candidates, query)
        if isinstance(choice, NotRanked):
            not_ranked.append(choice)
        else:
            chosen.append(choice)
    ranked = await anyio.to_thread.run_sync(  # in a thread: it imports SciPy
        device_advice.ranked, chosen, query.resolved.workload, query.metric, datetime.now(UTC)
    )
    return Advice(
        workload=filters.workload,
        params=query.resolved.spec.params,
        framework=filters.framework,
        metric=query.metric,
        rows=ranked.rows,
        rankings=ranked.rankings,
        crossovers=ranked.crossovers,
        not_ranked=sorted([*not_ranked, *ranked.not_ranked], key=lambda row: row.device),
        notes=ranked.notes,
        results_read=read,
        has_more=has_more,
    )


def _asked(state: State, filters: AdviceFilter) -> _Asked:
    """Raises InvalidRequest."""
    try:
        given = json.loads(filters.params)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise problems.InvalidRequest(
            [FieldError("/query/params", "not-json", 'send a JSON object, such as {"n": 512}')]
        )
    try:
        with dependencies.as_parameter_errors():
            spec = Spec(workload=filters.workload, params=given, framework=filters.framework)
            resolved = resolve(spec, state.workloads)
    except UnknownWorkload as unknown:
        raise problems.InvalidRequest([FieldError("/query/workload", "unknown-workload", unknown.detail)]) from unknown
    sampled = resolved.workload.sampled_for(resolved.params)
    rates = [figure.name for figure in sampled if figure.better == "higher" and figure.unit.endswith("/s")]
    metric = filters.metric or next(iter(rates), None)
    if metric is None or metric not in rates:
        choices = f"choose {' or '.join(rates)}" if rates else f"{filters.workload} has none"
        raise problems.InvalidRequest([FieldError("/query/metric", "not-a-rate", f"advice needs a rate; {choices}")])
    return _Asked(resolved, given, metric)


_Candidates = dict[str, list[tuple[Job, ResultSummary]]]  # key: the device's full id


async def _candidates(state: State, query: _Asked) -> tuple[_Candidates, int, bool]:
    """The newest results of the spec, the number of results that were read, and whether older results exist."""
    candidates, read, cursor = _Candidates(), 0, None
    while read < MOST_RESULTS:
        workload = query.resolved.spec.workload
        page = await state.jobs.list(status=Status.SUCCEEDED, workload=workload, cursor=cursor, limit=_PAGE)
        read, cursor = read + len(page.data), page.next_cursor
        same = [job for job in page.data if query.is_of(job.spec)]
        figures = await read_result_summaries(state.client, state.settings, [job.id for job in same])
        for job, summary in zip(same, figures, strict=True):
            if summary is not None and job.worker is not None:
                candidates.setdefault(job.worker.full_device, []).append((job, summary))
        if cursor is None:
            break
    return candidates, read, cursor is not None


async def _chosen(
    state: State, device: DeviceStatus, candidates: _Candidates, query: _Asked
) -> device_advice.DeviceResult | NotRanked:
    """The device with its newest usable result, or the reason why it has none."""
    name, framework = device.full_id, query.resolved.spec.framework
    if framework not in device.frameworks:
        return NotRanked(device=name, reason=f"{framework} isn't installed there")
    if device.emulated:
        return NotRanked(device=name, reason="the device is emulated, so it has no speed of its own")
    reason = "no result of this spec"
    for job, summary in candidates.get(name, ()):
        if wrong := next(_faults(device, job, summary, query.metric), None):
            reason = wrong
            continue
        try:
            result = await state.jobs.result(job.id)
        except (UnknownJob, NoResult):  # the job has expired meanwhile
            continue
        return device_advice.DeviceResult(device, job, result, _price(state, device))
    return NotRanked(device=name, reason=reason, run=query.command(name))


def _faults(device: DeviceStatus, job: Job, summary: ResultSummary, metric: str) -> Iterator[str]:
    """Reasons not to rank the device by this result."""
    if summary.verdict is Verdict.UNTRUSTED:
        codes = ", ".join(warning.code for warning in summary.warnings if warning.severity == "A")
        yield f"{job.id} is untrusted" + (f" ({codes})" if codes else "")
    if summary.hardware_id != hardware_id(device):
        yield f"{job.id} is from before the device's hardware changed"
    if not any(figure.name == metric and device_advice.is_rate(figure) for figure in summary.metrics):
        yield f"{job.id} has no figure of {metric} for each run"


def _price(state: State, device: DeviceStatus) -> float | None:
    prices = dict(state.settings.prices)
    return next((prices[name] for name in (device.full_id, device.id, device.model) if name in prices), None)
