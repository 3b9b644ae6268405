"""What the GPUs of this host are, as NVML tells it: no framework, no CUDA context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import JsonValue

from dyno.devices.gpu import _text, opened_nvml

_READ: dict[str, Callable[[Any, Any], JsonValue]] = {
    "model": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "memory_used_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    "compute_capability": lambda nvml, gpu: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(gpu))),
    "pcie_generation": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)),
    "pcie_lanes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1e3,
    "clock_most_hz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
    "memory_clock_most_hz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
}


def gpu_facts() -> list[dict[str, JsonValue]]:
    """One entry per GPU, in NVML's order; a fact that a GPU or driver doesn't tell is null.

    Raises DeviceUnavailable where there is no NVML, with what was looked at.
    """
    with opened_nvml() as nvml:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        return [
            {"driver": driver, **{name: _read(nvml, handle, read) for name, read in _READ.items()}}
            for handle in handles
        ]


def driver_versions() -> dict[str, str]:
    """Of the driver itself and of the newest CUDA that it runs. Raises DeviceUnavailable where NVML can't be asked."""
    with opened_nvml() as nvml:
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        return {
            "version": _text(nvml.nvmlSystemGetDriverVersion()),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",  # 12040 is 12.4
        }


def _read(nvml: Any, handle: Any, read: Callable[[Any, Any], JsonValue]) -> JsonValue:
    try:
        return read(nvml, handle)
    except nvml.NVMLError:  # not supported by this model, or not allowed for this user
        return None
