"""Whether a job can be done at all, decided before it is queued: a device, its memory, the time allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, Field

from dyno.devices.device import Device
from dyno.errors import DoesNotFit, ExceedsTimeout, FieldError, NoDeviceFits, Unsupported
from dyno.job import SpecWarning
from dyno.spec import FrameworkName, Spec
from dyno.store.queues import device_class, fits, queue_for
from dyno.workloads import check_units
from dyno.workloads.contract import Estimate, Params
from service.specs import Request

_WAITS = '"queue_if_absent": true waits for one'
_EXTRAS: dict[FrameworkName, str] = {"tensorflow": "cpu", "jax": "jax", "torch": "torch"}  # of pyproject.toml
HONEST_FACTOR = 3  # a workload's estimate of time may be wrong by so much, so only beyond it a job is refused


class JobEstimate(BaseModel):
    """What the job would take on the fitting device that is expected to be done first."""

    device: str
    time_s: float = Field(description="All runs together, honest to a factor of about 3")
    memory_bytes: int = Field(description="The most that is held at once: host memory on a CPU, else the device's")


class Admission(NamedTuple):
    """`estimate` is null where no device is there to estimate for."""

    estimate: JobEstimate | None
    warnings: list[SpecWarning]


class _Candidate(NamedTuple):
    """`sure_s` is what no machine undercuts: the samples alone, as the spec asks for them."""

    device: Device
    run: Estimate
    time_s: float
    sure_s: float


def admit(request: Request, devices: Sequence[Device]) -> Admission:
    """Raises NoDeviceFits, Unsupported, DoesNotFit or ExceedsTimeout, each with what there is."""
    warnings = [
        SpecWarning(code=w.code, message=w.message, evidence=dict(w.evidence))
        for w in request.workload.lint(request.params)
    ]
    able = _able(request, devices)
    if not able:
        return Admission(None, [*warnings, _absent(request.spec)])
    candidates = [_candidate(request, device) for device in able]
    roomy = [c for c in candidates if c.run.memory_bytes <= c.device.memory_bytes]
    if not roomy:
        raise _does_not_fit(request, max(candidates, key=lambda c: c.device.memory_bytes))
    first = min(roomy, key=lambda c: c.time_s)
    timeout_s = request.spec.timeout_s
    if timeout_s is not None and first.time_s > timeout_s:
        if first.time_s > HONEST_FACTOR * timeout_s or first.sure_s > timeout_s:
            raise _exceeds_timeout(request, first, timeout_s)
        warnings.append(_tight(first, timeout_s))
    estimate = JobEstimate(device=first.device.full_id, time_s=first.time_s, memory_bytes=first.run.memory_bytes)
    return Admission(estimate, warnings)


def _able(request: Request, devices: Sequence[Device]) -> list[Device]:
    """The devices whose workers would take the job and that can do it; none only where it may wait for one."""
    spec = request.spec
    fitting = [device for device in devices if fits(spec.device, device)]
    able = [device for device in fitting if spec.framework in device.frameworks]
    enough = [device for device in able if not check_units(spec.replicas, device)]
    willing = [device for device in enough if not request.workload.refuses(request.params, device)]
    if willing or spec.queue_if_absent:
        return willing
    if not fitting:
        there = ", ".join(sorted(device.full_id for device in devices)) or "none"
        asked = device_class(spec.device)
        raise NoDeviceFits(f'no live worker serves "{asked}"; devices now: {there}. {_WAITS}')
    if not able:
        raise Unsupported([FieldError("/framework", "framework-missing", _missing(spec.framework, fitting))])
    if not enough:
        raise Unsupported(check_units(spec.replicas, max(able, key=lambda device: device.units)))
    refused = request.workload.refuses(request.params, enough[0])
    raise Unsupported([FieldError(f"/params{found.pointer}", found.code, found.detail) for found in refused])


def _missing(framework: FrameworkName, fitting: Sequence[Device]) -> str:
    there = ", ".join(sorted({name for device in fitting for name in device.frameworks})) or "none"
    extra = _EXTRAS[framework]
    return (
        f"{framework} is unsupported here: no live worker of a fitting device has it installed; there is: {there}. "
        f'Install the extra "{extra}" beside a worker (pip install "tensordyno[{extra}]"), or ask for one of those; '
        f"{_WAITS}"
    )


def _candidate(request: Request, device: Device) -> _Candidate:
    run = request.workload.estimate(request.params, device)
    measure = request.spec.measure
    runs, samples_s = measure.processes.min, measure.min_s  # at most max_s, so every run samples for so long
    return _Candidate(device, run, runs * max(run.time_s, samples_s) + run.train_s, runs * samples_s)


def _does_not_fit(request: Request, best: _Candidate) -> DoesNotFit:
    detail = (
        f"about {best.run.memory_bytes} bytes are needed, "
        f"{best.device.full_id} has the most of the fitting devices: {best.device.memory_bytes} bytes"
    )
    fields = _that_shrink(request, best.device, lambda estimate: estimate.memory_bytes)
    return DoesNotFit([FieldError(pointer, "does-not-fit", detail) for pointer in fields or ["/params"]])


def _exceeds_timeout(request: Request, first: _Candidate, timeout_s: float) -> ExceedsTimeout:
    detail = f"about {first.time_s:.3g} s are needed on {first.device.full_id}, timeout_s is {timeout_s:.3g}"
    fields = _that_shrink(request, first.device, lambda estimate: estimate.time_s + estimate.train_s)
    if request.spec.measure.processes.min > 1:
        fields.append("/measure/processes")
    if first.time_s == first.sure_s + first.run.train_s:
        fields.append("/measure/min_s")
    return ExceedsTimeout([FieldError(pointer, "exceeds-timeout", detail) for pointer in ["/timeout_s", *fields]])


def _that_shrink(request: Request, device: Device, cost: Callable[[Estimate], float]) -> list[str]:
    """Pointers to the whole-number params that lower the cost when they are halved: those to change."""
    full = cost(request.workload.estimate(request.params, device))
    return [
        f"/params/{name}"
        for name in type(request.params).model_fields
        if (smaller := _halved(request.params, name)) and cost(request.workload.estimate(smaller, device)) < full
    ]


def _halved(params: Params, name: str) -> Params | None:
    value = getattr(params, name)
    if type(value) is not int or value < 2:
        return None
    return params.model_copy(update={name: value // 2})


def _absent(spec: Spec) -> SpecWarning:
    queue = queue_for(spec.device, spec.framework)
    return SpecWarning(
        code="NO_DEVICE_YET",
        message=f'no live worker serves "{queue}" now; the job waits until one does',
        evidence={"queue": queue},
    )


def _tight(first: _Candidate, timeout_s: float) -> SpecWarning:
    return SpecWarning(
        code="TIMEOUT_TIGHT",
        message=f"about {first.time_s:.3g} s are expected, timeout_s is {timeout_s:.3g}: the job may be stopped",
        evidence={"estimate_s": first.time_s, "timeout_s": timeout_s},
    )
