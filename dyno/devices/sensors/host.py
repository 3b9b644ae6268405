"""The sensors of a CPU: RAPL, temperatures, counters of throttling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dyno.devices.sensors.heat import events, highest_c, temperature_files, throttle_files
from dyno.devices.sensors.rapl import Rapl
from dyno.devices.sensors.source import Look, Users

SYS = Path("/sys")
_NO_TEMPERATURE = "the kernel shows no temperature of the processor (/sys/class/hwmon, /sys/class/thermal)"
_NO_EVENTS = "the kernel counts no throttling here (cpu*/thermal_throttle); the measured clock of each run stands in"
_NO_CLOCK = "a CPU's clock is measured after the samples of each run: see clock_hz of the run"
_NO_REASONS = "a CPU gives no reasons: throttle_events counts"
_SHARED = "a CPU is always shared: NOISY_NEIGHBOUR tells who disturbed"
_NO_UTILISATION = "a CPU counts none by itself: see the processor time in cpu of the run"


class HostSensors:
    """Of the processor packages that `cores` are part of; what a virtual machine's host hides is null."""

    energy_of, least_energy_s = "RAPL: the processor packages, all their cores, without memory", 0.0

    def __init__(self, cores: Sequence[int], sys: Path = SYS) -> None:
        self._rapl = Rapl({_package(core, sys) for core in cores}, sys)
        self._temperatures = temperature_files(sys)
        self._throttles = throttle_files(cores, sys)

    def look(self) -> Look:
        return Look(
            energy_j=self._rapl.energy_j(),
            temperature_c=highest_c(self._temperatures),
            throttle_events=events(self._throttles),
        )

    def users(self) -> Users:
        return Users()

    def reasons(self) -> dict[str, str]:
        told = {"clocks_hz": _NO_CLOCK, "throttle_reasons": _NO_REASONS}
        told |= {"other_processes": _SHARED, "utilisation": _NO_UTILISATION}
        if self._rapl.reason is not None:
            told["energy_j"] = self._rapl.reason
        if highest_c(self._temperatures) is None:
            told["temperature_c"] = _NO_TEMPERATURE
        if events(self._throttles) is None:
            told["throttle_events"] = _NO_EVENTS
        return told


def _package(core: int, sys: Path) -> int:
    """Of the socket that `core` is in; 0 where the kernel doesn't say."""
    try:
        return int((sys / f"devices/system/cpu/cpu{core}/topology/physical_package_id").read_text())
    except (OSError, ValueError):
        return 0
