"""Check before queueing that a job can run: device, memory, time, webhook and weights.

The host name of a webhook's URL is resolved only at each delivery attempt. Files of weights aren't opened here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dyno import artifact_store, errors, webhook_url
from dyno.bench.contract import Estimate, Params, Workload
from dyno.bench.measure.warnings import warning
from dyno.bench.registry import resolve
from dyno.bench.training.workload import TrainingParams
from dyno.formatting import format_quantity
from dyno.models.device import Device, device_class, fits
from dyno.models.inventory import DeviceStatus
from dyno.models.job import JobEstimate, SpecWarning
from dyno.models.result import Artifact, ResultWarning
from dyno.models.spec import FrameworkName, Spec, WeightsRef
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.placement import profile, queue_for
from service.validation import JobRequest

_WEBHOOKS_OFF = "this service can't send webhooks: DYNO_WEBHOOK_SECRET is not set"


def check_webhook(settings: Settings, spec: Spec) -> None:
    """Raises InvalidSpec."""
    if spec.webhook is None:
        return
    if settings.webhook_secret is None:
        raise errors.InvalidSpec([errors.FieldError("/webhook", "webhooks-off", _WEBHOOKS_OFF)])
    detail = webhook_url.reject_reason(webhook_url.parse_webhook_url(spec.webhook.url), settings.webhook_allowed_hosts)
    if detail is not None:
        raise errors.InvalidSpec([errors.FieldError("/webhook", "webhook-refused", detail)])


_WEIGHTS = "/params/weights"


async def check_weights(jobs: Jobs, params: Params) -> None:
    """Raises InvalidSpec that points at the job or the file name. The file isn't opened."""
    ref = params.weights if isinstance(params, TrainingParams) else None
    if ref is None:
        return
    try:
        listed = (await jobs.result(ref.job)).artifacts
    except errors.UnknownJob:
        raise _weights_error("job", "unknown-job", f"{ref.job} doesn't exist, or was deleted") from None
    except errors.ResultNotReady as error:
        detail = f"{ref.job} is {error.job_status}: only a job that succeeded has weights"
        raise _weights_error("job", "not-succeeded", detail) from None
    _check_weights_name(ref, listed)


def _check_weights_name(ref: WeightsRef, listed: list[Artifact]) -> None:
    weights = [artifact.name for artifact in listed if artifact_store.is_weights(artifact.name)]
    available = f"weights of {ref.job}: {', '.join(weights) or 'none'}"
    if not artifact_store.is_weights(ref.name):
        kinds = " or ".join(artifact_store.WEIGHTS_SUFFIXES)
        raise _weights_error(
            "name", "not-weights", f'"{ref.name}" is not a file of weights, which ends in {kinds}; {available}'
        )
    if ref.name not in weights:
        raise _weights_error("name", "artifact-not-found", f'no file "{ref.name}"; {available}')


def _weights_error(field: str, code: str, detail: str) -> errors.InvalidSpec:
    return errors.InvalidSpec([errors.FieldError(f"{_WEIGHTS}/{field}", code, detail)])


_WAITS = 'set "queue_if_absent": true to wait for one'
_EXTRAS: dict[FrameworkName, str] = {"tensorflow": "cpu", "jax": "jax", "torch": "torch"}  # extras in pyproject.toml
ESTIMATE_FACTOR = 3  # possible error of a time estimate; jobs are refused only if they exceed the timeout despite it


class Admission(NamedTuple):
    """`estimate` is None without a live device. `fits`: for each profile of the live devices, whether the job fits."""

    estimate: JobEstimate | None
    warnings: list[SpecWarning]
    fits: Mapping[str, bool]


class RecentAdmissions:
    """A cache of admissions for one list of devices: many specs differ only in their seed or labels."""

    def __init__(self) -> None:
        self._devices: Sequence[Device] = ()
        self._known = dict[str, Admission]()

    def admit(self, request: JobRequest, devices: Sequence[Device]) -> Admission:
        """Return and raise the same as `admit`, but call `admit` only once for equal specs."""
        if devices is not self._devices or len(self._known) == _MOST_RECENT:
            self._devices, self._known = devices, {}
        spec = request.spec.model_dump_json(exclude=_NOT_ADMITTED)
        if (admission := self._known.get(spec)) is None:
            admission = self._known[spec] = admit(request, devices)
        return admission


