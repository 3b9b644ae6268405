"""What is made of NVML's answers: recorded, as no GPU is at hand where these tests run."""

from __future__ import annotations

import types
from typing import Any

import pytest

from dyno.devices.device import Device
from dyno.devices.sensors import nvml as nvml_sensors
from dyno.devices.sensors import sensing
from dyno.devices.sensors.nvml import GpuSensors
from dyno.devices.sensors.source import Look, Users

OWN = 4242


def recorded(**answers: Any) -> types.SimpleNamespace:
    """NVML with one busy GPU and no other process than this one."""
    quiet: dict[str, Any] = {
        "NVMLError": RuntimeError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: 7_500_000,
        "nvmlDeviceGetTemperature": lambda gpu, sensor: 61 + gpu,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: {1: 1980 - 30 * gpu, 2: 3201}[kind],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: 0,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: running(OWN),
        "nvmlDeviceGetUtilizationRates": lambda gpu: types.SimpleNamespace(gpu=97, memory=40),
    }
    return types.SimpleNamespace(**quiet | answers)


def running(*pids: int) -> list[types.SimpleNamespace]:
    return [types.SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]


def unsupported(*_: Any) -> None:
    raise RuntimeError("Not Supported")


def test_a_recorded_gpu_tells_energy_heat_and_clocks_and_is_not_throttled() -> None:
    source = GpuSensors(recorded(), [0], OWN)
    clocks = {"sm": 1.98e9, "memory": 3.201e9}
    assert source.look() == Look(7500.0, 61, clocks, throttle_reasons=frozenset())
    assert source.users() == Users(other_processes=0, utilisation=0.97)
    assert source.reasons().keys() == {"throttle_events"}


def test_recorded_gpus_of_one_device_add_up_and_the_hottest_and_slowest_count() -> None:
    look = GpuSensors(recorded(), [0, 1], OWN).look()
    assert (look.energy_j, look.temperature_c, look.clocks_hz["sm"]) == (15_000.0, 62, 1.95e9)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x1 | 0x2 | 0x10 | 0x100, set()),  # idle, clocks that somebody set, a slower GPU beside it, a display
        (0x4, {"power cap"}),
        (0x8 | 0x40, {"hardware slowdown", "hardware thermal slowdown"}),
        (0x20 | 0x1, {"software thermal slowdown"}),
        (0x80, {"power brake"}),
    ],
)
def test_recorded_reasons_count_where_they_mean_heat_or_power(bits: int, reasons: set[str]) -> None:
    nvml = recorded(nvmlDeviceGetCurrentClocksEventReasons=lambda gpu: bits)
    assert GpuSensors(nvml, [0], OWN).look().throttle_reasons == reasons


def test_a_recorded_old_driver_is_asked_for_the_reasons_by_their_old_name() -> None:
    old = {"nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x40}
    nvml = recorded(nvmlDeviceGetCurrentClocksEventReasons=unsupported, **old)
    assert GpuSensors(nvml, [0], OWN).look().throttle_reasons == {"hardware thermal slowdown"}


def test_the_bits_are_those_of_nvml() -> None:
    import pynvml

    names = ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    bits = {getattr(pynvml, f"nvmlClocksEventReason{name}") for name in names}
    assert nvml_sensors.THROTTLES.keys() == bits


@pytest.mark.parametrize(
    ("pids", "others"),
    [((OWN,), 0), ((OWN, 7), 1), ((OWN, 7, 8), 2), ((31337,), 0), ((31337, 7), 1), ((), None)],
)
def test_recorded_processes_besides_this_one_are_others_under_whatever_number_it_is_listed(
    pids: tuple[int, ...], others: int | None
) -> None:
    source = GpuSensors(recorded(nvmlDeviceGetComputeRunningProcesses=lambda gpu: running(*pids)), [0], OWN)
    assert source.users().other_processes == others
    assert ("other_processes" in source.reasons()) == (others is None)


def test_what_a_recorded_gpu_does_not_support_is_null_with_nvmls_own_words() -> None:
    answers = {name: unsupported for name in vars(recorded()) if name.startswith("nvmlDeviceGet")}
    old = {"nvmlDeviceGetCurrentClocksThrottleReasons": unsupported}
    source = GpuSensors(recorded(**answers, **old), [0], OWN)
    assert source.look() == Look()
    assert source.users() == Users()
    told = {field: reason for field, reason in source.reasons().items() if field != "throttle_events"}
    assert set(told.values()) == {"NVML says Not Supported"}
    assert told.keys() >= {"energy_j", "temperature_c", "clocks_hz", "throttle_reasons", "other_processes"}


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_a_device_whose_sensors_cannot_be_opened_says_why_in_every_field(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    device = Device.model_validate({"id": f"{kind}:0", "kind": kind, "model": "x", "host": "h", "memory_bytes": 1})
    with sensing(device) as source:
        assert (source.look(), source.users()) == (Look(), Users())
        reasons = source.reasons()
    assert len(set(reasons.values())) == 1
    assert {"energy_j", "temperature_c", "throttle_reasons", "other_processes"} <= reasons.keys()
