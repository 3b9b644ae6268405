"""A CPU's sensors: recorded folders of /sys as a real machine has them, and what this machine says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dyno.devices.device import Device
from dyno.devices.sensors import sensing
from dyno.devices.sensors.host import HostSensors
from dyno.devices.sensors.source import NoSensors
from dyno.devices.sensors.watch import Watch

TOLD = {
    *("energy_j", "temperature_c", "clocks_hz", "throttle_reasons", "throttle_events"),
    *("other_processes", "utilisation"),
}


def write(sys: Path, **files: object) -> None:
    for name, value in files.items():
        path = sys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def zone(sys: Path, number: str, name: str, energy_uj: int, most_uj: int = 262_143_328_850) -> None:
    folder = f"class/powercap/intel-rapl:{number}"
    write(sys, **{f"{folder}/name": name, f"{folder}/energy_uj": energy_uj, f"{folder}/max_energy_range_uj": most_uj})


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Two sockets of two cores each; the board's own zone counts both again."""
    for core, package in enumerate((0, 0, 1, 1)):
        folder = f"devices/system/cpu/cpu{core}"
        write(tmp_path, **{f"{folder}/topology/physical_package_id": package})
        write(tmp_path, **{f"{folder}/thermal_throttle/{kind}_throttle_count": 3 for kind in ("core", "package")})
    for package in (0, 1):
        zone(tmp_path, f"{package}", f"package-{package}", 1_000_000)
        zone(tmp_path, f"{package}:0", "core", 500_000)
        zone(tmp_path, f"{package}:1", "dram", 500_000)
    zone(tmp_path, "2", "psys", 5_000_000)
    monitor = "class/hwmon/hwmon3"
    write(tmp_path, **{f"{monitor}/name": "coretemp", f"{monitor}/temp1_input": 61000, f"{monitor}/temp2_input": 64500})
    write(tmp_path, **{"class/hwmon/hwmon4/name": "nvme", "class/hwmon/hwmon4/temp1_input": 99000})
    return tmp_path


def test_in_recorded_counters_the_energy_is_that_of_the_packages_that_the_cores_are_in(sys: Path) -> None:
    one, both = HostSensors([0, 1], sys), HostSensors([1, 2], sys)
    assert (one.look().energy_j, both.look().energy_j) == (0.0, 0.0)
    zone(sys, "0", "package-0", 31_000_000)
    zone(sys, "1", "package-1", 3_500_000)
    assert (one.look().energy_j, both.look().energy_j) == (30.0, 32.5)


def test_a_recorded_counter_that_wrapped_goes_on_from_its_largest_value(sys: Path) -> None:
    zone(sys, "0", "package-0", 99_000_000, most_uj=100_000_000)
    source = HostSensors([0], sys)
    source.look()
    zone(sys, "0", "package-0", 4_000_000, most_uj=100_000_000)
    assert source.look().energy_j == pytest.approx(5.0)


def test_a_recorded_counter_that_only_root_may_read_is_null_with_that_reason(sys: Path) -> None:
    energy = sys / "class/powercap/intel-rapl:0/energy_uj"
    energy.unlink()
    energy.mkdir()  # as unreadable for root, which these tests may run as, as a file of mode 0400 is for others
    source = HostSensors([0], sys)
    assert source.look().energy_j is None
    assert "root alone" in source.reasons()["energy_j"]


def test_the_recorded_temperature_is_the_processors_hottest_one(sys: Path) -> None:
    assert HostSensors([0], sys).look().temperature_c == 64.5
    (sys / "class/hwmon/hwmon3/name").write_text("drivetemp\n")
    write(sys, **{"class/thermal/thermal_zone0/type": "x86_pkg_temp", "class/thermal/thermal_zone0/temp": 58000})
    assert HostSensors([0], sys).look().temperature_c == 58.0


def test_recorded_counters_of_throttling_are_those_of_the_devices_cores(sys: Path) -> None:
    source, beside = HostSensors([0, 1], sys), HostSensors([2], sys)
    watch, watch_beside = Watch(source), Watch(beside)
    watch.look()
    watch_beside.look()
    write(sys, **{"devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": 5})
    assert watch.over(0).throttle_events == 2
    assert watch_beside.over(0).throttle_events == 0


def test_an_empty_machine_says_of_each_sensor_that_it_has_none(tmp_path: Path) -> None:
    source = HostSensors([0], tmp_path)
    look = source.look()
    assert (look.energy_j, look.temperature_c, look.throttle_events) == (None, None, None)
    assert source.reasons().keys() >= {"energy_j", "temperature_c", "throttle_events"}


def test_this_machine_tells_each_figure_or_why_not() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with sensing(Device(id="cpu:0", kind="cpu", model="x", host="h", cores=cores, memory_bytes=1)) as source:
        watch = Watch(source)
        watch.look()
        found = watch.over(0)
    for field in TOLD:
        assert (getattr(found, field) in (None, {})) == (field in found.reasons), field


def test_a_device_without_sensors_says_of_each_figure_why() -> None:
    assert NoSensors("none").reasons().keys() == TOLD
