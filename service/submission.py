"""Queue jobs and comparisons from validated requests, and wake a worker for them.

This module, `admission` and `validation` don't depend on routes or callers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypeVar

import anyio.to_thread

from dyno import celery_app
from dyno.bench.measure.baseline_outcome import check_metric, margin_advice
from dyno.bench.measure.compare_results import compare_variants
from dyno.bench.measure.result_metrics import judged_metrics
from dyno.bench.registry import resolve
from dyno.errors import (
    ExceedsTimeout,
    FieldError,
    InvalidComparison,
    InvalidSpec,
    NoDeviceFits,
    NotComparable,
    PriorityNotAllowed,
    StoreUnfit,
    UnknownBaseline,
)
from dyno.logging import current_job_id
from dyno.models.baseline import Baseline
from dyno.models.comparison import Comparison, UnfinishedComparison, comparison_of, urls_of
from dyno.models.inventory import DeviceStatus
from dyno.models.job import SCHEMA, Failure, FailureClass, Job, JobEstimate, SpecWarning, Status
from dyno.models.spec import InterleavedSpec, Spec
from dyno.models.sweep import LABEL as SWEEP_LABEL
from dyno.store import jobs, placement
from dyno.store.fleet import DEVICES_FRESH_S
from dyno.store.named_documents import Baselines
from dyno.store.stored_results import read_peers
from service.admission import (
    ESTIMATE_FACTOR,
    Admission,
    admit,
    check_webhook,
    check_weights,
    spec_warning,
    timeout_warning,
)
from service.state import State
from service.validation import ComparisonRequest, JobRequest, errors_in_spec, validate_job

log = logging.getLogger(__name__)

WAKE_WITHIN_S = 2.0
_NEW_WORKER_S = 0.05  # maximum age of a list that shows no worker; if 0, each job for an absent device would read it
_waking = set[asyncio.Task[None]]()  # tasks that send wake-ups in 4 ms each; responses don't wait for them
_wake_threads = anyio.CapacityLimiter(4)  # separate, so that a broker that hangs doesn't use up the shared threads


async def submit(
    state: State,
    request: JobRequest | ComparisonRequest,
    idempotency_key: str | None,
    rerun_of: str | None = None,
    *,
    uncharged: bool = False,
) -> jobs.Submitted:
    """Queue the job, or find the job that an earlier request with this idempotency key created.

    `uncharged`: as for `Jobs.submit`.

    Raises StoreUnfit and what `admitted` raises, except for a repeated request.
    """
    try:
        request, admission, baseline = await admitted(state, request)
        await state.readiness.require_fit()
    except (NoDeviceFits, InvalidSpec, StoreUnfit):
        if idempotency_key and (earlier := await state.jobs.earlier(idempotency_key, request.body_sha256)):
            return earlier
        raise
    submitted = await state.jobs.submit(
        request.spec,
        warnings=admission.warnings,
        fits=admission.fits,
        idempotency_key=idempotency_key,
        body_sha256=request.body_sha256,
        rerun_of=rerun_of,
        traceparent=state.traces.carried(),
        baseline=baseline,
        uncharged=uncharged,
    )
    current_job_id.set(submitted.stored.id)
    if submitted.wake:
        _start_waking(state, submitted.stored.record["queue"])
    return submitted


def rerun_request(job: Job, state: State, body_sha256: str) -> JobRequest | ComparisonRequest:
    """The job's spec as a request, with the defaults of this version filled in. Raises InvalidSpec."""
    first, *others = (replace(stored_request(arm, state), body_sha256=body_sha256) for arm in job.spec.arms[:2])
    if isinstance(job.spec, InterleavedSpec):
        return ComparisonRequest(first, others[0], job.spec, body_sha256)
    return first


def stored_request(spec: Spec, state: State) -> JobRequest:
    """A stored spec as a request. Drops a sweep's label, because that label marks the sweep's own jobs.

    Limits may be lower by now: drops `expires_in_s` if it is the default, and lowers `timeout_s` to the limit. Raises
    InvalidSpec.
    """
    is_default = spec.expires_in_s == Spec.model_fields["expires_in_s"].default
    document = spec.model_dump(mode="json", exclude={"expires_in_s"} if is_default else None)
    document["timeout_s"] = min(filter(None, (spec.timeout_s, state.settings.max_timeout_s)), default=None)
    document["labels"].pop(SWEEP_LABEL, None)
    return validate_job(document, (), state.workloads)


def wake_all(state: State, specs: Iterable[Spec]) -> None:
    """Wake one worker for each queue in which these jobs wait. An extra wake-up does no harm."""
    for queue in {placement.queue_for(spec.device, spec.framework) for spec in specs}:
        _start_waking(state, queue)


def _start_waking(state: State, queue: str) -> None:
    waking = asyncio.create_task(wake_up(state, queue))
    _waking.add(waking)  # the loop itself keeps no strong reference
    waking.add_done_callback(_waking.discard)


