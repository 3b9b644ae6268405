"""Compute the fraction of peak, for the part of the device that the job uses and in the precision that ran."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from dyno.bench.measure import result_metrics, statistics
from dyno.models.device import Device, PeakFigure
from dyno.models.result import Peak, Roof
from dyno.models.runner_protocol import RunRecord

_NOT_MEASURED = "the device's peak for this dtype was not measured"
_LINK = "a link between memories limits this work, and its bandwidth isn't known"
_UNKNOWN = PeakFigure(value=None, reason=_NOT_MEASURED)
_INTEGERS = PeakFigure(value=None, unit="OP/s", reason=_NOT_MEASURED)

# The default precision of "float32" work by device kind, for devices that have it: TensorFlow and XLA allow TF32.
FLOAT32_DEFAULTS = {"gpu": "tf32", "tpu": "bfloat16"}
# Ceilings for unknown peaks, above any device's peak. For CPUs, per core (64 float32 FLOP, 4,096 int8 OP per cycle).
_ASSUMED_CEILING = {"float32": 1e12}
_ASSUMED_NARROW_CEILING, _ASSUMED_ELSEWHERE = 2e13, 1e17
_CORE_BYTES_PER_S = 1.5e12  # two loads and a store of 64 bytes per cycle, at less than 8 GHz
_ELSEWHERE_BYTES_PER_S = 1e15
_CACHES = 20  # times the bandwidth of an accelerator's memory. The second-level cache of GPUs reaches 2 to 4 times.
_UNIT = {"bf16x3": "bfloat16"}  # three passes through the bfloat16 unit
_NO_TF32 = ("NVIDIA_TF32_OVERRIDE", "0")


def device_in_use(device: Device, replicas: int, records: Sequence[RunRecord] = ()) -> Device:
    """`device` with the peaks of the units that the replicas use; a CPU's units share all its cores.

    If runs measured a peak again, the highest value is used, because disturbances only lower it.
    """
    if device.kind == "cpu":
        return _at_its_best(device, records)
    if replicas >= device.units:
        return device
    share = replicas / device.units
    memory = device.memory_bandwidth
    return device.model_copy(
        update={
            "peak": {dtype: _scaled(figure, share) for dtype, figure in device.peak.items()},
            "memory_bandwidth": memory and _scaled(memory, share),
        }
    )


def _at_its_best(device: Device, records: Sequence[RunRecord]) -> Device:
    highest = dict(device.peak)
    for dtype, figure in (item for record in records for item in record.peak.items()):
        if (figure.value or 0.0) > (highest.get(dtype, _UNKNOWN).value or 0.0):
            highest[dtype] = figure
    return device.model_copy(update={"peak": highest})


def peak(device: Device, params: Any, flops: float, records: Sequence[RunRecord]) -> Peak:
    """The device's peak for `params.dtype` (default float32), and the fraction reached with `flops` per execution.

    The fraction is null, with a reason, if the peak is unknown. `device` comes from `device_in_use`.
    """
    cases = records[0].cases  # the first case has the run's own figures and the dtype that the run really used
    return peak_for_dtype(device, cases[0].dtype if cases else getattr(params, "dtype", "float32"), flops, records)


def peak_for_dtype(device: Device, dtype: str, flops: float, records: Sequence[RunRecord]) -> Peak:
    """Like `peak`, for `dtype`; integers are in OP/s. Work in several dtypes, such as "int8+float32", has no peak.

    Work in float32 is compared with the peak of the observed precision (TF32, or bfloat16 on a TPU).
    """
    if "+" in dtype:
        reason = f"the work mixes {' and '.join(dtype.split('+'))}, so the peak of a single dtype doesn't apply"
        return Peak(value=None, unit=_INTEGERS.unit, reason=reason)
    ran_in = _ran_in(dtype, device, records)
    figure = device.peak.get(ran_in, _INTEGERS if dtype.startswith("int") else _UNKNOWN)
    if flops == 0:
        return Peak(value=None, unit=figure.unit, reason="this workload does no significant arithmetic")
    limit = Peak(value=figure.value, unit=figure.unit, dtype=ran_in, provenance=figure.provenance, source=figure.source)
    if figure.value is None:
        return limit.model_copy(update={"reason": figure.reason})
    return limit.model_copy(update={"fraction": _per_s(flops, records) / figure.value})


def case_peaks(device: Device, records: Sequence[RunRecord]) -> dict[str, Peak]:
    """The peak of each case by name; empty if the job has no cases."""
    cases = zip(records[0].cases, result_metrics.by_case(records).values(), strict=True)
    return {case.name: peak_for_dtype(device, case.dtype, case.flops, runs) for case, runs in cases}


def roofs(device: Device, peak: Peak, flops: float, records: Sequence[RunRecord]) -> list[Roof]:
    """The binding limit of each case, or of the job. `peak`, `flops`: of a job without cases."""
    if not records[0].cases:
        return [_roof(None, device, peak, flops, records[0].bytes, records)]
    peaks, of_runs = case_peaks(device, records), result_metrics.by_case(records)
    return [
        Roof(case=case.name, reason=_LINK)
        if case.over_link
        else _roof(case.name, device, peaks[case.name], case.flops, case.bytes, of_runs[case.name])
        for case in records[0].cases
    ]


def traffic(records: Sequence[RunRecord]) -> list[tuple[str | None, float]]:
    """The compulsory traffic in bytes per second, of the job or of each case; 0 if it isn't stated."""
    if not records[0].cases:
        return [(None, _per_s(records[0].bytes or 0.0, records))]
    runs = result_metrics.by_case(records)
    return [(case.name, _per_s(case.bytes or 0.0, runs[case.name])) for case in records[0].cases]


