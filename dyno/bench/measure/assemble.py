"""Assemble the result of a job from the records of its runs."""

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue

from dyno.bench.contract import MetricSpec, ResolvedSpec, Workload
from dyno.bench.devices.environment import context_id, hardware_id
from dyno.bench.measure import host_noise, peak_fraction, result_checks, result_metrics, stability, statistics
from dyno.bench.measure.execution_checks import path_unknown, slow_path
from dyno.bench.measure.stopping_rule import budget_use, decided_by, time_interval
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import merged_warnings, sorted_warnings, unchecked_codes, verdict
from dyno.models.device import Device
from dyno.models.result import (
    Cpu,
    Measurement,
    Memory,
    Peak,
    Phases,
    Precision,
    Reference,
    Result,
    ResultWarning,
    Roof,
    Training,
)
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import DeviceSelector, Measure, Spec

T = TypeVar("T")
# Published figures of these metrics depend on the training data.
_LEARNT = frozenset({"accuracy", "train_accuracy", "wrong", "recognised_probability"})

_Cases = Sequence[tuple[str | None, T]]  # (name of the case, value); the name is None for a job without cases


def assemble(job_id: str, resolved: ResolvedSpec, device: Device, records: Sequence[RunRecord]) -> Result:
    """The result of job `job_id`. `records` are ordered by run, run 0 first.

    Raises ValueError if `records` is empty.
    """
    if not records:
        raise ValueError("a result needs the record of at least one run")
    spec, workload, params = resolved.spec, resolved.workload, resolved.params
    flops = workload.flops(params) if records[0].flops is None else records[0].flops
    used, specs = peak_fraction.device_in_use(device, spec.replicas, records), workload.metrics_for(params)
    peak = peak_fraction.peak(used, params, flops, records)
    roofs = peak_fraction.roofs(used, peak, flops, records)
    training = next((record.training for record in records if record.training is not None), None)
    lint = workload.lint(params, device, spec.replicas)
    warnings = _warnings(spec, params, lint, used, records, peak, roofs, training)
    first = decided_by(spec.measure, records)
    further = stability.unchecked_by_sensors(device, records) | _unchecked_reasons(device, records).keys()
    by_bytes = flops == 0 and peak_fraction.traffic(records)[0][1] > 0
    precisions = [record.precision for record in records]
    missing = unchecked_codes(precisions, peak, records[0].verified, further, by_bytes=by_bytes)
    environment = records[0].environment
    return Result(
        job=job_id,
        workload=workload.name,
        params={**params.model_dump(mode="json"), **records[0].params},
        verdict=verdict(warnings, set(missing) - stability.IMPOSSIBLE[device.driven_as], len(records)),
        warnings=warnings,
        unchecked=missing,
        metrics=result_metrics.all_metrics(specs, records, first),
        measurement=Measurement(budget=budget_use(spec.measure, records)),
        phases=_phases([record.summary.phases for record in records]),
        runs=[record.summary for record in records],
        peak=peak,
        roofs=roofs,
        precision=_precision(records),
        cpu=_cpu([record.summary.cpu for record in records if record.summary.cpu is not None]),
        memory=_memory([record.memory for record in records]),
        energy=result_metrics.energy(records, _rate_unit(specs), flops),
        training=training,
        details=_details(workload.executions(params), used, records),
        device=device.model_dump(mode="json"),
        environment=environment,
        hardware_id=hardware_id(device),
        context_id=context_id(environment) if environment else None,
        reproduce=reproduce(spec, params, device),
        reference=_references(workload, training),
    )


def _references(workload: Workload, training: Training | None) -> list[Reference]:
    """The published figures. If this training's data isn't real, figures that depend on the data are left out."""
    comparable = training is None or training.data.kind == "real"
    return [figure for figure in workload.references if comparable or figure.metric not in _LEARNT]


def reproduce(spec: Spec, params: BaseModel, device: Device) -> str:
    """The command line that repeats the work on the requested device, or on a device of this kind if none is named."""
    words = ["dyno", "run", spec.workload]
    fields = type(params).model_fields
    for name, value in params.model_dump(mode="json").items():
        if value is not None or fields[name].default is not None:  # a null default needs no --param
            words += ["--param", f"{name}={_argument(value)}"]
    words += ["--device", _selector(spec.device, device)]
    words += ["--framework", spec.framework, "--seed", str(spec.seed)]
    if spec.replicas > 1:
        words += ["--replicas", str(spec.replicas)]
    measure = spec.measure.model_dump(mode="json", exclude_defaults=True, exclude={"processes", "budget_s"})
    processes = spec.measure.processes
    if spec.measure.is_divided:
        words += ["--budget", f"{spec.measure.budget_s:g}"]
    if processes is not None and processes.min == processes.max:
        words += ["--processes", str(processes.max)]
    elif processes is not None:
        measure["processes"] = processes.model_dump(mode="json")
    for name, value in measure.items():
        words += ["--measure", f"{name}={_argument(value)}"]
    return shlex.join(words)


