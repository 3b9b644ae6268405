"""Will the number repeat? Checks on samples and runs, and how many runs are enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dyno.devices.device import Device
from dyno.measure import scatter
from dyno.measure.processes import enough, on_target, time_interval
from dyno.measure.rule import judged_by
from dyno.models.result import ResultWarning
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import Measure, Processes

MakeRecord = Callable[..., RunRecord]


def code(raised: ResultWarning | None) -> str | None:
    return raised.code if raised else None


def test_twenty_samples_of_a_tenth_of_a_second_are_sufficient(record: MakeRecord) -> None:
    assert scatter.insufficient_samples(record([0.001] * 20, executions_per_sample=100), "cpu") is None


@pytest.mark.parametrize(("samples", "executions"), [([0.2] * 19, 1), ([0.05] * 60, 1), ([0.096] * 20, 1)])
def test_too_few_too_short_or_too_little_in_all_is_insufficient(
    record: MakeRecord, samples: list[float], executions: int
) -> None:
    raised = scatter.insufficient_samples(record(samples, executions_per_sample=executions), "cpu")
    assert code(raised) == "INSUFFICIENT_SAMPLES"
    assert raised is not None
    assert raised.evidence["samples"] == len(samples)


def test_an_accelerator_may_have_shorter_samples(record: MakeRecord) -> None:
    assert scatter.insufficient_samples(record([0.05] * 60), "gpu") is None


def test_a_run_without_a_steady_state_is_said(record: MakeRecord) -> None:
    assert code(scatter.no_steady_state(record([1.0] * 20, steady=False))) == "NO_STEADY_STATE"
    assert scatter.no_steady_state(record([1.0] * 20)) is None


def test_runs_that_scatter_beyond_the_target_are_noisy(record: MakeRecord) -> None:
    records = [record([time_s] * 20) for time_s in (1.0, 1.1, 0.9, 1.05, 0.95)]
    raised = scatter.noisy(time_interval(records), records, 0.01)
    assert code(raised) == "NOISY"
    assert raised is not None
    assert raised.evidence["over"] == "runs"
    assert raised.evidence["rel_half_width"] == pytest.approx(2.7764 * 0.0790569 / 5**0.5, rel=1e-4)


def test_runs_that_agree_are_not(record: MakeRecord) -> None:
    records = [record([time_s] * 20) for time_s in (1.0, 1.001, 0.999)]
    assert scatter.noisy(time_interval(records), records, 0.01) is None


def test_a_single_run_is_noisy_by_its_own_samples(record: MakeRecord) -> None:
    wide = [record([1.0, 1.5] * 10)]
    raised = scatter.noisy(time_interval(wide), wide, 0.01)
    assert raised is not None
    assert raised.evidence["over"] == "samples"
    narrow = [record([1.0] * 20)]
    assert scatter.noisy(time_interval(narrow), narrow, 0.01) is None


def test_too_few_samples_for_an_interval_are_not_called_noisy(record: MakeRecord) -> None:
    records = [record([1.0, 2.0])]
    assert scatter.noisy(time_interval(records), records, 0.01) is None


@pytest.mark.parametrize(
    ("kind", "quota", "bound"),
    [
        ("cpu", 7.5, True),
        ("cpu", 8.0, False),
        ("cpu", None, False),
        ("gpu", 7.5, False),  # a container beside an accelerator seldom has all of its host
        ("gpu", 2.0, False),
        ("gpu", 1.5, True),
        ("tpu", 1.0, True),
    ],
)
def test_a_container_that_gets_less_than_the_work_may_take_is_said(
    device: Device, kind: str, quota: float | None, bound: bool
) -> None:
    on = device.model_copy(update={"kind": kind, "cores": list(range(8))})
    assert (code(scatter.cpu_quota(quota, on)) == "CPU_QUOTA") is bound


def test_an_emulated_device_takes_all_its_cores(device: Device) -> None:
    emulated = device.model_copy(update={"kind": "tpu", "emulated": True})
    assert code(scatter.cpu_quota(1.5, emulated)) == "CPU_QUOTA"


def test_fewer_runs_than_asked_for_are_never_enough_and_the_most_always_are(record: MakeRecord) -> None:
    measure = Measure(processes=Processes(min=2, max=4))
    steady = [record([1.0] * 20)] * 4
    wild = [record([time_s] * 20) for time_s in (1.0, 2.0, 1.0, 2.0)]
    assert [enough(measure, steady[:count]) for count in range(5)] == [False, False, True, True, True]
    assert [enough(measure, wild[:count]) for count in range(5)] == [False, False, False, False, True]


def test_a_fixed_number_of_runs_is_taken_however_well_they_agree(record: MakeRecord) -> None:
    assert not enough(Measure(), [record([1.0] * 20)] * 4)
    assert enough(Measure(), [record([1.0] * 20)] * 5)


def test_one_run_is_never_on_target(record: MakeRecord) -> None:
    assert not on_target(0.01, [record([1.0] * 20)])
    assert on_target(0.01, [record([1.0] * 20)] * 2)


def test_a_loose_target_is_enough_to_stop_by(record: MakeRecord) -> None:
    measure = Measure(processes=Processes(min=2, max=9), target_rel_ci=0.5)
    assert enough(measure, [record([time_s] * 20) for time_s in (1.0, 1.02, 0.98)])


@pytest.mark.parametrize(("target", "judged"), [(0.002, 0.002), (0.01, 0.01), (0.02, 0.02), (0.5, 0.02)])
def test_no_target_is_judged_by_more_than_two_percent(target: float, judged: float) -> None:
    assert judged_by(target) == judged