def _per_s(amount: float, records: Sequence[RunRecord]) -> float:
    return statistics.mean_interval([amount / statistics.median(record.samples) for record in records]).value


def _roof(
    case: str | None, device: Device, peak: Peak, flops: float, moved: float | None, records: Sequence[RunRecord]
) -> Roof:
    memory = device.memory_bandwidth
    if not moved:
        return Roof(case=case, reason="this workload doesn't state its memory traffic")
    known = Roof(case=case, intensity=flops / moved)
    if memory is None or memory.value is None:
        reason = (memory and memory.reason) or "the device's memory bandwidth was not measured"
        return known.model_copy(update={"reason": reason})
    if flops and not peak.value:
        return known.model_copy(update={"reason": peak.reason})
    ridge = peak.value / memory.value if flops and peak.value else None
    computes = ridge is not None and flops / moved > ridge
    limit: Peak | PeakFigure = peak if computes else memory
    return Roof(
        case=case,
        intensity=known.intensity,
        dtype=peak.dtype if flops else None,
        ridge=ridge,
        binds="compute" if computes else "memory",
        value=limit.value,
        unit=limit.unit,
        provenance=limit.provenance,
        fraction=peak.fraction if computes else _per_s(moved, records) / memory.value,
    )


def case_table(device: Device, records: Sequence[RunRecord]) -> dict[str, JsonValue]:
    """For each case: its dtype, FLOP, work, fraction of peak, and the median of each run."""
    first, peaks = {case.name: case for case in records[0].cases}, case_peaks(device, records)
    table: dict[str, JsonValue] = {}
    for name, case_records in result_metrics.by_case(records).items():
        reached = peaks[name]
        table[name] = {
            "dtype": first[name].dtype,
            "flops": first[name].flops,
            "work": first[name].work,
            "peak_fraction": reached.fraction,
            "peak_reason": reached.reason,
            "medians_s": [statistics.median(record.samples) for record in case_records],
        }
    return table


def ceiling_per_s(device: Device, dtype: str) -> float:
    """The maximum operations per second for work in `dtype`, whatever precision the work really runs in.

    Data sheets have no float32 peak for TPUs. Their bfloat16 peak is a bound, as TPUs build float32 from bfloat16.
    """
    names = (dtype, FLOAT32_DEFAULTS.get(device.kind, dtype)) if dtype == "float32" else (dtype,)
    peaks = [value for name in names if name in device.peak and (value := device.peak[name].value) is not None]
    if peaks:
        return max(peaks)
    if device.driven_as == "cpu":
        return len(device.cores or (0,)) * _ASSUMED_CEILING.get(dtype, _ASSUMED_NARROW_CEILING)
    return _ASSUMED_ELSEWHERE


def ceiling_bytes_per_s(device: Device) -> float:
    """Bytes per second that no cache of the device exceeds."""
    if device.driven_as == "cpu":
        return len(device.cores or (0,)) * _CORE_BYTES_PER_S
    memory = device.memory_bandwidth and device.memory_bandwidth.value
    return _CACHES * memory if memory else _ELSEWHERE_BYTES_PER_S


def _ran_in(dtype: str, device: Device, records: Sequence[RunRecord]) -> str:
    """The precision whose peak bounds the work: the fastest observed precision."""
    if dtype != "float32":
        return dtype
    precisions = [record.precision for record in records if record.precision is not None]
    observed = {run.observed for run in precisions if run.requested == dtype and run.observed}
    if not observed:
        return _assumed(dtype, device, records[0].environment.get("flags", {}))
    units = [name for precision in observed if (name := _UNIT.get(precision, precision)) in device.peak]
    return max(units, key=lambda name: device.peak[name].value or 0.0, default=dtype)


def _assumed(dtype: str, device: Device, flags: Mapping[str, str]) -> str:
    """Assume the fastest default precision if none was observed, so that no correct figure is above the peak."""
    faster = FLOAT32_DEFAULTS.get(device.kind, dtype)
    has_it = faster in device.peak and device.peak[faster].value is not None
    return faster if has_it and flags.get(_NO_TF32[0]) != _NO_TF32[1] else dtype


def _scaled(figure: PeakFigure, share: float) -> PeakFigure:
    return figure if figure.value is None else figure.model_copy(update={"value": figure.value * share})
