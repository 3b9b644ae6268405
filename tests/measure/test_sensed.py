"""THROTTLED, CLOCK_DRIFT, DEVICE_SHARED: raised by what sensors said, silent on clean runs, unchecked where none said.

A clock can't be lowered here, nor a GPU be shared, so what sensors said is recorded; the clean run's is this machine's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain, repeat

import pytest

from dyno.devices.clock import measure_clock_hz
from dyno.devices.device import Device
from dyno.measure.rule import StoppingRule
from dyno.measure.sensed import clock_drift, device_shared, throttled, unsensed
from dyno.models.result import Result, Sensors
from dyno.models.runner_protocol import RunRecord
from tests.measure.bench import run

MakeRecord = Callable[..., RunRecord]
QUIET_CPU = Sensors(looks=21, throttle_events=0)
QUIET_GPU = Sensors(looks=21, throttle_reasons=[], throttled_share=0.0, other_processes=0, utilisation=0.98)
CLEAN = [3.00e9, 3.02e9, 2.98e9, 3.01e9, 3.00e9]


@pytest.mark.parametrize("quiet", [None, Sensors(), QUIET_CPU, QUIET_GPU])
def test_a_clean_run_raises_nothing(quiet: Sensors | None) -> None:
    assert throttled(quiet) is None
    assert device_shared(quiet) is None


def test_a_recorded_power_cap_and_a_recorded_count_are_throttling_with_their_evidence() -> None:
    seen = {"throttle_reasons": ["power cap"], "throttled_share": 0.5, "temperature_c": 83.0}
    capped = throttled(QUIET_GPU.model_copy(update=seen))
    assert capped is not None
    assert (capped.code, capped.severity) == ("THROTTLED", "B")
    assert "(power cap)" in capped.message
    assert capped.evidence == {"reasons": ["power cap"], "share_of_looks": 0.5, "events": None, "temperature_c": 83.0}
    counted = throttled(QUIET_CPU.model_copy(update={"throttle_events": 7}))
    assert counted is not None
    assert counted.evidence["events"] == 7


def test_a_recorded_second_process_on_the_gpu_is_sharing() -> None:
    shared = device_shared(QUIET_GPU.model_copy(update={"other_processes": 1}))
    assert shared is not None
    assert (shared.code, shared.severity) == ("DEVICE_SHARED", "B")
    assert shared.evidence == {"other_processes": 1, "utilisation": 0.98}


@pytest.mark.parametrize(
    ("clocks", "drifts"),
    [
        (CLEAN, False),
        ([3.0e9, 3.0e9, 3.0e9, 3.0e9, 2.88e9], True),  # 4 % lower in one run
        ([3.0e9, None, 3.1e9], True),
        ([3.0e9], False),
        ([None, None], False),
        ([], False),
    ],
)
def test_recorded_clocks_that_lie_more_than_three_percent_apart_are_drift(
    clocks: Sequence[float | None], drifts: bool
) -> None:
    raised = clock_drift(clocks)
    assert (raised is not None and raised.code == "CLOCK_DRIFT") is drifts


@pytest.mark.verify
def test_the_measured_clock_of_this_machine_is_no_drift() -> None:
    """True where nobody else draws on its turbo in all of eight pairs of readings."""
    core = max(os.sched_getaffinity(0))
    pairs = ([measure_clock_hz(core), measure_clock_hz(core)] for _ in range(8))
    assert any(clock_drift(pair) is None for pair in pairs)


def of_kind(device: Device, kind: str) -> Device:
    return device.model_copy(update={"kind": kind})


@pytest.mark.parametrize(
    ("kind", "sensors", "clocks", "missing"),
    [
        ("cpu", None, CLEAN, set()),  # a virtual machine: clocks that agree, and steady samples, stand in for counters
        ("cpu", None, [3e9], {"THROTTLED", "CLOCK_DRIFT"}),  # nothing to compare one clock with
        ("cpu", QUIET_CPU, [3e9], {"CLOCK_DRIFT"}),
        ("cpu", None, [3e9, None], {"THROTTLED", "CLOCK_DRIFT"}),  # no loop for this architecture
        ("gpu", QUIET_GPU, CLEAN, set()),
        ("gpu", None, CLEAN, {"THROTTLED", "DEVICE_SHARED"}),
        ("gpu", QUIET_GPU.model_copy(update={"other_processes": None}), CLEAN, {"DEVICE_SHARED"}),
        ("tpu", None, [None, None], {"THROTTLED", "CLOCK_DRIFT"}),
    ],
)
def test_what_nothing_told_is_unchecked(
    record: MakeRecord,
    device: Device,
    kind: str,
    sensors: Sensors | None,
    clocks: list[float | None],
    missing: set[str],
) -> None:
    records = [record([1.0] * 20, sensors=sensors, clock_hz=clock) for clock in clocks]
    assert unsensed(of_kind(device, kind), records) == missing


@pytest.mark.parametrize("share", [0.97, 0.9])
def test_a_clock_that_falls_while_samples_are_taken_is_no_steady_state(share: float) -> None:
    """What stands in for the counter that most virtual machines lack: throttled from the sixtieth sample on."""
    samples, _ = run(chain(repeat(0.125, 60), repeat(0.125 / share)), StoppingRule(min_samples=100))
    assert not samples.steady


def test_an_emulated_device_has_the_sensors_of_its_cpu(record: MakeRecord, device: Device) -> None:
    emulated = device.model_copy(update={"kind": "tpu", "emulated": True})
    assert unsensed(emulated, [record([1.0] * 20, clock_hz=clock) for clock in CLEAN]) == set()


def test_a_result_carries_the_warnings_and_names_the_runs_that_raised_them(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    hot = QUIET_GPU.model_copy(update={"throttle_reasons": ["power brake"], "other_processes": 1})
    sensed = [(QUIET_GPU, 3e9), (hot, 2.5e9), (QUIET_GPU, 3e9)]
    found = result(
        [record([0.2] * 20, amounts={"execution": 1.0}, sensors=each, clock_hz=clock) for each, clock in sensed]
    )
    raised = {each.code: each.evidence.get("runs") for each in found.warnings}
    assert (raised["THROTTLED"], raised["DEVICE_SHARED"]) == ([1], [1])
    assert "CLOCK_DRIFT" in raised
    assert found.runs[1].sensors == hot


def test_a_result_of_clean_runs_raises_none_of_them_and_leaves_none_unchecked(
    result: Callable[..., Result], record: MakeRecord
) -> None:
    found = result([record([0.2] * 20, amounts={"execution": 1.0}, clock_hz=clock) for clock in CLEAN])
    codes = {"THROTTLED", "CLOCK_DRIFT", "DEVICE_SHARED"}
    assert not codes & {each.code for each in found.warnings}
    assert not codes & set(found.unchecked)
