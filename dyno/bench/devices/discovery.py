"""Discover the devices of this host without importing a framework; create emulated devices.

Discovery is cheap: it reads installed frameworks from package metadata, and `dyno.bench.devices.cpu_speed` measures
peaks separately.

An emulated GPU or TPU consists of virtual CPU devices, to test routing, replicas or a whole fleet on a laptop. It has
the speed of a CPU, so every result has `emulated` set and is untrusted.
"""

import re
import socket
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import get_args

from dyno.bench.devices import cpu, gpu, tpu
from dyno.errors import DeviceUnavailable
from dyno.models.device import Device, PeakFigure
from dyno.models.spec import DEVICE_ID, DeviceKind, FrameworkName
from dyno.settings import Settings

# A framework's distributions in order of preference; the builds differ in name but import as the same package.
_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-cpu-aws"),
    "jax": ("jax",),
    "torch": ("torch",),
}


# JAX also needs libtpu, which `discover_tpu` requires; docs/dev/decisions/0012 says why TPUs run only JAX.
_FOR_TPU: dict[str, tuple[str, ...]] = {"jax": ("jax",)}


def installed_frameworks(kind: DeviceKind = "cpu") -> dict[str, str]:
    """Framework name -> version of the installed frameworks that can use a device of `kind`."""
    distributions = _FOR_TPU if kind == "tpu" else _DISTRIBUTIONS
    builds = {name: _distribution(distributions.get(name, ())) for name in get_args(FrameworkName)}
    return {
        name: build.version
        for name, build in builds.items()
        if build is not None and (kind != "gpu" or _FOR_GPU[name](build))
    }


def missing_frameworks(kind: DeviceKind) -> str:
    """Why no framework can use a device of `kind`, and what to install."""
    extras = " or ".join(f'pip install ".[{extra}]"' for extra in _EXTRAS[kind]) + " in a checkout"
    if installed := [f"{name} {version}" for name, version in installed_frameworks().items()]:
        needs = {"gpu": "is built for CUDA", "tpu": "runs on a TPU"}.get(kind, "runs here")
        return f"no installed framework {needs} ({', '.join(installed)}); install one with: {extras}"
    return f"no framework is installed; install one with: {extras}"


# The extras of pyproject.toml for each kind of device.
_EXTRAS: dict[DeviceKind, tuple[str, ...]] = {"cpu": ("cpu",), "gpu": ("gpu", "jax-cuda"), "tpu": ("jax-tpu",)}


def _distribution(names: tuple[str, ...]) -> metadata.Distribution | None:
    for name in names:
        try:
            return metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _says(file: str, pattern: str) -> Callable[[metadata.Distribution], bool]:
    """Whether a line of the distribution's `file` matches; False if the file is missing."""

    def says(distribution: metadata.Distribution) -> bool:
        try:
            text = Path(str(distribution.locate_file(file))).read_text()
        except OSError:
            return False
        return re.search(pattern, text, re.MULTILINE) is not None

    return says


def _has_cuda_plugin(distribution: metadata.Distribution) -> bool:
    """Whether JAX has a CUDA plugin, such as the entry point "xla_cuda12" of jax-cuda12-plugin."""
    return any("cuda" in point.name for point in metadata.entry_points(group="jax_plugins"))


# Whether a build can use a GPU, read from its files: wheels for a CPU have the same version, and sometimes the same
# name, as wheels for CUDA.
_FOR_GPU: dict[str, Callable[[metadata.Distribution], bool]] = {
    "tensorflow": _says("tensorflow/python/platform/build_info.py", r"'is_cuda_build', True\b"),
    "jax": _has_cuda_plugin,
    "torch": _says("torch/version.py", r"^cuda\b.*= *['\"]"),
}


_EMULATED_ID = re.compile(r"^(?P<kind>gpu|tpu):(?P<units>[0-9]{1,4})$")
_NO_PEAK = PeakFigure(value=None, reason="an emulated device has no peak of its own")


