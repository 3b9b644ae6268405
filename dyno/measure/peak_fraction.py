"""The fraction of peak: of the used part of the device, in the precision that ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from dyno.devices.device import Device, PeakFigure
from dyno.measure.result_metrics import by_case
from dyno.measure.statistics import mean_interval, median
from dyno.models.result import Peak
from dyno.models.runner_protocol import RunRecord

_NOT_MEASURED = "the device's peak for this dtype was not measured"
_UNKNOWN = PeakFigure(value=None, reason=_NOT_MEASURED)
_INTEGERS = PeakFigure(value=None, unit="OP/s", reason=_NOT_MEASURED)

# What frameworks make of "float32" unless told otherwise, on a device that has it: TensorFlow and XLA allow TF32.
_UNSEEN = {"gpu": "tf32", "tpu": "bfloat16"}
# Above what any device does, where its peak isn't known: per core of a CPU (64 float32 FLOP, 4,096 int8 OP a cycle).
_ASSUMED_CEILING = {"float32": 1e12}
_ASSUMED_NARROW_CEILING, _ASSUMED_ELSEWHERE = 2e13, 1e17
_UNIT = {"bf16x3": "bfloat16"}  # three passes through the unit of another precision
_NO_TF32 = ("NVIDIA_TF32_OVERRIDE", "0")


def device_in_use(device: Device, replicas: int, records: Sequence[RunRecord] = ()) -> Device:
    """`device` with the peaks of the units that `replicas` replicas compute on; a CPU's units share all its cores.

    Of a peak that the runs measured anew the highest counts: whatever disturbs a measurement makes it lower.
    """
    if device.kind == "cpu":
        return _at_its_best(device, records)
    if replicas >= device.units:
        return device
    share = replicas / device.units
    return device.model_copy(update={"peak": {dtype: _scaled(figure, share) for dtype, figure in device.peak.items()}})


def _at_its_best(device: Device, records: Sequence[RunRecord]) -> Device:
    highest = dict(device.peak)
    for dtype, figure in (item for record in records for item in record.peak.items()):
        if (figure.value or 0.0) > (highest.get(dtype, _UNKNOWN).value or 0.0):
            highest[dtype] = figure
    return device.model_copy(update={"peak": highest})


def peak(device: Device, params: Any, flops: float, records: Sequence[RunRecord]) -> Peak:
    """The device's peak for `params.dtype` (float32 where there is none) and the share that `flops` per execution had.

    The fraction is null, with a reason, where the peak isn't known.
    `device` as `dyno.measure.peak_fraction.device_in_use` gives it.
    """
    cases = records[0].cases  # the first one is the run's own figures, and knows what it really computed in
    return peak_for_dtype(device, cases[0].dtype if cases else getattr(params, "dtype", "float32"), flops, records)


def peak_for_dtype(device: Device, dtype: str, flops: float, records: Sequence[RunRecord]) -> Peak:
    """The same for a `dtype`; of integers it is in OP/s. Work in several dtypes, "int8+float32", has no peak.

    Work in float32 is held against the peak of the precision that was observed (TF32, or bfloat16 on a TPU).
    """
    if "+" in dtype:
        reason = f"computed partly in each of {' and '.join(dtype.split('+'))}: the peak of neither is a measure of it"
        return Peak(value=None, unit=_INTEGERS.unit, reason=reason)
    ran_in = _ran_in(dtype, device, records)
    figure = device.peak.get(ran_in, _INTEGERS if dtype.startswith("int") else _UNKNOWN)
    if flops == 0:
        return Peak(value=None, unit=figure.unit, reason="this workload does no arithmetic to speak of")
    told = Peak(value=figure.value, unit=figure.unit, dtype=ran_in, provenance=figure.provenance, source=figure.source)
    if figure.value is None:
        return told.model_copy(update={"reason": figure.reason})
    reached = mean_interval([flops / median(record.samples) for record in records]).value
    return told.model_copy(update={"fraction": reached / figure.value})


def case_peaks(device: Device, records: Sequence[RunRecord]) -> dict[str, Peak]:
    """The peak of each case, by its name; empty where the job has but one."""
    cases = zip(records[0].cases, by_case(records).values(), strict=True)
    return {case.name: peak_for_dtype(device, case.dtype, case.flops, runs) for case, runs in cases}


def case_table(device: Device, records: Sequence[RunRecord]) -> dict[str, JsonValue]:
    """Beside the metrics of each case: its work, its fraction of peak, and the median of each run."""
    first, peaks = {case.name: case for case in records[0].cases}, case_peaks(device, records)
    table: dict[str, JsonValue] = {}
    for name, of_case in by_case(records).items():
        reached = peaks[name]
        table[name] = {
            "dtype": first[name].dtype,
            "flops": first[name].flops,
            "work": first[name].work,
            "peak_fraction": reached.fraction,
            "peak_reason": reached.reason,
            "medians_s": [median(record.samples) for record in of_case],
        }
    return table


def ceiling_per_s(device: Device, dtype: str) -> float:
    """The most operations per second that work in `dtype` could do, whatever it is really computed in.

    No data sheet has a TPU's float32: that of bfloat16, which it is made of there, bounds it.
    """
    names = (dtype, _UNSEEN.get(device.kind, dtype)) if dtype == "float32" else (dtype,)
    known = [value for name in names if name in device.peak and (value := device.peak[name].value) is not None]
    if known:
        return max(known)
    if device.driven_as == "cpu":
        return len(device.cores or (0,)) * _ASSUMED_CEILING.get(dtype, _ASSUMED_NARROW_CEILING)
    return _ASSUMED_ELSEWHERE


def _ran_in(dtype: str, device: Device, records: Sequence[RunRecord]) -> str:
    """The precision whose peak bounds the work: of several that were observed, the fastest."""
    if dtype != "float32":
        return dtype
    precisions = [record.precision for record in records if record.precision is not None]
    seen = {each.observed for each in precisions if each.requested == dtype and each.observed}
    if not seen:
        return _assumed(dtype, device, records[0].environment.get("flags", {}))
    known = [name for each in seen if (name := _UNIT.get(each, each)) in device.peak]
    return max(known, key=lambda name: device.peak[name].value or 0.0, default=dtype)


def _assumed(dtype: str, device: Device, flags: Mapping[str, str]) -> str:
    """Where nobody looked: the fastest that frameworks may have taken, so that no honest figure is above the peak."""
    faster = _UNSEEN.get(device.kind, dtype)
    has_it = faster in device.peak and device.peak[faster].value is not None
    return faster if has_it and flags.get(_NO_TF32[0]) != _NO_TF32[1] else dtype


def _scaled(figure: PeakFigure, share: float) -> PeakFigure:
    return figure if figure.value is None else figure.model_copy(update={"value": figure.value * share})
