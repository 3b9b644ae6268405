"""Wrong workloads, run as any job is: the warning stands in an untrusted result."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from dyno.devices.cpu_speed import measure_cpu_peaks
from dyno.devices.device import Device, PeakFigure
from dyno.frameworks.tensorflow import TensorFlow
from dyno.measure.warnings import CODES
from dyno.models.result import Result, Verdict
from dyno.models.spec import Measure, Spec
from dyno.workloads import workload
from dyno.workloads.contract import Workload
from dyno.workloads.matmul import Chain
from tests.running import codes, job_of
from tests.waiting import eventually
from tests.wrong_products import (
    Coarse,
    Constant,
    Dropped,
    Overflowing,
    Recompiling,
    Shorter,
    Unread,
    in_the_background,
)

CORES = sorted(os.sched_getaffinity(0))
BRIEF = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 0.15})
SPEC = Spec(workload="matmul", params={"n": 256, "repeats": 10}, measure=BRIEF)
# What isn't waited for piles up: ten times as much as a sample lasts, with products this small.
PILING_UP = Spec(
    workload="matmul",
    params={"n": 128, "repeats": 10},
    measure=BRIEF.model_copy(update={"min_samples": 1, "max_s": 0.02}),
)
# So large that it is more than overhead to a hundred cores, too.
LARGE = Spec(workload="matmul", params={"n": 1024, "repeats": 2}, measure=BRIEF)
HONEST = workload("matmul")


def _made_of(kind: type[Chain]) -> Workload:
    return replace(HONEST, build=lambda params, context: kind(params, HONEST.flops(params), context))


HALVED = replace(HONEST, flops=lambda params: HONEST.flops(params) / 2)
WRONG = {
    "ASYNC_TIMING": _made_of(Unread),
    "WORK_ELIMINATED": _made_of(Dropped),
    "DEGENERATE_DATA": _made_of(Constant),
    "OUTPUT_NONFINITE": _made_of(Overflowing),
    "RESULT_INCORRECT": _made_of(Shorter),
    "COMPILE_IN_TIMING": _made_of(Recompiling),
    "UNIT_MISMATCH": HALVED,
    "PRECISION_MISMATCH": _made_of(Coarse),
    "RETRACED": _made_of(Recompiling),
}


@pytest.fixture(scope="module")
def device() -> Device:
    """This machine's cores with the peak that they reach."""
    peaks = measure_cpu_peaks(CORES)
    return Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30, peak=peaks)


@pytest.mark.parametrize("code", WRONG)
def test_a_wrong_workload_s_job_is_not_trusted_and_says_why(code: str, device: Device, tensorflow: TensorFlow) -> None:
    """A busy machine may make a wrong benchmark look right for a while, never a right one wrong."""
    with in_the_background(tensorflow) if code == "ASYNC_TIMING" else nullcontext():
        found = eventually(lambda: _caught(code, device), what=f"{code} is raised")
    assert found is not None
    if CODES[code][0] == "A":
        assert found.verdict is Verdict.UNTRUSTED


def _caught(code: str, device: Device) -> Result | None:
    found = job_of(WRONG[code], PILING_UP if code == "ASYNC_TIMING" else SPEC, device)
    return found if code in codes(found) else None


def test_the_honest_one_raises_none_of_them(device: Device, tensorflow: TensorFlow) -> None:
    found = job_of(HONEST, LARGE, device)
    grave = {code for code, (severity, _) in CODES.items() if severity == "A"}
    assert not codes(found) & {*WRONG, *grave, "OVERHEAD_BOUND"}


def test_a_device_that_is_faster_than_it_says_is_above_its_peak(device: Device, tensorflow: TensorFlow) -> None:
    slow = device.model_copy(update={"peak": {"float32": PeakFigure(value=1e6, provenance="datasheet")}})
    found = job_of(HONEST, SPEC, slow)
    assert "ABOVE_PEAK" in codes(found)
    assert found.verdict is Verdict.UNTRUSTED


LOW = PeakFigure(value=1e6, provenance="measured here")


def test_a_peak_that_was_measured_too_low_is_measured_anew_and_speaks_against_nothing(
    device: Device, tensorflow: TensorFlow
) -> None:
    if device.peak["float32"].value is None:
        pytest.skip(device.peak["float32"].reason or "no peak can be measured here")
    low = device.model_copy(update={"peak": {"float32": LOW}})

    def not_above() -> Result | None:
        """Whoever shares the silicon may come in between the samples and the second look."""
        found = job_of(HONEST, SPEC, low)
        return None if "ABOVE_PEAK" in codes(found) else found

    found = eventually(not_above, what="the peak is what the cores can do")
    assert found is not None
    assert found.peak.value is not None
    assert found.peak.value > 1000 * 1e6  # 8 FLOP a cycle at 0.5 GHz are four times as many


@pytest.mark.parametrize("before", ["as it is", "too low"])
def test_more_than_the_device_can_do_is_above_any_peak_that_is_measured(
    before: str, device: Device, tensorflow: TensorFlow
) -> None:
    if device.peak["float32"].value is None:
        pytest.skip(device.peak["float32"].reason or "no peak can be measured here")
    on = device if before == "as it is" else device.model_copy(update={"peak": {"float32": LOW}})
    thousandfold = replace(HONEST, flops=lambda params: 1000 * HONEST.flops(params))
    assert "ABOVE_PEAK" in codes(job_of(thousandfold, SPEC, on))


def test_products_of_two_by_two_are_all_overhead(device: Device, tensorflow: TensorFlow) -> None:
    tiny = SPEC.model_copy(update={"params": {"n": 2, "repeats": 1}})
    assert "OVERHEAD_BOUND" in codes(job_of(HONEST, tiny, device))
