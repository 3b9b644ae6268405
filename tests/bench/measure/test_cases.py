from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dyno.bench.measure.result_metrics import by_case, records_by_case
from dyno.bench.measure.stopping_rule import enough_runs
from dyno.models.device import PeakFigure
from dyno.models.result import Result
from dyno.models.runner_protocol import CaseRecord
from dyno.models.spec import Measure, Spec

MakeResult = Callable[..., Result]
SMALL, LARGE = 100.0, 1000.0


def _case(alone, name, flops, dtype="float32"):
    return CaseRecord(
        name=name,
        work=flops,
        flops=flops,
        dtype=dtype,
        amounts={"execution": flops},
        summary=alone.summary,
        warmup=alone.warmup,
        samples=alone.samples,
    )


@pytest.fixture
def several(record):
    """A run whose first case lasts `small_s` and whose second lasts `large_s`."""

    def make(small_s, large_s, dtype="float32", **of_large):
        own = record(small_s, work=SMALL, amounts={"execution": SMALL})
        cases = [_case(own, "small", SMALL), _case(record(large_s, **of_large), "large", LARGE, dtype)]
        return own.model_copy(update={"cases": cases})

    return make


def test_a_metric_against_another_case_is_the_ratio_of_medians_per_work_in_each_run(several, result):
    """100 in 1 s takes twice as long per unit of work as 1000 in 5 s, and 2.5 times as long as 1000 in 4 s."""
    slowdown = next(
        each
        for each in result([several([1.0] * 20, [large_s] * 20) for large_s in (5, 4)]).metrics
        if each.name == "slowdown"
    )
    assert (slowdown.by_run, slowdown.value, slowdown.samples) == ([2.0, 2.5], 2.25, 80)
    alone = next(each for each in result().metrics if each.name == "slowdown")
    assert (alone.value, alone.reason) == (None, "a run has no case large")


@pytest.mark.parametrize(("small_s", "large_s", "case"), [(0.008, 0.05, "large"), (0.004, 0.08, "small")])
def test_the_case_furthest_above_its_peak_is_reported(several, result, small_s, large_s, case):
    """The peak is 10,000 per second."""
    runs = [several([small_s] * 20, [large_s] * 20)]
    raised = next(each for each in result(runs).warnings if each.code == "ABOVE_PEAK")
    fraction = max(SMALL / small_s, LARGE / large_s) / 10_000
    assert (raised.evidence["case"], raised.evidence["fraction"]) == (case, pytest.approx(fraction))


def test_a_run_without_cases_is_its_only_part(record):
    alone = record([1.0] * 20)
    assert records_by_case(alone) == [alone]
    assert by_case([alone]) == {}


def test_a_part_has_its_cases_own_figures(several):
    small, large = records_by_case(several([1.0] * 20, [2.0] * 30))
    assert (small.work, small.samples[0], small.amounts) == (SMALL, 1.0, {"execution": SMALL})
    assert (large.work, len(large.samples), large.amounts) == (LARGE, 30, {"execution": LARGE})
    assert (small.cases, large.cases) == ([], [])


def test_each_case_has_its_metrics_with_an_interval_over_the_runs(several, result):
    runs = [several([1.0] * 20, [large_s] * 20).model_copy(update={"figures": {"startup": 1.0}}) for large_s in (4, 5)]
    metrics = {metric.name: metric for metric in result(runs).metrics}
    assert metrics["throughput"].value == metrics["throughput_small"].value == 100.0
    large = metrics["throughput_large"]
    assert large.value == pytest.approx((1000 / 4 + 1000 / 5) / 2)
    assert large.low < 200 < 250 < (large.high or 0)
    assert metrics["execution_time_large"].value == 4.5
    assert not {"startup_large", "waiting_large", "slowdown_large"} & metrics.keys()


def test_the_table_of_cases_has_each_ones_fraction_of_its_own_peak(several, result):
    table: Any = result([several([1.0] * 20, [2.0] * 20, dtype="int8")]).details["cases"]
    assert table["small"]["peak_fraction"] == pytest.approx(SMALL / 10_000)
    assert (table["large"]["dtype"], table["large"]["peak_fraction"]) == ("int8", None)
    assert "not measured" in table["large"]["peak_reason"]
    assert table["large"]["medians_s"] == [2.0]