_MOST_RECENT = 1000
_NOT_ADMITTED = {
    "seed",
    "labels",
    "webhook",
    "priority",
    "expires_in_s",
    "baseline",
    "baseline_allow",
}  # fields that `admit` doesn't read


class _Candidate(NamedTuple):
    """`sure_s`: the time of the samples that the spec demands, on any machine; a lower bound of the job's time."""

    device: Device
    run: Estimate
    time_s: float
    sure_s: float


def admit(request: JobRequest, devices: Sequence[Device]) -> Admission:
    """Raises NoDeviceFits, Unsupported, DoesNotFit or ExceedsTimeout; each message says what is available."""
    answers = [(device, request.can_run(device)) for device in _serving(request.spec, devices)]
    by_profile = {profile(device): can for device, can in answers}
    able = [device for device, can in answers if can]
    free = [device for device in able if not (isinstance(device, DeviceStatus) and device.cordoned)]
    if not free:
        reason = None if able else _refusal(request, devices)
        if not request.spec.queue_if_absent:
            raise reason or errors.NoDeviceFits(f"{_all_cordoned(able)}; {_WAITS}")
        why = _why(reason) if reason else _all_cordoned(able)
        absent = _absent(request.spec, why if answers else None)
        return Admission(None, [*_linted(request, None), absent], by_profile)
    first = min((_candidate(request, device) for device in free), key=lambda c: c.time_s)
    warnings = _linted(request, first.device)
    timeout_s = request.spec.timeout_s
    if timeout_s is not None and first.time_s > timeout_s:
        if first.time_s > ESTIMATE_FACTOR * timeout_s or first.sure_s > timeout_s:
            raise _exceeds_timeout(request, first, timeout_s)
        warnings.append(timeout_warning(first.time_s, timeout_s))
    estimate = JobEstimate(device=first.device.full_id, time_s=first.time_s, memory_bytes=first.run.memory_bytes)
    return Admission(estimate, warnings, by_profile)


def _linted(request: JobRequest, device: Device | None) -> list[SpecWarning]:
    findings = request.workload.lint(request.params, device, request.spec.replicas)
    return [spec_warning(finding) for finding in findings]


def spec_warning(finding: ResultWarning) -> SpecWarning:
    return SpecWarning(code=finding.code, message=finding.message, evidence=dict(finding.evidence))


def _serving(spec: Spec, devices: Sequence[Device]) -> list[Device]:
    """The devices whose workers serve the job's queue."""
    return [device for device in devices if fits(spec.device, device) and spec.framework in device.frameworks]


def _refusal(request: JobRequest, devices: Sequence[Device]) -> errors.DynoError:
    """The error if no device can run the job. It names what the closest match lacks."""
    spec = request.spec
    if not (meant := [device for device in devices if fits(spec.device, device)]):
        live_devices = ", ".join(sorted(device.full_id for device in devices)) or "none"
        requested = device_class(spec.device)
        return errors.NoDeviceFits(f'no live worker has a device "{requested}"; live devices: {live_devices}; {_WAITS}')
    if not (able := _serving(spec, meant)):
        return errors.Unsupported(
            [errors.FieldError("/framework", "framework-missing", _missing(spec.framework, meant))]
        )
    if not (enough := [device for device in able if not request.check_units(device)]):
        return errors.Unsupported(request.check_units(max(able, key=lambda device: device.units)))
    if not (willing := [device for device in enough if not request.refusals(device)]):
        refused = request.refusals(enough[0])
        return errors.Unsupported(
            [errors.FieldError(f"/params{fault.pointer}", fault.code, fault.detail) for fault in refused]
        )
    return _does_not_fit(request, max(willing, key=lambda device: device.memory_bytes))


def _all_cordoned(able: Sequence[Device]) -> str:
    reasons = {candidate.full_id: candidate.cordon_reason for candidate in able if isinstance(candidate, DeviceStatus)}
    names = sorted(device.full_id for device in able)
    cordoned = ", ".join(f"{name} ({why})" if (why := reasons.get(name)) else name for name in names)
    return f"all live devices that fit the job are cordoned: {cordoned}"


def _missing(framework: FrameworkName, fitting: Sequence[Device]) -> str:
    available = ", ".join(sorted({name for device in fitting for name in device.frameworks})) or "none"
    extra = _EXTRAS[framework]
    return (
        f"no live worker with a fitting device has {framework} installed; available: {available}. "
        f'Install the extra "{extra}" for a worker (pip install ".[{extra}]" in a checkout), choose another framework, '
        f"or {_WAITS}"
    )


