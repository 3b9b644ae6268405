"""The peak behind a fraction: of the precision that ran, on the used part of the device."""

import pytest

from dyno.bench.devices.datasheet import datasheet_peaks
from dyno.bench.measure.peak_fraction import ceiling_per_s, device_in_use, peak_for_dtype, roofs
from dyno.models.device import Device, PeakFigure
from dyno.models.result import Precision
from dyno.models.spec import Spec


def board(kind, model, units=1):
    peaks = datasheet_peaks(kind, model, units)
    facts = {"id": f"{kind}:0", "kind": kind, "model": model, "host": "h", "memory_bytes": 2**33, "units": units}
    figures = {"peak": peaks.by_dtype, "memory_bandwidth": peaks.memory}
    return Device.model_validate(facts).model_copy(update=figures)


A100, V5E, T4 = board("gpu", "NVIDIA A100-SXM4-80GB"), board("tpu", "TPU v5e", 8), board("gpu", "Tesla T4")


@pytest.mark.parametrize(
    ("device", "requested", "observed", "ran_in", "peak"),
    [
        (A100, "float32", "float32", "float32", 19.5e12),
        (A100, "float32", "tf32", "tf32", 156e12),
        (A100, "float32", None, "tf32", 156e12),  # unobserved, and TensorFlow and XLA allow it
        (A100, "bfloat16", "bfloat16", "bfloat16", 312e12),
        (T4, "float32", None, "float32", 8.1e12),  # it has no TF32
        (V5E, "float32", None, "bfloat16", 8 * 197e12),
        (V5E, "float32", "bf16x3", "bfloat16", 8 * 197e12),
        (V5E, "float32", "float32", "float32", None),
    ],
)
def test_float32_is_compared_with_the_peak_of_the_precision_that_ran(record, device, requested, observed, ran_in, peak):
    precision = Precision(requested=requested, observed=observed, rel_error=1e-4)
    found = peak_for_dtype(device, requested, 1e12, [record([0.5] * 20, precision=precision)])
    assert (found.dtype, found.value) == (ran_in, peak)
    if peak is not None:
        assert found.fraction == pytest.approx(2e12 / peak)
        assert (found.provenance, found.reason) == ("datasheet", None)
        assert "data sheet" in (found.source or "") or "Google Cloud" in (found.source or "")
    else:
        assert found.reason


def test_the_faster_of_two_precisions_bounds_the_work(record):
    runs = [
        record([0.5] * 20, precision=Precision(requested="float32", observed=observed))
        for observed in ("float32", "tf32")
    ]
    assert peak_for_dtype(A100, "float32", 1e12, runs).dtype == "tf32"


def test_forbidden_tf32_did_not_run(record):
    forbidden = {"flags": {"NVIDIA_TF32_OVERRIDE": "0"}}
    assert peak_for_dtype(A100, "float32", 1e12, [record([0.5] * 20, environment=forbidden)]).dtype == "float32"


def test_a_fraction_is_of_the_units_that_the_replicas_use(device):
    assert device_in_use(V5E, 2).peak["bfloat16"].value == 2 * 197e12
    assert device_in_use(V5E, 2).peak["float32"].reason
    assert device_in_use(V5E, 8) == V5E
    virtual = device.model_copy(update={"units": 64})
    assert device_in_use(virtual, 1) == virtual


def test_the_highest_measurement_of_a_cpu_s_peak_counts(device, record):
    def measured(value):
        return PeakFigure(value=value, provenance="measured here")

    on = device.model_copy(update={"peak": {"float32": measured(1e12), "float16": measured(None)}})
    runs = [record([0.5] * 20, peak={"float32": measured(value)}) for value in (None, 3e12, 2e12)]
    assert device_in_use(on, 1, runs).peak == {"float32": measured(3e12), "float16": measured(None)}
    assert device_in_use(on, 1, runs[:1]) == device_in_use(on, 1, [record([0.5] * 20)]) == on


