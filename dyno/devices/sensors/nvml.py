"""NVML: energy, temperature, clocks, reasons for a lowered clock, and processes of the GPUs of one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from dyno.devices.sensors.source import Look, Users

T = TypeVar("T")

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h) that mean heat or power. Idle, clocks that somebody set, and
# waiting for a slower GPU of the same group are no throttling.
THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_UNSEEN = "NVML lists no process on this GPU, not even this one: it can't see into this container"


class GpuSensors:
    """Several GPUs of one device are told as one: energies and users add up, the hottest and the slowest count.

    The energy counter is updated about ten times a second (since Volta), which over 10 s is 1 %.
    """

    energy_of, least_energy_s = "NVML: the GPU with its memory and board", 10.0

    def __init__(self, nvml: Any, numbers: Sequence[int], pid: int) -> None:
        self._nvml, self._numbers, self._pid = nvml, numbers, pid
        self._reasons: dict[str, str] = {"throttle_events": "NVML tells reasons, not events"}

    def look(self) -> Look:
        nvml = self._nvml
        millijoules = self._each("energy_j", nvml.nvmlDeviceGetTotalEnergyConsumption)
        temperatures = self._each(
            "temperature_c", lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
        )
        reasons = self._each("throttle_reasons", self._throttles)
        return Look(
            energy_j=sum(millijoules) / 1e3 if millijoules else None,
            temperature_c=max(temperatures, default=None),
            clocks_hz=self._clocks_hz(),
            throttle_reasons=frozenset().union(*reasons) if reasons else None,
        )

    def users(self) -> Users:
        others = self._each("other_processes", self._others)
        busy = self._each("utilisation", lambda gpu: self._nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
        if None in others:
            self._reasons["other_processes"] = _UNSEEN
        known = [count for count in others if count is not None]
        return Users(sum(known) if known and len(known) == len(others) else None, max(busy) / 100 if busy else None)

    def reasons(self) -> dict[str, str]:
        return dict(self._reasons)

    def _clocks_hz(self) -> dict[str, float]:
        kinds = {"sm": self._nvml.NVML_CLOCK_SM, "memory": self._nvml.NVML_CLOCK_MEM}
        megahertz = {name: self._each("clocks_hz", partial(self._megahertz, kind)) for name, kind in kinds.items()}
        return {name: min(values) * 1e6 for name, values in megahertz.items() if values}

    def _megahertz(self, kind: int, gpu: Any) -> int:
        return int(self._nvml.nvmlDeviceGetClockInfo(gpu, kind))

    def _throttles(self, gpu: Any) -> frozenset[str]:
        try:
            bits = self._nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
        except self._nvml.NVMLError:  # drivers before 535 know it under its old name
            bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
        return frozenset(name for bit, name in THROTTLES.items() if bits & bit)

    def _others(self, gpu: Any) -> int | None:
        """Processes on `gpu` besides this one, which in a container may be listed under its number outside."""
        pids = {process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
        return len(pids - {self._pid}) if self._pid in pids else (len(pids) - 1 if pids else None)

    def _each(self, field: str, read: Callable[[Any], T]) -> list[T]:
        """`read` of every GPU; empty, with a reason, unless all of them tell."""
        try:
            return [read(self._nvml.nvmlDeviceGetHandleByIndex(number)) for number in self._numbers]
        except self._nvml.NVMLError as error:
            self._reasons[field] = f"NVML says {error}"
            return []
