"""From records to a result, with figures that can be computed by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from dyno.devices.device import Device
from dyno.frames import RunRecord
from dyno.measure.assemble import assemble
from dyno.measure.warnings import UNCHECKED, warning
from dyno.result import DataOrigin, Epoch, Memory, Metric, Precision, Reference, Result, Training, Verdict
from dyno.spec import DeviceSelector, Measure, Spec
from dyno.workloads.contract import Estimate, MetricSpec, Params, Workload

MakeRecord = Callable[..., RunRecord]


class SomeParams(Params):
    n: int = 2048
    k: int | None = None
    dtype: str = "float32"
    mode: str = "a b"


def no_build(params: object, context: object) -> Any:
    raise AssertionError("nothing is built here")


WORKLOAD = Workload(
    name="some",
    description="some work",
    params=SomeParams,
    metrics=(
        MetricSpec("throughput", "FLOP/s", "higher", "rate"),
        MetricSpec("execution_time", "s", "lower", "time", amount="execution"),
        MetricSpec("startup", "s", "lower", "once", once=True),
    ),
    flops=lambda params: 1000.0,
    estimate=lambda params, device: Estimate(1.0, 1),
    build=no_build,
    references=(Reference(title="t", year="2019", hardware="h", metric="throughput", value=1.0, unit="FLOP/s"),),
    executions=lambda params: f"{params.n} things",
)
TRAINING = Training(
    epochs=[Epoch(index=0, time_s=1.0, loss=2.0), Epoch(index=1, time_s=1.0, loss=1.0)],
    seed=0,
    data=DataOrigin(name="mnist", kind="real", train_samples=60000, test_samples=10000),
)


@pytest.fixture
def result(record: MakeRecord, device: Device) -> Callable[..., Result]:
    """Assembles a job over runs whose samples all last 0.5, 1 and 2 s, or over `records`."""

    def build(
        records: list[RunRecord] | None = None,
        *,
        params: SomeParams | None = None,
        on: Device = device,
        spec: Spec | None = None,
    ) -> Result:
        runs = records or [record([time_s] * 20, amounts={"execution": 1000.0}) for time_s in (0.5, 1.0, 2.0)]
        return assemble("job_1", spec or Spec(workload="some"), WORKLOAD, params or SomeParams(), on, runs)

    return build


def metric(result: Result, name: str) -> Metric:
    return next(each for each in result.metrics if each.name == name)


def test_a_rate_is_the_mean_of_the_runs_rates_with_student_s_t(result: Callable[..., Result]) -> None:
    """Rates 2000, 1000, 500: mean 1166.67, deviation 763.76, t(2) = 4.3027: ± 1897.3."""
    rate = metric(result(), "throughput")
    assert rate.value == pytest.approx(3500 / 3)
    assert rate.low == pytest.approx(3500 / 3 - 1897.3, abs=0.1)
    assert rate.high == pytest.approx(3500 / 3 + 1897.3, abs=0.1)
    assert (rate.runs, rate.samples, rate.better, rate.unit) == (3, 60, "higher", "FLOP/s")


def test_a_time_is_per_unit_of_work_times_its_amount(result: Callable[..., Result]) -> None:
    assert metric(result(), "execution_time").value == pytest.approx(3.5 / 3)


def test_a_cold_rate_comes_from_the_first_executions(result: Callable[..., Result]) -> None:
    cold = metric(result(), "cold_throughput")
    assert (cold.value, cold.low, cold.high, cold.samples) == (2000.0, 2000.0, 2000.0, 3)


def test_a_run_without_a_first_execution_leaves_the_cold_rate_unknown(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    runs = [record([1.0] * 20, amounts={"execution": 1.0}, first_execution_s=first) for first in (0.5, None)]
    cold = metric(result(runs), "cold_throughput")
    assert cold.value is None
    assert cold.reason


def test_training_has_no_cold_rate_and_comes_from_the_run_that_trained(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    runs = [record([1.0] * 20, amounts={"execution": 1.0}, training=training) for training in (TRAINING, None)]
    found = result(runs)
    assert not [each.name for each in found.metrics if each.name.startswith("cold_")]
    assert found.training == TRAINING


def test_a_figure_taken_once_has_no_interval_and_is_absent_with_a_reason(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    once = metric(result([record([1.0] * 20, amounts={"execution": 1.0}, figures={"startup": 7.0})]), "startup")
    assert (once.value, once.low, once.runs) == (7.0, None, 1)
    absent = metric(result(), "startup")
    assert (absent.value, absent.runs) == (None, 0)
    assert absent.reason


def test_one_run_has_no_interval_and_says_why(result: Callable[..., Result], record: MakeRecord) -> None:
    rate = metric(result([record([1.0] * 20, amounts={"execution": 1.0})]), "throughput")
    assert (rate.value, rate.low, rate.high) == (1000.0, None, None)
    assert rate.reason == "one run gives no interval"


def test_the_fraction_of_peak_uses_the_peak_of_the_dtype_that_ran(result: Callable[..., Result]) -> None:
    peak = result().peak
    assert peak.fraction == pytest.approx(3500 / 3 / 10_000)
    assert peak.provenance == "measured here"


@pytest.mark.parametrize(("dtype", "reason"), [("bfloat16", "no unit"), ("float16", "was not measured")])
def test_an_unknown_peak_is_null_with_a_reason(result: Callable[..., Result], dtype: str, reason: str) -> None:
    peak = result(params=SomeParams(dtype=dtype)).peak
    assert (peak.value, peak.fraction) == (None, None)
    assert reason in (peak.reason or "")


def test_phases_are_medians_windows_are_summed_and_memory_is_the_most(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    runs = [
        record([1.0] * 20, amounts={"execution": 1.0}, memory=Memory(host_peak_bytes=peak, reason="why"))
        for peak in (3, 9, 5)
    ]
    found = result(runs)
    assert (found.phases.compile_s, found.phases.steady_s, found.phases.import_s) == (0.25, 20.0, None)
    assert found.cpu is not None
    assert (found.cpu.wall_s, found.cpu.user_s, found.cpu.system_s) == (60.0, 120.0, 1.5)
    assert (found.memory.host_peak_bytes, found.memory.device_peak_bytes, found.memory.reason) == (9, None, "why")


def test_the_least_precise_run_speaks_for_all(result: Callable[..., Result], record: MakeRecord) -> None:
    errors = (3e-7, 2.9e-4, None)
    runs = [
        record(
            [1.0] * 20,
            amounts={"execution": 1.0},
            precision=Precision(
                requested="float32", observed="tf32" if error == 2.9e-4 else "float32", rel_error=error
            ),
        )
        for error in errors
    ]
    found = result(runs)
    assert found.precision is not None
    assert found.precision.observed == "tf32"
    mismatch = next(each for each in found.warnings if each.code == "PRECISION_MISMATCH")
    assert mismatch.evidence["runs"] == [1]


def test_no_verdict_is_better_than_indicative_yet_and_the_result_lists_what_is_unchecked(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    clean = [record([0.2] * 20, amounts={"execution": 1.0}) for _ in range(5)]
    found = result(clean)
    assert found.warnings == []
    assert found.verdict is Verdict.INDICATIVE
    assert found.unchecked == list(UNCHECKED)


def codes(result: Result) -> set[str]:
    return {each.code for each in result.warnings}


def test_a_run_s_own_grave_warning_makes_the_result_untrusted(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    wrong = record([0.2] * 20, amounts={"execution": 1.0}, warnings=[warning("RESULT_INCORRECT", rel_error=0.1)])
    found = result([wrong])
    assert found.verdict is Verdict.UNTRUSTED
    assert found.warnings[0].code == "RESULT_INCORRECT"


def test_scatter_between_runs_is_noisy(result: Callable[..., Result]) -> None:
    assert "NOISY" in codes(result())


def test_a_figure_above_the_peak_is_untrusted(result: Callable[..., Result], record: MakeRecord) -> None:
    found = result([record([0.05] * 60, amounts={"execution": 1.0})])
    assert "ABOVE_PEAK" in codes(found)
    assert found.verdict is Verdict.UNTRUSTED


def test_a_device_almost_idle_a_quota_and_an_emulated_device_are_said(
    result: Callable[..., Result], record: MakeRecord, device: Device
) -> None:
    environment = {"container": {"cpu_cores": 1.0, "memory_bytes": None}}
    idle = record([10.0] * 20, amounts={"execution": 1.0}, environment=environment)
    found = result([idle], on=device.model_copy(update={"emulated": True}))
    assert {"OVERHEAD_BOUND", "CPU_QUOTA", "EMULATED_DEVICE"} <= codes(found)


def test_a_working_set_within_the_cache_is_said(result: Callable[..., Result], record: MakeRecord) -> None:
    inside = record([1.0] * 20, amounts={"execution": 1.0}, details={"working_set_bytes": 2**20})
    outside = record([1.0] * 20, amounts={"execution": 1.0}, details={"working_set_bytes": 2**30})
    assert "CACHE_RESIDENT" in codes(result([inside]))
    assert "CACHE_RESIDENT" not in codes(result([outside]))


def test_a_rising_loss_and_a_sample_of_the_data_are_said(result: Callable[..., Result], record: MakeRecord) -> None:
    rising = [Epoch(index=place, time_s=1.0, loss=loss) for place, loss in enumerate((1.0, 2.0))]
    data = TRAINING.data.model_copy(update={"kind": "sample"})
    training = TRAINING.model_copy(update={"epochs": rising, "data": data})
    found = result([record([1.0] * 20, amounts={"execution": 1.0}, training=training)])
    assert {"LOSS_RISING", "SYNTHETIC_DATA"} <= codes(found)


def test_identity_environment_and_references_travel_along(
    result: Callable[..., Result], record: MakeRecord, device: Device
) -> None:
    found = result([record([1.0] * 20, amounts={"execution": 1.0}, environment={"python": "3"}, details={"x": 1})])
    assert found.hardware_id is not None
    assert found.context_id is not None
    assert found.device["id"] == device.id
    assert found.details == {"execution": "2048 things", "x": 1}
    assert found.reference[0].year == "2019"
    assert found.energy.joules is None
    assert found.energy.reason


def test_the_command_that_reproduces_it_can_be_pasted_into_a_shell(result: Callable[..., Result]) -> None:
    spec = Spec(workload="some", seed=3, device=DeviceSelector(kind="cpu"), measure=Measure())
    command = (
        "dyno run some --param n=2048 --param dtype=float32 --param 'mode=a b' --device cpu --processes 5 --seed 3"
    )
    assert result(spec=spec).reproduce == command
    assert "--device cpu " in (result(spec=Spec(workload="some")).reproduce or "")


def test_a_result_is_json_without_nan(result: Callable[..., Result]) -> None:
    text = result().model_dump_json()
    assert Result.model_validate_json(text) == result()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in a result"))


def test_a_result_without_runs_is_an_error(device: Device) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        assemble("job_1", Spec(workload="some"), WORKLOAD, SomeParams(), device, [])


def test_a_summary_drops_nothing(record: MakeRecord) -> None:
    summary = record([1.0] * 19 + [50.0]).summary
    assert (summary.min, summary.max, summary.median, summary.mad) == (1.0, 50.0, 1.0, 0.0)
    assert (summary.low, summary.high, summary.q1, summary.q3, summary.samples) == (1.0, 1.0, 1.0, 1.0, 20)
    assert summary.phases.warmup_s == 1.0
    assert math.isclose(summary.phases.steady_s or 0, 69.0)
    assert summary.warmup_samples == 1
