"""A CPU, or a set of its cores, as a device."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from dyno.devices.cgroup import cgroup_limits, read_kernel_file
from dyno.devices.cpulist import format_cpulist, parse_cpulist
from dyno.devices.device import Device
from dyno.devices.identity import processor
from dyno.errors import DeviceUnavailable
from dyno.settings import Settings

TOPOLOGY = Path("/sys/devices/system/cpu")
MEMINFO = Path("/proc/meminfo")
VIRTUAL_UNITS = 64  # of one processor; more were never tried
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def discover_cpu(index: str | None, host: str, settings: Settings) -> Device:
    """The device made of the cores that `index` (a cpulist) names, or of all cores that are free for it.

    Raises DeviceUnavailable where a core is missing, reserved, or outside this process's affinity mask.
    """
    cores = _cores(index, settings)
    facts = processor()
    return Device(
        id=f"cpu:{format_cpulist(cores)}",
        kind="cpu",
        model=facts.model,
        host=host,
        cores=cores,
        memory_bytes=memory_bytes(),
        last_cache_bytes=last_cache_bytes(cores),
        isa=list(facts.isa),
        units=VIRTUAL_UNITS,
    )


def free_cores(settings: Settings) -> list[int]:
    """The cores this process may run on, without the reserved ones."""
    return sorted(os.sched_getaffinity(0) - _reserved(settings))


def memory_bytes(meminfo: Path = MEMINFO) -> int:
    """Physical memory, or the container's limit where that is less."""
    text = meminfo.read_text()
    match = re.search(r"^MemTotal:\s*(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise DeviceUnavailable(f"{meminfo} has no MemTotal")
    total, limit = int(match[1]) * 1024, cgroup_limits().memory_bytes
    return total if limit is None else min(total, limit)


def last_cache_bytes(cores: list[int], topology: Path = TOPOLOGY) -> int | None:
    """The last level of cache that `cores` reach, summed over its separate parts; null where sysfs has none.

    Summed, because data spread over the cores stays in cache until all parts together are too small for it.
    """
    parts = [part for core in cores if (part := _last_cache(topology / f"cpu{core}" / "cache")) is not None]
    return sum(dict(parts).values()) if parts else None


def physical_cores(cores: list[int], topology: Path = TOPOLOGY) -> int:
    """How many cores of silicon stand behind the logical `cores`: siblings of one core share its pipes."""
    siblings = {
        read_kernel_file(topology / f"cpu{core}" / "topology" / "thread_siblings_list") or str(core) for core in cores
    }
    return len(siblings)


def siblings(cores: Collection[int], topology: Path = TOPOLOGY) -> set[int]:
    """The other logical cores (hyperthreads) on the silicon of `cores`; empty where sysfs doesn't say."""
    lists = [read_kernel_file(topology / f"cpu{core}" / "topology" / "thread_siblings_list") for core in cores]
    return {sibling for text in lists if text for sibling in parse_cpulist(text)} - set(cores)


def _cores(index: str | None, settings: Settings) -> list[int]:
    free = free_cores(settings)
    if index is None:
        if not free:
            raise DeviceUnavailable(f"no core is left: {_mask()}; reserved are {settings.reserved_cores}")
        return free
    try:
        wanted = parse_cpulist(index)
    except ValueError as error:
        raise DeviceUnavailable(f"cpu:{index}: {error}") from None
    if reserved := sorted(_reserved(settings) & set(wanted)):
        raise DeviceUnavailable(f"cpu:{index}: DYNO_RESERVED_CORES keeps {format_cpulist(reserved)} free of runners")
    if missing := sorted(set(wanted) - set(free)):
        raise DeviceUnavailable(f"cpu:{index}: no core {', '.join(map(str, missing))} here; {_mask()}")
    return wanted


def _reserved(settings: Settings) -> set[int]:
    if not settings.reserved_cores:
        return set()
    try:
        return set(parse_cpulist(settings.reserved_cores))
    except ValueError as error:
        raise DeviceUnavailable(f"DYNO_RESERVED_CORES: {error}") from None


def _mask() -> str:
    return f"this process may use {format_cpulist(os.sched_getaffinity(0))} (its affinity mask)"


def _last_cache(folder: Path) -> tuple[str, int] | None:
    """(the cores that share it, bytes) of the highest level, instruction caches left out."""
    found: list[tuple[int, str, int]] = []
    for index in folder.glob("index[0-9]*"):
        match = re.fullmatch(r"(\d+)([KMG]?)", read_kernel_file(index / "size"))
        if match and read_kernel_file(index / "type") != "Instruction":
            level, shared = read_kernel_file(index / "level"), read_kernel_file(index / "shared_cpu_list")
            found.append((int(level or 0), shared, int(match[1]) * _UNITS[match[2]]))
    if not found:
        return None
    _, shared, size_bytes = max(found)
    return shared, size_bytes