_Asked = TypeVar("_Asked", bound=JobRequest | ComparisonRequest)


async def admitted(state: State, request: _Asked) -> tuple[_Asked, Admission, Baseline | None]:
    """The request, adapted to its key's limits, with its admission and its baseline. It isn't queued yet.

    Raises PriorityNotAllowed, InvalidSpec, and all that `admit` raises. A comparison's error pointers are under /specs.
    """
    request = _within_rights(state, request)
    baseline = await _named_baseline(state, request.spec)
    admission = await _admit_request(state, request)
    if isinstance(request, JobRequest) and baseline and (advice := await _margin_advice(state, request, baseline)):
        admission = admission._replace(warnings=[*admission.warnings, advice])
    return request, admission, baseline


def _within_rights(state: State, request: _Asked) -> _Asked:
    """Return the request if its key may submit it. The key's limits replace a missing `expires_in_s` or `timeout_s`.

    Raises PriorityNotAllowed and InvalidSpec.
    """
    viewer, spec = state.jobs.viewer, request.spec
    if spec.priority == "high" and not viewer.high_priority:
        raise PriorityNotAllowed(
            f'{viewer.owner} may not submit jobs of priority "high": leave "priority" out, or use a key that was '
            "created with --high-priority"
        )
    kept_s = viewer.expires_in_s or (viewer.owner and state.settings.key_expires_in_s) or None
    request = _limited(request, "expires_in_s", kept_s, f"{viewer.owner} may keep results for {kept_s} s at most")
    runs_s = state.settings.max_timeout_s
    return _limited(
        request, "timeout_s", runs_s, f"a job may run for {runs_s or 0:g} s at most here (DYNO_MAX_TIMEOUT_S)"
    )


def _limited(request: _Asked, field: str, limit: float | None, detail: str) -> _Asked:
    """Lower the default of `field` to `limit`. Raises InvalidSpec if the request itself sets more than `limit`."""
    value = getattr(request.spec, field)
    if limit is None or (value is not None and value <= limit):
        return request
    first = request if isinstance(request, JobRequest) else request.first
    if value is not None and field in first.spec.model_fields_set:
        wrong = [FieldError(f"/{field}", "limit-exceeded", detail)]
        raise InvalidSpec(wrong) if isinstance(request, JobRequest) else InvalidComparison(errors_in_spec(0, wrong))
    if isinstance(request, ComparisonRequest):
        first, second = (replace(each, spec=each.spec.model_copy(update={field: limit})) for each in request.each)
        request = replace(request, first=first, second=second)
    lowered: Any = request.spec.model_copy(update={field: limit})
    return replace(request, spec=lowered)


async def _admit_request(state: State, request: JobRequest | ComparisonRequest) -> Admission:
    if isinstance(request, JobRequest):
        await _check_outside(state, request)
    else:
        for index, spec_request in enumerate(request.each):
            with _in_spec(index):
                await _check_outside(state, spec_request)
    with contextlib.suppress(NoDeviceFits, InvalidSpec):  # a device may have joined in the last second
        return _admit(state, request, await state.devices.read())
    return _admit(state, request, await state.devices.read(max_age_s=0))


def _admit(state: State, request: JobRequest | ComparisonRequest, devices: Sequence[DeviceStatus]) -> Admission:
    return state.admissions.admit(request, devices) if isinstance(request, JobRequest) else admit_both(request, devices)


async def _check_outside(state: State, request: JobRequest) -> None:
    """Check the webhook and the weights that the spec names."""
    check_webhook(state.settings, request.spec)
    await check_weights(state.jobs, request.params)


def baselines_of(state: State) -> Baselines:
    return Baselines(state.client, state.settings, state.jobs.viewer)


async def _named_baseline(state: State, spec: Spec) -> Baseline | None:
    """The key's baseline that the spec names. Raises InvalidSpec if the baseline is unknown or not comparable."""
    if spec.baseline is None:
        return None
    try:
        baseline = await baselines_of(state).own(spec.baseline)
    except UnknownBaseline as unknown:
        how = f"`dyno baseline save {spec.baseline} JOB` or PUT /v1/baselines/{spec.baseline}"
        detail = f"{unknown.detail}; save one with {how}"
        raise InvalidSpec([FieldError("/baseline", "unknown-baseline", detail)]) from None
    resolved = resolve(spec, state.workloads)
    check_metric(baseline, judged_metrics(resolved.workload, resolved.params))
    return baseline


async def _margin_advice(state: State, request: JobRequest, baseline: Baseline) -> SpecWarning | None:
    series = baseline.figure.series if baseline.figure else None
    stored = await read_peers(state.client, state.settings, series) if series else []
    headline = judged_metrics(request.workload, request.params)[0]
    advice = margin_advice(baseline, request.spec, stored, headline.better)
    return spec_warning(advice) if advice else None