def test_only_work_that_crosses_no_link_is_compared_with_the_memory(several, result, device):
    run = several([1.0] * 20, [2.0] * 20)
    cases = [case.model_copy(update={"bytes": 1e6, "over_link": case.name == "small"}) for case in run.cases]
    memory = PeakFigure(value=1e6, unit="bytes/s", provenance="measured here")
    fast = device.model_copy(update={"memory_bandwidth": memory})
    small, large = result([run.model_copy(update={"cases": cases})], on=fast).roofs
    assert (small.binds, small.fraction, large.binds, large.fraction) == (None, None, "memory", 0.5)
    assert "link" in small.reason


def test_work_in_several_dtypes_has_no_fraction_of_the_peak_of_one(several, result):
    run = several([1.0] * 20, [2.0] * 20)
    cases = [case.model_copy(update={"dtype": "int8+float32"}) for case in run.cases]
    found = result([run.model_copy(update={"cases": cases})])
    table: Any = found.details["cases"]
    assert (found.peak.value, found.peak.fraction, table["small"]["peak_fraction"]) == (None, None, None)
    assert found.peak.reason == table["small"]["peak_reason"]
    assert "int8 and float32" in (found.peak.reason or "")
    assert "ABOVE_PEAK" in found.unchecked


def test_a_case_above_the_peak_makes_the_result_untrusted(several, result, device):
    low = device.model_copy(update={"peak": {"float32": PeakFigure(value=400.0, provenance="measured here")}})
    runs = [several([1.0] * 20, [2.0] * 20) for _ in range(5)]
    codes = [raised.code for raised in result(runs, on=low).warnings]
    assert "ABOVE_PEAK" in codes
    assert "ABOVE_PEAK" not in [raised.code for raised in result(runs).warnings]


@pytest.fixture
def slow(device):
    """A device of whose peak the small case reaches 2.5 % in 1 s."""
    return device.model_copy(update={"peak": {"float32": PeakFigure(value=4000.0, provenance="measured here")}})


def test_a_warning_about_a_later_case_is_reported(several, result, slow):
    sound = result([several([1.0] * 20, [2.0] * 20)], on=slow)
    assert [raised.code for raised in sound.warnings] == []
    drifting = result([several([1.0] * 20, [2.0] * 10 + [2.1] * 10, steady=False)], on=slow)
    assert [(raised.code, raised.evidence["case"]) for raised in drifting.warnings] == [("NO_STEADY_STATE", "large")]
    few = result([several([1.0] * 20, [2.0] * 2)], on=slow)
    assert [(raised.code, raised.evidence["case"]) for raised in few.warnings] == [("INSUFFICIENT_SAMPLES", "large")]
    targeted = Spec(workload="some", measure=Measure(target_rel_ci=0.01))
    unlike = result([several([1.0] * 20, [large_s] * 20) for large_s in (2.0, 2.5, 3.0)], on=slow, spec=targeted)
    assert [(raised.code, raised.evidence["case"]) for raised in unlike.warnings] == [("TARGET_MISSED", "large")]


@pytest.mark.parametrize(("small_s", "large_s", "case"), [(2.0, 2.0, "small"), (1.0, 20.0, "large")])
def test_an_overhead_bound_case_is_reported_at_any_position(several, result, slow, small_s, large_s, case):
    found = result([several([small_s] * 20, [large_s] * 20)], on=slow)
    assert [(raised.code, raised.evidence["case"]) for raised in found.warnings] == [("OVERHEAD_BOUND", case)]


def test_the_case_that_scatters_most_decides_the_number_of_runs(several):
    measure = Measure.model_validate({"processes": {"min": 2, "max": 9}, "target_rel_ci": 0.05})
    alike = [several([1.0] * 20, [2.0] * 20) for _ in range(3)]
    unlike = [several([1.0] * 20, [large_s] * 20) for large_s in (1.0, 2.0, 3.0)]
    assert enough_runs(measure, alike)
    assert not enough_runs(measure, unlike)


def test_work_without_arithmetic_has_no_fraction_of_peak(record, device):
    from dyno.bench.measure.peak_fraction import peak_for_dtype

    found = peak_for_dtype(device, "float32", 0.0, [record([1.0] * 20)])
    assert (found.value, found.fraction) == (None, None)
    assert "no significant arithmetic" in (found.reason or "")
    assert peak_for_dtype(device, "int8", 1.0, [record([1.0] * 20)]).unit == "OP/s"
