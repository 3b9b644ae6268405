"""How hot the processor is, and how often it lowered its clock for that.

Temperatures: /sys/class/hwmon (drivers coretemp, k10temp) or /sys/class/thermal. Events: the counters in
/sys/devices/system/cpu/cpu*/thermal_throttle, which Intel's processors have (Documentation/ABI/testing/
sysfs-devices-system-cpu in the Linux kernel). A virtual machine has neither.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from dyno.devices.cgroup import read_kernel_file

_DRIVERS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
_ZONES = {"x86_pkg_temp", "cpu-thermal", "cpu_thermal", "TCPU"}


def temperature_files(sys: Path) -> list[Path]:
    """Those of the processor, in thousandths of a degree Celsius."""
    monitors = [
        folder for folder in (sys / "class/hwmon").glob("hwmon*") if read_kernel_file(folder / "name") in _DRIVERS
    ]
    found = sorted(file for folder in monitors for file in folder.glob("temp*_input"))
    zones = [
        folder / "temp"
        for folder in (sys / "class/thermal").glob("thermal_zone*")
        if read_kernel_file(folder / "type") in _ZONES
    ]
    return found or sorted(zones)


def throttle_files(cores: Collection[int], sys: Path) -> list[Path]:
    """Counters of `cores` and of the packages they are in, each time the clock was lowered for heat or power."""
    folders = [sys / f"devices/system/cpu/cpu{core}/thermal_throttle" for core in cores]
    return sorted(file for folder in folders for file in folder.glob("*_count"))


def highest_c(files: Collection[Path]) -> float | None:
    values = [int(text) for file in files if (text := read_kernel_file(file)).lstrip("-").isdigit()]
    return max(values) / 1e3 if values else None


def events(files: Collection[Path]) -> int | None:
    """Their sum; a package's events count once per core of it, which doesn't matter to a difference of zero."""
    values = [int(text) for file in files if (text := read_kernel_file(file)).isdigit()]
    return sum(values) if values and len(values) == len(files) else None
