"""Find the TPU chips of this host, as one device, through device nodes and PCI, without a framework.

Keras on JAX uses them through libtpu. The authors had no TPU: tests discover TPUs in recorded folders and execute on
virtual devices.
"""

import importlib.util
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pydantic import JsonValue

from dyno.bench.devices import cpu, datasheet
from dyno.errors import DeviceUnavailable
from dyno.models.device import Device
from dyno.settings import Settings

DEV, PCI = Path("/dev"), Path("/sys/bus/pci/devices")
_GOOGLE = "0x1ae0"
_GIB = 2**30
_ADDRESSES = ("TPU_NAME", "COLAB_TPU_ADDR")


@dataclass(frozen=True)
class TpuGeneration:
    """The `cores` that a framework sees per chip, and memory per core; from Cloud TPU's system architecture pages."""

    name: str
    cores: int
    core_bytes: int


# By PCI device number, as in JAX's hardware_utils. v2 and v3 share a number; the entry has the smaller memory.
_GENERATIONS = {
    "0x0027": TpuGeneration("v2 or v3", 2, 8 * _GIB),
    "0x005e": TpuGeneration("v4", 1, 32 * _GIB),
    "0x0062": TpuGeneration("v5p", 1, 95 * _GIB),
    "0x0063": TpuGeneration("v5e", 1, 16 * _GIB),
    "0x006f": TpuGeneration("v6e", 1, 32 * _GIB),
    "0x0076": TpuGeneration("v7x", 2, 96 * _GIB),
}


# v2 and v3 by the cloud's accelerator type, such as "v3-8".
_BY_ACCELERATOR_TYPE = {"v2": TpuGeneration("v2", 2, 8 * _GIB), "v3": TpuGeneration("v3", 2, 16 * _GIB)}
# A device node without a known PCI number: the smallest figures of all generations.
_UNKNOWN = TpuGeneration("of an unknown generation", 1, 8 * _GIB)


def tpu_facts(dev: Path = DEV, pci: Path = PCI) -> dict[str, JsonValue]:
    """Every source of information about TPUs with its content; null or [] if the source has no content.

    `nodes`, `vfio`: device files. `pci`: Google's device numbers. `libtpu`: its version. `TPU_NAME`, `COLAB_TPU_ADDR`:
    a remote TPU's address. `cores`: the number of cores of all chips. `memory_bytes`: the memory of all cores.
    """
    numbers = _pci_numbers(pci)
    nodes = sorted(str(node) for node in dev.glob("accel[0-9]*"))
    generation = _generation(numbers)
    chips = len(numbers) or len(nodes)
    return {
        "nodes": list[JsonValue](nodes),
        "vfio": list[JsonValue](sorted(str(node) for node in (dev / "vfio").glob("[0-9]*"))),
        "pci": list[JsonValue](numbers),
        "libtpu": _libtpu(),
        **{name: os.environ.get(name) or None for name in (*_ADDRESSES, "TPU_ACCELERATOR_TYPE")},
        "generation": generation.name if chips else None,
        "chips": chips,
        "cores": chips * generation.cores if chips else None,
        "memory_bytes": chips * generation.cores * generation.core_bytes if chips else None,
    }


def discover_tpu(index: str | None, host: str, settings: Settings, dev: Path = DEV, pci: Path = PCI) -> Device:
    """All chips of this host as tpu:0; `memory_bytes` is the memory of one core, which holds one replica.

    Raises DeviceUnavailable, whose message lists the sources checked and their content.
    """
    facts = tpu_facts(dev, pci)
    if not _chips(facts):
        raise DeviceUnavailable(_absent(facts))
    if facts["libtpu"] is None:
        raise DeviceUnavailable(f"TPU can't be used: libtpu is missing; install jax[tpu]. Found {_present(facts)}")
    if index not in (None, "0"):
        raise DeviceUnavailable(f"tpu:{index} not found: the chips of a host form one device; use tpu:0")
    generation = _generation(_pci_numbers(pci))
    model = f"TPU {generation.name}"
    peaks = datasheet.datasheet_peaks("tpu", model, _chips(facts))
    return Device(
        id="tpu:0",
        kind="tpu",
        model=model,
        host=host,
        cores=cpu.free_cores(settings),
        memory_bytes=generation.core_bytes,
        peak=peaks.by_dtype,
        memory_bandwidth=peaks.memory,
        units=_chips(facts) * generation.cores,
    )


def _absent(facts: dict[str, JsonValue]) -> str:
    remote = [f"{name} is {facts[name]}" for name in _ADDRESSES if facts[name]]
    tried = ["no /dev/accel*", "no Google TPU on PCI or in /dev/vfio"]
    tried.append("no libtpu" if facts["libtpu"] is None else f"libtpu {facts['libtpu']}")
    tried += [f"{name} unset" for name in _ADDRESSES if not facts[name]]
    if remote:
        return f"TPU can't be used: {', '.join(remote)}, but workers use only local chips; {', '.join(tried)}"
    return f"TPU not found: {', '.join(tried)}"


def _present(facts: dict[str, JsonValue]) -> str:
    files = [*_as_list(facts["nodes"]), *(f"PCI device {number}" for number in _as_list(facts["pci"]))]
    return ", ".join(files)


def _chips(facts: dict[str, JsonValue]) -> int:
    return len(_as_list(facts["pci"])) or len(_as_list(facts["nodes"]))


def _as_list(value: JsonValue) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _pci_numbers(pci: Path) -> list[str]:
    """PCI device numbers of the TPUs, one per chip."""
    google = [folder for folder in sorted(pci.glob("*")) if cpu.read_kernel_file(folder / "vendor") == _GOOGLE]
    return [number for folder in google if (number := cpu.read_kernel_file(folder / "device")) in _GENERATIONS]


def _generation(numbers: list[str]) -> TpuGeneration:
    declared = os.environ.get("TPU_ACCELERATOR_TYPE", "").partition("-")[0]
    by_pci = _GENERATIONS[numbers[0]] if numbers else _UNKNOWN
    return _BY_ACCELERATOR_TYPE.get(declared, by_pci) if by_pci.name == "v2 or v3" else by_pci


def _libtpu() -> str | None:
    if importlib.util.find_spec("libtpu") is None:
        return None
    try:
        return metadata.version("libtpu")
    except metadata.PackageNotFoundError:
        return "unknown"