async def wake_up(state: State, queue_name: str) -> None:
    """Wake a live worker of the queue, if there is one. A worker that starts later checks its queues by itself.

    A failure is only logged: the job is already stored, and maintenance will send the wake-up again.
    """
    try:
        with anyio.fail_after(WAKE_WITHIN_S):
            if await _is_served(state, queue_name):
                await anyio.to_thread.run_sync(
                    celery_app.send_wake_up, state.settings, queue_name, abandon_on_cancel=True, limiter=_wake_threads
                )
    except Exception as error:  # noqa: BLE001 - the broker's client may raise anything
        log.warning("can't send the wake-up for queue %s: %s: %s", queue_name, type(error).__name__, error)


async def _is_served(state: State, queue_name: str) -> bool:
    """Whether a live worker serves the queue.

    May miss a worker that joined within the last `_NEW_WORKER_S`. Such a worker will check its queues by itself.
    """
    for max_age_s in (DEVICES_FRESH_S, _NEW_WORKER_S):
        devices = await state.devices.read(max_age_s)
        if any(queue_name in placement.queues_served(device) for device in devices):
            return True
    return False


_STATUS: dict[Status, Literal["running", "failed", "canceled"]] = {
    Status.QUEUED: "running",
    Status.RUNNING: "running",
    Status.FAILED: "failed",
    Status.CANCELED: "canceled",
}


async def read_comparison(job: Job, spec: InterleavedSpec, state: State) -> Comparison | UnfinishedComparison:
    """The comparison of the job's two specs, or the job's progress."""
    if job.status is not Status.SUCCEEDED:
        return unfinished_comparison(job, spec, job.failure)
    result, workload = await state.jobs.result(job.id), state.workloads.get(spec.workload)
    try:
        return await anyio.to_thread.run_sync(compare_variants, job, spec, result, workload)  # may import SciPy
    except (NotComparable, InvalidComparison) as error:
        message = f"both specs ran, but their results can't be compared: {error.detail}"
        failure = Failure(failure_class=FailureClass.BENCHMARK, reason="not_comparable", message=message)
        return unfinished_comparison(job, spec, failure)


def unfinished_comparison(job: Job, spec: InterleavedSpec, failure: Failure | None) -> UnfinishedComparison:
    comparison_id = comparison_of(job.id)
    return UnfinishedComparison(
        id=comparison_id,
        status=_STATUS.get(job.status, "failed"),
        job=job.id,
        created_at=job.created_at,
        workload=spec.workload,
        metric=spec.metric,
        progress=job.progress,
        failure=failure,
        urls=urls_of(comparison_id),
        owner=job.owner,
        schema=SCHEMA,
    )


def admit_both(request: ComparisonRequest, devices: Sequence[DeviceStatus]) -> Admission:
    """Admit both specs to one device. The estimated time covers all runs of both. Raises what `admit` raises."""
    first, second = (_admit_one(request, index, devices).fits for index in range(2))
    fits = {name: can and second.get(name, False) for name, can in first.items()}
    common = [device for device in devices if fits.get(placement.profile(device))]
    if not common and not request.spec.queue_if_absent:
        raise NoDeviceFits("each spec fits a device, but no device fits both specs")
    both = [_admit_one(request, index, common) for index in range(2)]
    warnings = [*both[0].warnings, *(w for w in both[1].warnings if w not in both[0].warnings)]
    estimates = [admission.estimate for admission in both if admission.estimate is not None]
    if len(estimates) < 2:
        return Admission(None, warnings, fits)
    time_s = estimates[0].time_s * (2 if request.spec.control else 1) + estimates[1].time_s
    memory_bytes = max(of_spec.memory_bytes for of_spec in estimates)  # the specs run one after the other
    estimate = JobEstimate(device=estimates[0].device, time_s=time_s, memory_bytes=memory_bytes)
    return Admission(estimate, _with_timeout(request.spec.timeout_s, estimate, warnings), fits)


def _admit_one(request: ComparisonRequest, index: int, devices: Sequence[DeviceStatus]) -> Admission:
    with _in_spec(index):
        return admit(request.each[index], devices)


@contextmanager
def _in_spec(index: int) -> Iterator[None]:
    try:
        yield
    except InvalidSpec as invalid:
        raise type(invalid)(errors_in_spec(index, invalid.errors)) from invalid


def _with_timeout(timeout_s: float | None, estimate: JobEstimate, warnings: list[SpecWarning]) -> list[SpecWarning]:
    """Replace a single spec's timeout warning with one for the runs of both specs. Raises ExceedsTimeout."""
    if timeout_s is None or estimate.time_s <= timeout_s:
        return warnings
    if estimate.time_s > ESTIMATE_FACTOR * timeout_s:
        detail = f"all runs of both specs need about {estimate.time_s:.3g} s on {estimate.device}"
        raise ExceedsTimeout([FieldError(at, "exceeds-timeout", detail) for at in ("/specs/0/timeout_s", "/pairs")])
    joint = timeout_warning(estimate.time_s, timeout_s)
    return [*(warning for warning in warnings if warning.code != joint.code), joint]
