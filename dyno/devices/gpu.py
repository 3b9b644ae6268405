"""A GPU as a device, through NVML: no framework, no CUDA context."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dyno.devices.cpu import free_cores
from dyno.devices.device import Device, PeakFigure
from dyno.errors import DeviceUnavailable
from dyno.settings import Settings

_NO_PEAK = PeakFigure(value=None, reason="this version has no data sheet figure for GPUs")


def discover_gpu(index: str | None, host: str, settings: Settings) -> Device:
    """The GPU that NVML numbers `index`, by default the one that a framework here computes on.

    Raises DeviceUnavailable, saying what was looked at; also for a GPU where a framework would take another.
    """
    with opened_nvml() as nvml:
        count = nvml.nvmlDeviceGetCount()
        number = _computing(count) if index is None else _number(index)
        if number >= count:
            raise DeviceUnavailable(f"gpu:{number} not found: NVML lists {count} here")
        if number != (computing := _computing(count)):
            needed = f"a worker for it needs CUDA_VISIBLE_DEVICES={number}"
            raise DeviceUnavailable(f"gpu:{number} would be measured on gpu:{computing}: {needed}")
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        return Device(
            id=f"gpu:{number}",
            kind="gpu",
            model=_text(nvml.nvmlDeviceGetName(handle)),
            host=host,
            cores=free_cores(settings),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            isa=_capability(nvml, handle),
            peak=dict.fromkeys(("float32", "bfloat16", "float16"), _NO_PEAK),
        )


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """The pynvml module, initialised. Raises DeviceUnavailable where there is none, or a call in the block fails."""
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


def _capability(nvml: Any, handle: Any) -> list[str]:
    """As compilers name it: "sm_80" is compute capability 8.0."""
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:
        return []
    return [f"sm_{major}{minor}"]


def _computing(count: int) -> int:
    """The number of the GPU that a framework takes first; NVML lists all, whatever CUDA_VISIBLE_DEVICES says."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    first = visible.split(",")[0].strip()
    if first.isdigit():
        return int(first)
    if first.startswith("GPU-") and count == 1:
        return 0
    raise DeviceUnavailable(f"CUDA_VISIBLE_DEVICES={visible!r} gives no number of a GPU, such as 0")


def _number(index: str) -> int:
    if not index.isdigit():
        raise DeviceUnavailable(f"gpu:{index}: a GPU has one number, such as gpu:0")
    return int(index)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
