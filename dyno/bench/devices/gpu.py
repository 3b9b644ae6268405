"""Read GPU devices and their facts through NVML, without a framework or a CUDA context.

If a GPU is divided (MIG), only its slices are devices: "gpu:0:1" is slice 1 of GPU 0, as NVIDIA's
container tools write it. A device has the UUIDs of its GPUs or of its slice. Its runners see only the devices with
these UUIDs (`dyno.bench.frameworks.visible_devices`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from dyno.bench.devices import cpu, datasheet
from dyno.errors import DeviceUnavailable
from dyno.models.device import Device
from dyno.settings import Settings

# Multiprocessors of compute capability 8.0 have 64 cores for float32; later GPUs with MIG have 128 (CUDA C++
# Programming Guide, "Compute Capabilities").
_CORES_OF_CAPABILITY_8_0, _CORES = 64, 128
_MEMORY_PARTS = 8  # a slice has a multiple of 1/8 of the GPU's memory, and the same share of bandwidth and cache
_NO_SHARE = "NVML doesn't report which part of the GPU this slice (MIG) is"
_NO_SLICES = "it is divided (MIG), but has no slice; create one with nvidia-smi mig -cgi <profile> -C"


@dataclass(frozen=True)
class GpuUnit:
    """A GPU, or one slice of a divided GPU, which CUDA sees as one device.

    `number` is NVML's number ("0"), or the GPU's and the slice's numbers ("0:1"). `gpu` is the whole GPU's handle.
    """

    number: str
    uuid: str
    handle: Any
    gpu: Any

    @property
    def is_slice(self) -> bool:
        return ":" in self.number


def discover_gpu(index: str | None, host: str, settings: Settings) -> Device:
    """The GPU or slice with NVML's number `index`; by default, the first device that CUDA_VISIBLE_DEVICES allows.

    Several GPUs of one model ("0-1") form one device with a replica on each; `memory_bytes` is for one GPU. Raises
    DeviceUnavailable with the reason, also if CUDA_VISIBLE_DEVICES excludes `index`.
    """
    with nvml_session() as nvml:
        units, unusable = _units(nvml)
        allowed = _allowed(units, unusable)
        chosen = allowed[:1] if index is None else [_numbered(number, units, unusable) for number in _numbers(index)]
        if excluded := [unit.number for unit in chosen if unit not in allowed]:
            visible = os.environ["CUDA_VISIBLE_DEVICES"]
            raise DeviceUnavailable(f"gpu:{excluded[0]} is excluded by CUDA_VISIBLE_DEVICES={visible}; add it there")
        model = _one_model([_model(nvml, unit) for unit in chosen])
        peaks = _peaks(nvml, chosen)
        return Device(
            id=f"gpu:{_listed([unit.number for unit in chosen])}",
            kind="gpu",
            model=model,
            host=host,
            cores=cpu.free_cores(settings),
            memory_bytes=min(int(nvml.nvmlDeviceGetMemoryInfo(unit.handle).total) for unit in chosen),
            last_cache_bytes=peaks.last_cache_bytes,
            isa=_capability(nvml, chosen[0].gpu),
            peak=peaks.by_dtype,
            memory_bandwidth=peaks.memory,
            units=len(chosen),
            uuids=[unit.uuid for unit in chosen],
        )


def units_of(nvml: Any, device: Device) -> list[GpuUnit]:
    """The GPUs or the slice of `device`, found by UUID, since NVML's numbers change when a GPU is lost.

    Raises DeviceUnavailable if a GPU is missing.
    """
    by_uuid = {unit.uuid: unit for unit in _units(nvml)[0]}
    if missing := [uuid for uuid in device.uuids if uuid not in by_uuid]:
        raise DeviceUnavailable(f"{device.id} ({missing[0]}) isn't in NVML's list any more")
    return [by_uuid[uuid] for uuid in device.uuids]


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


def _units(nvml: Any) -> tuple[list[GpuUnit], dict[str, str]]:
    """(all usable GPUs and slices in NVML's order, number of an unusable GPU -> reason)."""
    available: list[GpuUnit] = []
    unusable: dict[str, str] = {}
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            units = list(_units_in(nvml, number))
        except nvml.NVMLError as error:  # a lost GPU doesn't affect the others
            unusable[str(number)] = f"NVML says {error}"
            continue
        if not units:
            unusable[str(number)] = _NO_SLICES
        available += units
    return available, unusable


def _units_in(nvml: Any, number: int) -> Iterator[GpuUnit]:
    """The GPU itself, or its slices."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(number)
    if not _mig_enabled(nvml, gpu):
        yield GpuUnit(str(number), _text(nvml.nvmlDeviceGetUUID(gpu)), gpu, gpu)
        return
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            slice_handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position)
        except nvml.NVMLError:  # the GPU has fewer slices than the maximum
            continue
        yield GpuUnit(f"{number}:{position}", _text(nvml.nvmlDeviceGetUUID(slice_handle)), slice_handle, gpu)


def _allowed(units: Sequence[GpuUnit], unusable: dict[str, str]) -> Sequence[GpuUnit]:
    """The units that CUDA_VISIBLE_DEVICES lists, in its order; all of them if it isn't set."""
    if not units:
        reasons = [f"gpu:{number}: {reason}" for number, reason in unusable.items()]
        raise DeviceUnavailable(f"GPU not found: {'; '.join(reasons) or 'NVML lists none here'}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return units
    names = [name.strip() for name in visible.split(",")]
    if allowed := [unit for name in names for unit in units if _is_named(unit, name)]:
        return allowed
    raise DeviceUnavailable(f"CUDA_VISIBLE_DEVICES={visible!r} lists no GPU of this host; set it to one such as 0")


def _is_named(unit: GpuUnit, name: str) -> bool:
    """Whether `name` is the unit's UUID, the start of this UUID, or the number of the unit's GPU."""
    if name.isdigit():
        return unit.number.partition(":")[0] == name
    return bool(name) and unit.uuid.startswith(name)


def _numbered(number: str, units: Sequence[GpuUnit], unusable: dict[str, str]) -> GpuUnit:
    """The unit called `number`. Raises DeviceUnavailable with the available numbers."""
    for unit in units:
        if unit.number == number:
            return unit
    if number in unusable:
        raise DeviceUnavailable(f"gpu:{number} can't be used: {unusable[number]}")
    if slices := [f"gpu:{unit.number}" for unit in units if unit.number.startswith(f"{number}:")]:
        raise DeviceUnavailable(f"gpu:{number} is divided (MIG); use one of its slices: {', '.join(slices)}")
    available = ", ".join(f"gpu:{unit.number}" for unit in units)
    raise DeviceUnavailable(f"gpu:{number} not found: NVML lists {available} here")


def _model(nvml: Any, unit: GpuUnit) -> str:
    """The GPU's name; a slice's name also has its size, as in "NVIDIA A100-SXM4-40GB MIG 1g.5gb"."""
    gpu_name, unit_name = (_text(nvml.nvmlDeviceGetName(handle)) for handle in (unit.gpu, unit.handle))
    return unit_name if unit_name.startswith(gpu_name) else f"{gpu_name} {unit_name}"


def _peaks(nvml: Any, chosen: Sequence[GpuUnit]) -> datasheet.DatasheetPeaks:
    """The data sheet's figures; for a slice, its part of these figures."""
    first = chosen[0]
    gpu_peaks = datasheet.datasheet_peaks("gpu", _text(nvml.nvmlDeviceGetName(first.gpu)), len(chosen))
    if not first.is_slice:
        return gpu_peaks
    try:
        count = int(nvml.nvmlDeviceGetAttributes(first.handle).multiprocessorCount)
        gpu_count = _multiprocessors(nvml, first.gpu)
        slice_bytes, gpu_bytes = (nvml.nvmlDeviceGetMemoryInfo(handle).total for handle in (first.handle, first.gpu))
    except nvml.NVMLError:
        count = gpu_count = 0
    if not count or not gpu_count:
        return datasheet.no_peaks(_NO_SHARE)
    return datasheet.part_of_peaks(
        gpu_peaks, count, gpu_count, max(1, round(_MEMORY_PARTS * slice_bytes / gpu_bytes)), _MEMORY_PARTS
    )


def _multiprocessors(nvml: Any, gpu: Any) -> int:
    """The multiprocessors of the whole GPU, computed from its cores, because NVML reports only the cores."""
    capability = tuple(nvml.nvmlDeviceGetCudaComputeCapability(gpu))
    return int(nvml.nvmlDeviceGetNumGpuCores(gpu)) // (_CORES_OF_CAPABILITY_8_0 if capability == (8, 0) else _CORES)


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


def _numbers(index: str) -> list[str]:
    """The numbers in `index`: "0", "0-1", or "0:1" for a slice."""
    gpu, colon, slice_number = index.partition(":")
    if colon and gpu.isdigit() and slice_number.isdigit():
        return [f"{int(gpu)}:{int(slice_number)}"]
    try:
        return [str(number) for number in cpu.parse_cpulist(index)]
    except ValueError:
        forms = 'by its number, such as "gpu:0" or "gpu:0-1", or a slice (MIG), such as "gpu:0:1"'
        raise DeviceUnavailable(f"gpu:{index}: name a GPU {forms}") from None


def _listed(numbers: Sequence[str]) -> str:
    return cpu.format_cpulist([int(number) for number in numbers]) if len(numbers) > 1 else numbers[0]


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

    `slices`: the device ids of a divided GPU's slices (MIG). Raises DeviceUnavailable with the reason if NVML isn't
    available.
    """
    with nvml_session() as nvml:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        return [
            {
                "driver": driver,
                **{name: _read_fact(nvml, handle, read) for name, read in _FACTS.items()},
                "slices": [f"gpu:{unit.number}" for unit in _units_in(nvml, number) if unit.is_slice],
            }
            for number, handle in enumerate(handles)
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
