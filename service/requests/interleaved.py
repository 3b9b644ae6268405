"""Two specs run in turns: admitted and queued as one job, and the comparison that this job makes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import anyio.to_thread

from dyno.errors import ExceedsTimeout, FieldError, InvalidComparison, InvalidSpec, NoDeviceFits, NotComparable
from dyno.measure.compare_results import compare_variants
from dyno.models.comparison import Comparison, UnfinishedComparison, comparison_of, urls_of
from dyno.models.inventory import DeviceStatus
from dyno.models.job import SCHEMA, Failure, FailureClass, Job, JobEstimate, SpecWarning, Status
from dyno.models.spec import InterleavedSpec
from dyno.store.jobs import Submitted
from dyno.store.placement import profile
from service.requests import submission
from service.requests.admission import HONEST_FACTOR, Admission, admit, tight
from service.requests.receivers import check_webhook
from service.requests.two_specs import Turns, under
from service.requests.weights import check_weights
from service.state import State

_STATUS: dict[Status, Literal["running", "failed", "canceled"]] = {
    Status.QUEUED: "running",
    Status.RUNNING: "running",
    Status.FAILED: "failed",
    Status.CANCELED: "canceled",
}


async def comparison(job: Job, spec: InterleavedSpec, state: State) -> Comparison | UnfinishedComparison:
    """What the job has made of its specs, or how far it is."""
    if job.status is not Status.SUCCEEDED:
        return unfinished(job, spec, job.failure)
    result, workload = await state.jobs.result(job.id), state.workloads.get(spec.workload)
    free = workload.params.untimed | workload.params.how if workload else frozenset()
    try:
        return await anyio.to_thread.run_sync(compare_variants, job, spec, result, free)  # the first one imports SciPy
    except (NotComparable, InvalidComparison) as error:
        message = f"both ran, but what ran can't be compared: {error.detail}"
        failure = Failure(failure_class=FailureClass.BENCHMARK, reason="not_comparable", message=message)
        return unfinished(job, spec, failure)


def unfinished(job: Job, spec: InterleavedSpec, failure: Failure | None) -> UnfinishedComparison:
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


async def submit(state: State, asked: Turns, idempotency_key: str | None) -> Submitted:
    """Queue the job of both. Raises as that of POST /v1/jobs does, pointers under /specs."""
    admission_of = partial(admitted, state, asked)
    return await submission.queue(state, asked.spec, asked.body_sha256, idempotency_key, admission_of)


async def admitted(state: State, asked: Turns) -> Admission:
    """What is to be said of the job before it is queued. Raises InvalidSpec, and all that `admit_both` does."""
    for place, request in enumerate(asked.each):
        try:
            check_webhook(state.settings, request.spec)
            await check_weights(state, request.params)
        except InvalidSpec as invalid:
            raise type(invalid)(under(place, invalid.errors)) from invalid
    return admit_both(asked, await submission.devices(state))


def admit_both(asked: Turns, devices: Sequence[DeviceStatus]) -> Admission:
    """On one device that fits both. Raises as `admit` does, for the time of all runs together."""
    first, second = (_admitted(asked, place, devices).fits for place in range(2))
    fits = {name: can and second.get(name, False) for name, can in first.items()}
    common = [device for device in devices if fits.get(profile(device))]
    if not common and not asked.spec.queue_if_absent:
        raise NoDeviceFits("each of the two specs has a device that it fits, but no device fits both")
    both = [_admitted(asked, place, common) for place in range(2)]
    warnings = [*both[0].warnings, *(w for w in both[1].warnings if w not in both[0].warnings)]
    estimates = [admission.estimate for admission in both if admission.estimate is not None]
    if len(estimates) < 2:
        return Admission(None, warnings, fits)
    time_s = estimates[0].time_s * (2 if asked.spec.control else 1) + estimates[1].time_s
    memory_bytes = max(each.memory_bytes for each in estimates)  # one after the other
    estimate = JobEstimate(device=estimates[0].device, time_s=time_s, memory_bytes=memory_bytes)
    return Admission(estimate, _with_timeout(asked.spec.timeout_s, estimate, warnings), fits)


def _admitted(asked: Turns, place: int, devices: Sequence[DeviceStatus]) -> Admission:
    try:
        return admit(asked.each[place], devices)
    except InvalidSpec as invalid:
        raise type(invalid)(under(place, invalid.errors)) from invalid


def _with_timeout(timeout_s: float | None, estimate: JobEstimate, warnings: list[SpecWarning]) -> list[SpecWarning]:
    """The warnings, with what is to be said of all runs in place of what was said of one spec's."""
    if timeout_s is None or estimate.time_s <= timeout_s:
        return warnings
    if estimate.time_s > HONEST_FACTOR * timeout_s:
        detail = f"about {estimate.time_s:.3g} s are needed on {estimate.device} for all runs of both"
        raise ExceedsTimeout([FieldError(at, "exceeds-timeout", detail) for at in ("/specs/0/timeout_s", "/pairs")])
    joint = tight(estimate.time_s, timeout_s)
    return [*(each for each in warnings if each.code != joint.code), joint]