def parse_emulated(text: str) -> tuple[DeviceKind, int]:
    """(kind, units) of "tpu:8" or "gpu:1". Raises DeviceUnavailable for anything else."""
    match = _EMULATED_ID.match(text)
    if match is None or not 1 <= int(match["units"]) <= cpu.VIRTUAL_UNITS:
        form = f'"tpu:8" or "gpu:1", with 1 to {cpu.VIRTUAL_UNITS} virtual devices'
        raise DeviceUnavailable(f'"{text}" can\'t be emulated; use {form}')
    return ("gpu" if match["kind"] == "gpu" else "tpu"), int(match["units"])


def emulated_device(kind: DeviceKind, units: int, index: str | None, host: str, settings: Settings) -> Device:
    """The emulated device `kind`:`index` (0 by default) on all free cores, which it shares with other emulated devices.

    Raises DeviceUnavailable if no core is free or `index` is not a number.
    """
    if index is not None and not index.isdigit():
        raise DeviceUnavailable(f"{kind}:{index}: an emulated device has one number, such as {kind}:0")
    cores = cpu.free_cores(settings)
    if not cores:
        reserved_cores = f"DYNO_RESERVED_CORES is {settings.reserved_cores}"
        raise DeviceUnavailable(f"no core is left to emulate a {kind}; {reserved_cores}")
    return Device(
        id=f"{kind}:{int(index or 0)}",
        kind=kind,
        model=f"emulated {kind}",
        host=host,
        cores=cores,
        memory_bytes=cpu.memory_bytes(),
        last_cache_bytes=cpu.last_cache_bytes(cores),
        isa=list(cpu.processor().isa),
        peak=dict.fromkeys(("float32", "bfloat16", "float16"), _NO_PEAK),
        emulated=True,
        units=units,
    )


def discover(device_id_or_kind: str, settings: Settings, emulate: str | None = None) -> Device:
    """Find the device "cpu", "cpu:0-1", "gpu", "gpu:0" or "tpu" on this host, with its installed frameworks.

    An id may end in "@host" if that is this host. `emulate="tpu:8"` emulates the device with 8 virtual CPU devices.
    Raises DeviceUnavailable, whose message lists the sources it checked.
    """
    this_host = host_name(settings)
    kind, index, host = _parse_device_id(device_id_or_kind)
    if host not in (None, this_host):
        raise DeviceUnavailable(f"{device_id_or_kind} is on another host; this one is {this_host}")
    device = (
        _real_device(kind, index, this_host, settings)
        if emulate is None
        else _emulated_device(emulate, kind, index, this_host, settings)
    )
    return device.model_copy(update={"frameworks": installed_frameworks(device.driven_as)})


def _real_device(kind: str, index: str | None, host: str, settings: Settings) -> Device:
    if kind == "cpu":
        return cpu.discover_cpu(index, host, settings)
    if kind == "gpu":
        return gpu.discover_gpu(index, host, settings)
    return tpu.discover_tpu(index, host, settings)


def _emulated_device(emulated: str, kind: str, index: str | None, host: str, settings: Settings) -> Device:
    """Raises DeviceUnavailable if this host has a real device with the same id: ids must be unique."""
    emulated_kind, units = parse_emulated(emulated)
    if kind != emulated_kind:
        raise DeviceUnavailable(f"{emulated} doesn't emulate a {kind}; use --emulate {kind}:{units}")
    device = emulated_device(emulated_kind, units, index, host, settings)
    try:
        _real_device(kind, device.id.partition(":")[2], host, settings)
    except DeviceUnavailable:
        return device
    raise DeviceUnavailable(f"{device.id} is a real {kind} on this host; give the emulated device another number")


def host_name(settings: Settings | None = None) -> str:
    """This host's name in the letters that a device id allows."""
    configured = settings.hostname if settings is not None else None
    return configured or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "localhost"


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """An id of this machine, valid until its next boot. All containers on the machine have the same id."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def _parse_device_id(text: str) -> tuple[str, str | None, str | None]:
    if text in ("cpu", "gpu", "tpu"):
        return text, None, None
    match = DEVICE_ID.match(text)
    if match is None:
        raise DeviceUnavailable(f'unknown device "{text}"; use "cpu", "cpu:0-1", "gpu:0" or "tpu:0"')
    return match["kind"], match["index"], match["host"]