def test_a_result_on_a_gpu_has_its_fraction_with_its_source(result, record):
    runs = [record([1e-9] * 20) for _ in range(2)]
    two = board("gpu", "NVIDIA H200", 2)
    found = result(runs, on=two, spec=Spec(workload="some"), dtype="bfloat16").peak
    assert (found.value, found.provenance, found.dtype) == (989e12, "datasheet", "bfloat16")
    assert found.fraction == pytest.approx(1e12 / 989e12)


@pytest.mark.parametrize(
    ("device", "dtype", "most"),
    [
        (A100, "float32", 156e12),  # in TF32
        (T4, "float32", 8.1e12),
        (V5E, "float32", 8 * 197e12),  # in bfloat16
        (A100, "float16", 312e12),
        (T4, "bfloat16", 1e17),  # unknown how a GPU without it computes it
    ],
)
def test_the_ceiling_is_that_of_the_fastest_precision_that_may_run(device, dtype, most):
    assert ceiling_per_s(device, dtype) == most


H100 = board("gpu", "NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("flops", "moved", "binds", "fraction"),
    [
        (2 * 4096**3, 3 * 2 * 4096**2, "compute", 2 * 4096**3 / 989e12),  # a product in bfloat16: 1365 FLOP/byte
        (2 * 4096**2, 2 * 4096**2, "memory", 2 * 4096**2 / 3.35e12),  # a matrix times a vector: 1 FLOP/byte
        (0.0, 12e9, "memory", 12e9 / 3.35e12),
        (2e12, 20e12, "memory", 20 / 3.35),  # more than the memory delivers: it came from a cache
    ],
)
def test_the_limit_that_takes_longer_binds(record, flops, moved, binds, fraction):
    runs = [record([1.0] * 20, bytes=moved)]
    peak = peak_for_dtype(H100, "bfloat16", flops, runs)
    [roof] = roofs(H100, peak, flops, runs)
    assert (roof.case, roof.binds, roof.intensity) == (None, binds, pytest.approx(flops / moved))
    assert roof.fraction == pytest.approx(fraction)
    assert roof.ridge == (pytest.approx(989 / 3.35) if flops else None)
    assert (roof.value, roof.unit) == ((989e12, "FLOP/s") if binds == "compute" else (3.35e12, "bytes/s"))


@pytest.mark.parametrize(
    ("device", "moved", "reason"),
    [
        (H100, None, "doesn't state"),
        (H100.model_copy(update={"memory_bandwidth": None}), 1e9, "was not measured"),
        (H100.model_copy(update={"peak": {}}), 1e9, "was not measured"),
    ],
)
def test_an_unknown_limit_has_a_reason(record, device, moved, reason):
    runs = [record([1.0] * 20, bytes=moved)]
    [roof] = roofs(device, peak_for_dtype(device, "bfloat16", 1e12, runs), 1e12, runs)
    assert (roof.binds, roof.fraction) == (None, None)
    assert reason in roof.reason


def test_an_addition_that_fills_the_memory_isnt_bound_by_overhead(result, record):
    """`result` declares 1,000 FLOP per execution."""
    moved, time_s = 3.35e3, 1.1e-9
    found = result([record([time_s] * 20, bytes=moved)] * 2, on=H100, dtype="bfloat16")
    assert found.peak.fraction == pytest.approx(1000 / time_s / 989e12)  # 0.0009
    assert found.roofs[0].fraction == pytest.approx(1e-9 / time_s)
    assert "OVERHEAD_BOUND" not in [raised.code for raised in found.warnings]


@pytest.mark.parametrize(("bytes_per_s", "is_possible"), [(13e12, True), (68e12, False)])
def test_traffic_that_no_cache_delivers_is_above_the_peak(result, record, bytes_per_s, is_possible):
    found = result([record([1.0] * 20, bytes=bytes_per_s)] * 2, on=H100, dtype="bfloat16")
    assert ("ABOVE_PEAK" in [raised.code for raised in found.warnings]) is not is_possible
