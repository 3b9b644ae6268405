"""GPU devices and their facts, read through NVML: no framework, no CUDA context."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import JsonValue

from dyno.devices import cpu, datasheet
from dyno.devices.device import Device
from dyno.errors import DeviceUnavailable
from dyno.settings import Settings

_MIG_ENABLED = "MIG is on: data sheets list the peaks of whole GPUs only"


def discover_gpu(index: str | None, host: str, settings: Settings) -> Device:
    """The GPU with NVML's number `index`, by default the GPU that frameworks use on this host.

    Several GPUs of one model ("0-1") form one device with a replica on each; `memory_bytes` is that of one GPU. Raises
    DeviceUnavailable with the reason, also if a framework would run on other GPUs than `index`.
    """
    with nvml_session() as nvml:
        count = nvml.nvmlDeviceGetCount()
        visible = _visible(count)
        numbers = visible[:1] if index is None else _numbers(index)
        if numbers[-1] >= count:
            raise DeviceUnavailable(f"gpu:{numbers[-1]} not found: NVML lists {count} here")
        if numbers != (taken := sorted(visible[: len(numbers)])):
            needed = f"start its worker with CUDA_VISIBLE_DEVICES={','.join(map(str, numbers))}"
            raise DeviceUnavailable(f"gpu:{_listed(numbers)} would be measured on gpu:{_listed(taken)}: {needed}")
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
        model = _one_model([_text(nvml.nvmlDeviceGetName(handle)) for handle in handles])
        peaks = _peaks(nvml, handles, model)
        return Device(
            id=f"gpu:{_listed(numbers)}",
            kind="gpu",
            model=model,
            host=host,
            cores=cpu.free_cores(settings),
            memory_bytes=min(int(nvml.nvmlDeviceGetMemoryInfo(handle).total) for handle in handles),
            isa=_capability(nvml, handles[0]),
            peak=peaks.by_dtype,
            memory_bandwidth=peaks.memory,
            units=len(numbers),
        )


@contextmanager
def nvml_session() -> Iterator[Any]:
    """The pynvml module, initialised. Raises DeviceUnavailable if it is missing or a call in the block fails."""
    try:
        import pynvml
    except ImportError:
        raise DeviceUnavailable("GPU not found: the package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceUnavailable(f"GPU not found: NVML (libnvidia-ml.so.1) says {error}") from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise DeviceUnavailable(f"GPU can't be read: NVML says {error}") from None
    finally:
        pynvml.nvmlShutdown()


def _peaks(nvml: Any, handles: list[Any], model: str) -> datasheet.DatasheetPeaks:
    if any(_mig_enabled(nvml, handle) for handle in handles):
        return datasheet.no_peaks(_MIG_ENABLED)
    return datasheet.datasheet_peaks("gpu", model, len(handles))


def _mig_enabled(nvml: Any, handle: Any) -> bool:
    """Whether the GPU is divided (MIG); False for models without MIG."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


def _capability(nvml: Any, handle: Any) -> list[str]:
    """The compute capability as compilers name it: "sm_80" is 8.0."""
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:
        return []
    return [f"sm_{major}{minor}"]


def _visible(count: int) -> list[int]:
    """NVML numbers of the GPUs visible to frameworks, in their order. NVML lists all `count` GPUs, visible or not."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return list(range(count)) or [0]
    names = [name.strip() for name in given.split(",")]
    if names[0].startswith("GPU-") and count == 1:
        return [0]
    if not all(name.isdigit() for name in names):
        raise DeviceUnavailable(f"CUDA_VISIBLE_DEVICES={given!r} lists no GPU number; set it to one such as 0")
    return [int(name) for name in names]


def _numbers(index: str) -> list[int]:
    try:
        return cpu.parse_cpulist(index)
    except ValueError:
        raise DeviceUnavailable(f'gpu:{index}: name a GPU by its number, such as "gpu:0" or "gpu:0-1"') from None


def _listed(numbers: list[int]) -> str:
    return cpu.format_cpulist(numbers) if len(numbers) > 1 else str(numbers[0])


def _one_model(names: list[str]) -> str:
    if len(set(names)) > 1:
        raise DeviceUnavailable(f"the GPUs of a device must be of the same model; these are {', '.join(names)}")
    return names[0]


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


_FACTS: dict[str, Callable[[Any, Any], JsonValue]] = {
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
    """One entry per GPU, in NVML's order; a fact that the GPU or its driver doesn't report is null.

    Raises DeviceUnavailable with the reason if NVML isn't available.
    """
    with nvml_session() as nvml:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        return [
            {"driver": driver, **{name: _read_fact(nvml, handle, read) for name, read in _FACTS.items()}}
            for handle in handles
        ]


def driver_versions() -> dict[str, str]:
    """Versions of the driver and of the newest CUDA it supports. Raises DeviceUnavailable if NVML isn't available."""
    with nvml_session() as nvml:
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        return {
            "version": _text(nvml.nvmlSystemGetDriverVersion()),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",  # 12040 is 12.4
        }


def _read_fact(nvml: Any, handle: Any, read: Callable[[Any, Any], JsonValue]) -> JsonValue:
    try:
        return read(nvml, handle)
    except nvml.NVMLError:  # not supported by this model, or forbidden for this user
        return None