def _candidate(request: JobRequest, device: Device) -> _Candidate:
    run = request.estimate(device)
    measure = request.spec.measure
    sure_s = 0.0 if measure.is_divided else measure.runs.min * measure.least_s  # runs sample for `least_s` or longer
    return _Candidate(device, run, run.in_all_s(measure), sure_s)


def _does_not_fit(request: JobRequest, best: Device) -> errors.DoesNotFit:
    detail = (
        f"the job needs about {format_quantity(request.estimate(best).memory_bytes, 'B')}; "
        f"the largest fitting device, {best.full_id}, has {format_quantity(best.memory_bytes, 'B')}"
    )
    fields = _that_shrink(request, best, lambda estimate: estimate.memory_bytes)
    return errors.DoesNotFit([errors.FieldError(pointer, "does-not-fit", detail) for pointer in fields or ["/params"]])


def _exceeds_timeout(request: JobRequest, first: _Candidate, timeout_s: float) -> errors.ExceedsTimeout:
    detail = f"the job needs about {first.time_s:.3g} s on {first.device.full_id}; timeout_s is {timeout_s:.3g}"
    fields = _that_shrink(
        request, first.device, lambda estimate: estimate.start_s + sum(estimate.executions_s) + estimate.train_s
    )
    measure = request.spec.measure
    less = measure.model_copy(update={"budget_s": measure.budget_s / 2})
    if first.run.in_all_s(less) < first.time_s:
        fields.append("/measure/budget_s")
    if measure.runs.min > 1 and not measure.buys_runs:
        fields.append("/measure/processes")
    if 2 * first.sure_s > first.time_s - first.run.train_s:  # samples take most of the runs' time
        fields.append("/measure/min_s")
    return errors.ExceedsTimeout(
        [errors.FieldError(pointer, "exceeds-timeout", detail) for pointer in ["/timeout_s", *fields]]
    )


def _that_shrink(request: JobRequest, device: Device, cost: Callable[[Estimate], float]) -> list[str]:
    """Pointers to the integer params that are worth changing: halving one of them lowers the cost."""
    full = cost(request.estimate(device))
    return [
        f"/params/{name}"
        for name in type(request.params).model_fields
        if (smaller := _halved(request, name)) and cost(smaller.estimate(device)) < full
    ]


def _halved(request: JobRequest, name: str) -> JobRequest | None:
    value = getattr(request.params, name)
    if type(value) is not int or value < 2:
        return None
    return replace(request, params=request.params.model_copy(update={name: value // 2}))


def _absent(spec: Spec, why: str | None) -> SpecWarning:
    """`why`: what the devices that serve the job's queue lack; None if no device serves the queue."""
    queue = queue_for(spec.device, spec.framework)
    if why is None:
        message = f'no live worker serves the queue "{queue}"; the job waits for one'
    else:
        message = f'no live device of the queue "{queue}" can run the job; the job waits for one: {why}'
    return spec_warning(warning("NO_DEVICE_YET", message, queue=queue))


def _why(reason: errors.DynoError) -> str:
    """The reason, without repeating a detail that several fields share."""
    if not isinstance(reason, errors.InvalidSpec):
        return reason.detail
    return "; ".join(dict.fromkeys(error.detail for error in reason.errors))


def expected_s(workloads: Mapping[str, Workload], spec: Spec, device: Device) -> float | None:
    """The estimated time of all runs of all variants, without any history; None if the job can't run on `device`.

    Also None for a job that another version queued and this version can't read. Its worker will report the reason.
    """
    try:
        arms = [resolve(arm, workloads) for arm in spec.arms]
    except (errors.UnknownWorkload, errors.InvalidSpec):
        return None
    if not all(arm.spec.framework in device.frameworks and arm.can_run(device) for arm in arms):
        return None
    return sum(arm.estimate(device).in_all_s(arm.spec.measure) for arm in arms)


def timeout_warning(expected_s: float, timeout_s: float) -> SpecWarning:
    """A warning if the timeout may stop the job."""
    message = f"the job needs about {expected_s:.3g} s; timeout_s is {timeout_s:.3g}, so it may be stopped"
    return spec_warning(warning("TIMEOUT_TIGHT", message, estimate_s=expected_s, timeout_s=timeout_s))
