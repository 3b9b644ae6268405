"""Describe the software environment of a result: versions, limits and flags, from an allow-list.

The allow-list omits users, paths and all other variables, so that results can be published.
"""

import hashlib
import json
import os
import platform
import re
import sys
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dyno.bench.devices import cpu, gpu
from dyno.errors import DeviceUnavailable
from dyno.models.device import Device
from dyno.models.spec import DeviceKind

# NVIDIA's libraries that frameworks load. Names for CUDA 12 end in "-cu12"; some names for CUDA 13 have no ending.
_CUDA = (
    *(
        "cublas",
        "cuda-cccl",
        "cuda-cupti",
        "cuda-nvcc",
        "cuda-nvrtc",
        "cuda-runtime",
        "cudnn",
        "cufft",
        "curand",
        "cusolver",
    ),
    *("cusparse", "cusparselt", "nccl", "nvjitlink", "nvshmem"),
)
PACKAGES = (
    *("tensordyno", "numpy", "scipy", "ml-dtypes", "keras", "tensorflow", "tensorflow-cpu", "tensorflow-tpu"),
    *("jax", "jaxlib", "libtpu", "torch", "triton", "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin"),
    *("jax-cuda13-pjrt", *(f"nvidia-{name}{ending}" for name in _CUDA for ending in ("-cu12", "-cu13", ""))),
)
FLAGS = (
    *("KERAS_BACKEND", "TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_NUM_INTRAOP_THREADS"),
    *("TF_NUM_INTEROP_THREADS", "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_FORCE_GPU_ALLOW_GROWTH"),
    *("TF_GPU_ALLOCATOR", "TF_CPP_MIN_LOG_LEVEL", "NVIDIA_TF32_OVERRIDE", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("JAX_DEFAULT_MATMUL_PRECISION", "JAX_ENABLE_X64", "PYTHONHASHSEED", "MALLOC_ARENA_MAX"),
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS"),
    *("MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "LD_PRELOAD"),
)
# Every flag with these prefixes is recorded, except addresses of hosts. CUDA_VISIBLE_DEVICES, JAX_PLATFORMS and
# KERAS_TORCH_DEVICE aren't recorded, because they follow from the device: the worker sets them
# (`dyno.bench.frameworks.visible_devices`).
FLAG_PREFIXES = ("NCCL_", "XLA_")
_ADDRESSES = frozenset({"NCCL_COMM_ID", "NCCL_HOSTID"})
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_PATH = re.compile(r"~?/[^\s,:;\"']*")


def environment(kind: DeviceKind = "cpu") -> dict[str, Any]:
    """Python, platform, kernel, C library, package versions, governor, container limits and flags. JSON values only.

    A "gpu" adds `driver`, null if NVML doesn't report it. A TPU's driver is the package libtpu. `governor` is
    null if the kernel reports none (most virtual machines). Paths inside flags are replaced with "<path>".
    """
    facts = _of_the_host()
    return facts if kind != "gpu" else facts | {"driver": _driver()}


def _of_the_host() -> dict[str, Any]:
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{sys.platform} {platform.machine()}",
        "kernel": platform.release(),
        "libc": _libc(),
        "packages": _packages(),
        "governor": _governor(),
        "container": asdict(cpu.cgroup_limits()),
        "flags": {name: _PATH.sub("<path>", value) for name, value in os.environ.items() if _is_flag(name)},
    }


def _is_flag(name: str) -> bool:
    return name in FLAGS or (name.startswith(FLAG_PREFIXES) and name not in _ADDRESSES)


def hardware_id(device: Device) -> str:
    """An id that devices of equal expected speed share: same kind, model, units, number of cores, memory and ISA.

    Memory is rounded to GiB because the amount that a kernel reserves changes with its version.
    """
    memory_gib = round(device.memory_bytes / 2**30)
    facts: list[Any] = [device.kind, device.model, len(device.cores), memory_gib, device.isa, device.emulated]
    return "hw_" + _digest(facts if device.units == 1 else [*facts, device.units])


def context_id(environment: dict[str, Any]) -> str:
    """An id that equal environments share, whatever the order of keys."""
    return "ctx_" + _digest(environment)


@cache
def _libc() -> str | None:
    return " ".join(platform.libc_ver()).strip() or None


def _driver() -> dict[str, str] | None:
    try:
        return gpu.driver_versions()
    except DeviceUnavailable:
        return None


def _packages() -> dict[str, str]:
    """The packages, cached until a folder of packages changes, because looking up all packages takes 5 ms."""
    return _packages_in(tuple((folder, _changed_ns(folder)) for folder in sys.path))


def _changed_ns(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


@cache
def _packages_in(folders: tuple[tuple[str, int], ...]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _governor() -> str | None:
    try:
        return GOVERNOR.read_text().strip()
    except OSError:
        return None


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