def _selector(selector: DeviceSelector, device: Device) -> str:
    """The selector in the syntax of `dyno run --device`; the kind of `device` if the job allowed any device."""
    if selector.model is not None:
        return json.dumps(selector.model_dump(mode="json", exclude_none=True))
    return selector.id or selector.kind or device.kind


def _argument(value: JsonValue) -> str:
    """The value in the syntax of `dyno run`: JSON, or a bare word if it isn't valid JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except json.JSONDecodeError:
            return value
    return json.dumps(value)


def _warnings(
    spec: Spec,
    params: Any,
    lint: Sequence[ResultWarning],
    device: Device,
    records: Sequence[RunRecord],
    peak: Peak,
    roofs: Sequence[Roof],
    training: Training | None,
) -> list[ResultWarning]:
    """One warning per code: from the runs, or else from the whole result, or else from the params."""
    target, first = spec.measure.target_of_runs, decided_by(spec.measure, records)
    cases: _Cases[Sequence[RunRecord]] = [*result_metrics.by_case(records).items()] or [(None, records)]
    peaks: _Cases[Peak] = [*peak_fraction.case_peaks(device, records).items()] or [(None, peak)]
    highest_first = sorted(peaks, key=lambda of_case: of_case[1].fraction or 0.0, reverse=True)
    ceiling = peak_fraction.ceiling_bytes_per_s(device)
    together = [
        result_checks.emulated_device(device.emulated),
        _first((case, result_checks.above_peak(reached)) for case, reached in highest_first),
        _first((case, result_checks.above_ceiling(rate, ceiling)) for case, rate in peak_fraction.traffic(records)),
        _first(
            (case, result_checks.overhead_bound(reached, roof))
            for (case, reached), roof in zip(peaks, roofs, strict=True)
        ),
        result_checks.synthetic_data(training.data if training else None),
        *_of_conditions(cases, len(device.cores)),
        *(_of_training(training, records, device) if training else ()),
        result_checks.cache_resident(working_set, device.last_cache_bytes)
        if (working_set := _working_set(records))
        else None,
        slow_path(device, params, records),
        stability.clock_drift(
            [record.summary.clock_hz for record in records],
            [statistics.median(record.samples) for record in records],
        ),
        stability.cpu_quota(_quota_cores(records), device),
        _first((case, stability.target_missed(time_interval(runs, first), runs, target)) for case, runs in cases),
        _first(
            (case, stability.multimodal([statistics.median(record.samples) for record in runs])) for case, runs in cases
        ),
    ]
    warnings = merged_warnings([_of_run(record, device, spec.measure) for record in records])
    of_work = [advice for advice in lint if not CODES[advice.code].at_submit]
    for later in (*filter(None, together), *of_work):  # measured warnings take precedence over estimates from params
        if later.code not in {earlier.code for earlier in warnings}:
            warnings.append(later)
    return sorted_warnings(warnings)


def _of_conditions(cases: _Cases[Sequence[RunRecord]], cores: int) -> list[ResultWarning | None]:
    widths = [time_interval(runs).rel_half_width for _, runs in cases]
    return [
        _first(
            (case, stability.no_steady_state(runs, width)) for (case, runs), width in zip(cases, widths, strict=True)
        ),
        _first(
            (case, host_noise.runs_disturbed([run.summary.core_shares for run in runs], cores, width))
            for (case, runs), width in zip(cases, widths, strict=True)
        ),
    ]


def _of_training(training: Training, records: Sequence[RunRecord], device: Device) -> list[ResultWarning | None]:
    """The warnings of the full training. If the samples raise the same code, the samples' warning takes precedence."""
    epochs, watched = training.epochs, training.sensors
    of_sensors = (stability.throttled(watched), stability.device_shared(watched))
    return [
        result_checks.loss_rising(training),
        None
        if (sampled_s := _sampled_epoch_s(records)) is None
        else result_checks.epochs_disagree(sampled_s, epochs, _cores_busy(records), _next_run(records)),
        host_noise.training_disturbed(epochs, len(device.cores)),
        *(
            raised and raised.model_copy(update={"evidence": {**raised.evidence, "phase": "training"}})
            for raised in of_sensors
        ),
    ]


