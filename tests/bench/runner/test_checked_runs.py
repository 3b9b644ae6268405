"""Incorrect workloads run as ordinary jobs: the result is untrusted and has the warning."""

import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest

from dyno.bench.devices import cpu_speed
from dyno.bench.devices.cpu_speed import measure_cpu_peaks
from dyno.bench.measure import correctness, result_checks
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.registry import workload
from dyno.bench.runner import checks
from dyno.models.device import Device, PeakFigure
from dyno.models.result import Verdict
from dyno.models.spec import Measure, Processes, Spec
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
# Work without a wait piles up: with products this small, to ten times the length of a sample.
PILING_UP = Spec(
    workload="matmul",
    params={"n": 128, "repeats": 10},
    measure=BRIEF.model_copy(update={"min_samples": 1, "max_s": 0.02}),
)
# Large enough to outweigh the overhead on a hundred cores too.
LARGE = Spec(workload="matmul", params={"n": 1024, "repeats": 2}, measure=BRIEF)
HONEST = workload("matmul")


def _made_of(kind):
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

QUICK = ("WORK_ELIMINATED", "RESULT_INCORRECT", "UNIT_MISMATCH")  # the others run in `make verify`


@pytest.fixture(scope="module")
def device():
    """This machine's cores with their measured peak."""
    peaks = measure_cpu_peaks(CORES)
    return Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30, peak=peaks)


@pytest.mark.provokes(*WRONG)
@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=[] if code in QUICK else pytest.mark.verify) for code in WRONG]
)
def test_the_job_of_an_incorrect_workload_is_untrusted_with_its_warning(code, device, tensorflow):
    """A busy machine may hide an incorrect benchmark for a while, but never makes a correct one look incorrect."""
    if code == "PRECISION_MISMATCH" and os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
        pytest.skip("computes in bfloat16, which crashes here: see tests/conftest.py")
    with in_the_background(tensorflow) if code == "ASYNC_TIMING" else nullcontext():
        found = eventually(lambda: _caught(code, device), what=f"{code} is raised")
    if CODES[code].severity == "A":
        assert found.verdict is Verdict.UNTRUSTED


def _caught(code, device):
    found = job_of(WRONG[code], PILING_UP if code == "ASYNC_TIMING" else SPEC, device)
    return found if code in codes(found) else None


@pytest.mark.silent(*WRONG, "ABOVE_PEAK", "EMULATED_DEVICE", "OVERHEAD_BOUND")
def test_the_correct_workload_raises_none_of_these_warnings(device, tensorflow):
    found = job_of(HONEST, LARGE, device)
    grave = {code for code, row in CODES.items() if row.severity == "A"}
    assert not codes(found) & {*WRONG, *grave, "OVERHEAD_BOUND"}


@pytest.mark.provokes("ABOVE_PEAK")
def test_a_figure_above_the_stated_peak_raises_above_peak(device, tensorflow):
    slow = device.model_copy(update={"peak": {"float32": PeakFigure(value=1e6, provenance="datasheet")}})
    found = job_of(HONEST, SPEC, slow)
    assert "ABOVE_PEAK" in codes(found)
    assert found.verdict is Verdict.UNTRUSTED


LOW = PeakFigure(value=1e6, provenance="measured here")
HIGH = PeakFigure(value=1e13, provenance="datasheet")  # where no peak of this processor is known


def test_a_peak_that_was_measured_too_low_is_measured_again_and_raises_nothing(device, tensorflow):
    if device.peak["float32"].value is None:
        pytest.skip(device.peak["float32"].reason or "no peak can be measured here")
    low = device.model_copy(update={"peak": {"float32": LOW}})

    def not_above():
        """Other users of the physical cores may start between the samples and the second measurement."""
        found = job_of(HONEST, SPEC, low)
        return None if "ABOVE_PEAK" in codes(found) else found

    found = eventually(not_above, what="the peak is what the cores can do")
    assert found.peak.value > 1000 * 1e6  # 8 FLOP a cycle at 0.5 GHz are four times as many


@pytest.mark.parametrize("before", ["as it is", "too low"])
def test_a_figure_beyond_the_device_is_above_every_measured_peak(before, device, tensorflow):
    if device.peak["float32"].value is None:
        pytest.skip(device.peak["float32"].reason or "no peak can be measured here")
    on = device if before == "as it is" else device.model_copy(update={"peak": {"float32": LOW}})
    thousandfold = replace(HONEST, flops=lambda params: 1000 * HONEST.flops(params))
    assert "ABOVE_PEAK" in codes(job_of(thousandfold, SPEC, on))


@pytest.mark.provokes("OVERHEAD_BOUND")
def test_products_of_two_by_two_matrices_are_overhead_bound(device, tensorflow):
    tiny = SPEC.model_copy(update={"params": {"n": 2, "repeats": 1}})
    on = device.model_copy(update={"peak": {"float32": HIGH}})
    assert "OVERHEAD_BOUND" in codes(job_of(HONEST, tiny, on))


def test_a_job_of_three_runs_checks_each_output_and_clock_and_the_rest_once(device, tensorflow, monkeypatch):
    made: list[str] = []

    def counted(place, name):
        check = getattr(place, name)

        def note(*args, **options):
            made.append(name)
            return check(*args, **options)

        monkeypatch.setattr(place, name, note)

    for name in ("_drained", "_more_executions", "_more_work", "_units"):
        counted(checks._CaseChecks, name)
    counted(cpu_speed, "measure_clock_hz")
    counted(correctness, "freivalds")
    counted(correctness, "freivalds_chain")
    counted(result_checks, "degenerate_data")
    measure = BRIEF.model_copy(update={"processes": Processes(min=3, max=3)})
    on = device.model_copy(update={"peak": {"float32": HIGH}})
    found = job_of(HONEST, LARGE.model_copy(update={"measure": measure}), on)
    once = ("_drained", "_more_executions", "_more_work", "_units", "freivalds")
    each = {"measure_clock_hz": 3, "freivalds_chain": 3, "degenerate_data": 2 * 3}
    assert Counter(made) == Counter([*once]) + Counter(each)
    assert found.unchecked == ["SLOW_PATH"]  # the device of these tests has no instruction set
    assert found.precision.observed == "float32"


def test_a_later_run_in_a_coarser_precision_than_the_first_is_incorrect(device, tensorflow):
    first, later = ([workload] for workload in (HONEST, _made_of(Coarse)))

    def build(params, context):
        [chosen] = later if context.run else first
        return chosen.build(params, context)

    if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
        pytest.skip("computes in bfloat16, which crashes here: see tests/conftest.py")
    measure = BRIEF.model_copy(update={"processes": Processes(min=2, max=2)})
    found = job_of(replace(HONEST, build=build), SPEC.model_copy(update={"measure": measure}), device)
    [raised] = [each for each in found.warnings if each.code == "RESULT_INCORRECT"]
    assert raised.evidence["runs"] == [1]
    assert found.verdict is Verdict.UNTRUSTED