def _sampled_epoch_s(records: Sequence[RunRecord]) -> float | None:
    """The time of an epoch at the speed of the sampled steps; None if the samples aren't training steps."""
    if any("epoch" not in record.amounts for record in records):
        return None
    epochs_s = [statistics.median(record.samples) / record.work * record.amounts["epoch"] for record in records]
    return math.fsum(epochs_s) / len(epochs_s)


def _next_run(records: Sequence[RunRecord]) -> float:
    """The relative half-width of the interval that is likely to contain the median of one further run."""
    return (time_interval(records).rel_half_width or 0.0) * math.sqrt(1 + len(records))


def _cores_busy(records: Sequence[RunRecord]) -> float | None:
    """The number of cores that the runs kept busy during their samples."""
    used = _cpu([record.summary.cpu for record in records if record.summary.cpu is not None])
    return (used.user_s + used.system_s) / used.wall_s if used and used.wall_s > 0 else None


def _of_run(record: RunRecord, device: Device, measure: Measure) -> list[ResultWarning]:
    mismatch = result_checks.precision_mismatch(record.precision) if record.precision else None
    names: Sequence[str | None] = [case.name for case in record.cases] or [None]
    cases = [*zip(names, result_metrics.records_by_case(record), strict=True)]
    raised = (
        mismatch,
        _first((case, stability.insufficient_samples(timed, device.kind, measure)) for case, timed in cases),
        _first((case, stability.throttled(timed.summary.sensors)) for case, timed in cases),
        _first((case, stability.device_shared(timed.summary.sensors)) for case, timed in cases),
    )
    return [*record.warnings, *filter(None, raised)]


def _rate_unit(specs: Sequence[MetricSpec]) -> str | None:
    """The unit of the workload's throughput, if any."""
    rates = [spec for spec in specs if spec.better == "higher" and spec.sampled and spec.amount is None]
    return rates[0].unit if rates else None


def _first(warnings: Iterable[tuple[str | None, ResultWarning | None]]) -> ResultWarning | None:
    """The first warning among the cases, because a job has one warning per code. `evidence.case` names the case."""
    for case, raised in warnings:
        if raised is not None:
            return raised if case is None else raised.model_copy(update={"evidence": {**raised.evidence, "case": case}})
    return None


def _details(execution: str, device: Device, records: Sequence[RunRecord]) -> dict[str, JsonValue]:
    details = {"execution": execution, **records[0].details}
    if reasons := _unchecked_reasons(device, records):
        details["unchecked_reasons"] = reasons
    return {**details, "cases": peak_fraction.case_table(device, records)} if records[0].cases else details


def _unchecked_reasons(device: Device, records: Sequence[RunRecord]) -> dict[str, str]:
    """The codes that couldn't be checked, each with the reason from the first run that gives a reason."""
    reasons = {code: reason for record in reversed(records) for code, reason in record.unchecked.items()}
    if path_unknown(device):
        reasons["SLOW_PATH"] = "the system doesn't report which instructions the core has"
    return reasons


def _working_set(records: Sequence[RunRecord]) -> int:
    """The bytes that one execution touches, if the workload's data should exceed the cache; 0 if not reported."""
    value = records[0].details.get("working_set_bytes", 0)
    return value if isinstance(value, int) else 0


def _quota_cores(records: Sequence[RunRecord]) -> float | None:
    container = records[0].environment.get("container")
    return container.get("cpu_cores") if isinstance(container, dict) else None


def _phases(phases: Sequence[Phases]) -> Phases:
    """The median of each phase over the runs that had this phase."""
    seconds = {name: [value for run in phases if (value := getattr(run, name)) is not None] for name in _PHASES}
    return Phases(**{name: statistics.median(values) for name, values in seconds.items() if values})


_PHASES = tuple(Phases.model_fields)


def _precision(records: Sequence[RunRecord]) -> Precision | None:
    """The precision of the run with the largest error."""
    precisions = [record.precision for record in records if record.precision is not None]
    return max(precisions, key=lambda precision: precision.rel_error or 0.0, default=None)


def _cpu(windows: Sequence[Cpu]) -> Cpu | None:
    if not windows:
        return None
    return Cpu(
        wall_s=math.fsum(window.wall_s for window in windows),
        user_s=math.fsum(window.user_s for window in windows),
        system_s=math.fsum(window.system_s for window in windows),
    )


def _memory(peaks: Sequence[Memory]) -> Memory:
    return Memory(
        device_peak_bytes=_largest(memory.device_peak_bytes for memory in peaks),
        host_peak_bytes=_largest(memory.host_peak_bytes for memory in peaks),
        reason=next((memory.reason for memory in peaks if memory.reason), None),
    )


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
