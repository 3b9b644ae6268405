"""What the processors of this host are: sockets, cores, threads, NUMA nodes, caches, clocks, memory. All from Linux.

Sources: /proc/cpuinfo, /proc/meminfo, /sys/devices/system/{cpu,node}, as the kernel's Documentation/ABI/testing has it
in sysfs-devices-system-cpu and sysfs-devices-node. What a virtual machine's host hides is null here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dyno.devices.cgroup import read_kernel_file
from dyno.devices.cpulist import format_cpulist, parse_cpulist
from dyno.devices.identity import processor

ROOT = Path("/")
_SYSTEM, _CPUINFO, _MEMINFO = "sys/devices/system", "proc/cpuinfo", "proc/meminfo"
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True)
class Cache:
    """All caches of one level and kind ("data", "instruction", "unified"): `count` of `each_bytes`."""

    level: int
    kind: str
    each_bytes: int
    count: int
    line_bytes: int | None
    ways: int | None

    @property
    def name(self) -> str:
        return f"L{self.level}{'' if self.kind == 'unified' else self.kind[0]}"


@dataclass(frozen=True)
class Topology:
    """`cores` are those of silicon, `processors` what the kernel schedules on; `nodes`: NUMA node -> its processors.

    `shown_hz` is what the kernel prints, which a hypervisor may make up; least and most are the governor's limits.
    """

    architecture: str
    model: str
    marketing_name: str | None
    isa: tuple[str, ...]
    virtual: bool
    processors: str
    sockets: int
    cores: int
    threads: int
    nodes: dict[str, str]
    caches: tuple[Cache, ...]
    shown_hz: float | None
    least_hz: float | None
    most_hz: float | None
    memory_bytes: int
    available_bytes: int
    swap_bytes: int


def topology(architecture: str, root: Path = ROOT) -> Topology:
    """Of the host whose /proc and /sys lie under `root`. Raises OSError without a /proc/meminfo."""
    cpuinfo, folder = read_kernel_file(root / _CPUINFO), root / _SYSTEM / "cpu"
    facts = processor(root / _CPUINFO)
    numbers = _online(folder, cpuinfo)
    places = [folder / f"cpu{number}" / "topology" for number in numbers]
    memory = _memory(root / _MEMINFO)
    megahertz = _field(cpuinfo, "cpu MHz")
    return Topology(
        architecture=architecture,
        model=facts.model,
        marketing_name=_field(cpuinfo, "model name"),
        isa=facts.isa,
        virtual="hypervisor" in (_field(cpuinfo, "flags") or "").split(),
        processors=format_cpulist(numbers),
        sockets=len({read_kernel_file(place / "physical_package_id") for place in places}),
        cores=len({read_kernel_file(place / "thread_siblings_list") or str(place) for place in places}),
        threads=len(numbers),
        nodes=_nodes(root / _SYSTEM / "node"),
        caches=_caches([folder / f"cpu{number}" / "cache" for number in numbers]),
        shown_hz=float(megahertz) * 1e6 if megahertz else None,
        least_hz=_hertz(folder / "cpu0" / "cpufreq" / "cpuinfo_min_freq"),
        most_hz=_hertz(folder / "cpu0" / "cpufreq" / "cpuinfo_max_freq"),
        memory_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        swap_bytes=memory.get("SwapTotal", 0),
    )


def _online(folder: Path, cpuinfo: str) -> list[int]:
    online = read_kernel_file(folder / "online")
    return parse_cpulist(online) if online else list(range(len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE))))


def _nodes(folder: Path) -> dict[str, str]:
    found = sorted(folder.glob("node[0-9]*"), key=lambda node: int(node.name.removeprefix("node")))
    return {node.name: read_kernel_file(node / "cpulist") for node in found}


def _caches(folders: Iterable[Path]) -> tuple[Cache, ...]:
    """Each cache once, though every processor that shares it lists it."""
    seen: dict[tuple[int, str, int, int | None, int | None], set[str]] = {}
    for index in _indices(folders):
        size = re.fullmatch(r"(\d+)([KMG]?)", read_kernel_file(index / "size"))
        level = _read_int(index / "level")
        if size and level:
            key = (
                *(level, read_kernel_file(index / "type").lower(), int(size[1]) * _UNITS[size[2]]),
                *(_read_int(index / "coherency_line_size"), _read_int(index / "ways_of_associativity")),
            )
            seen.setdefault(key, set()).add(read_kernel_file(index / "shared_cpu_list"))
    caches = [
        Cache(level, kind, each_bytes, len(shared), line_bytes, ways)
        for (level, kind, each_bytes, line_bytes, ways), shared in seen.items()
    ]
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind)))


def _indices(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.glob("index[0-9]*"))


def _memory(meminfo: Path) -> dict[str, int]:
    """Field -> bytes; the kernel counts in KiB."""
    return {name: int(value) * 1024 for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo.read_text(), re.M)}


def _hertz(path: Path) -> float | None:
    kilohertz = _read_int(path)
    return None if kilohertz is None else kilohertz * 1e3


def _field(cpuinfo: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else None


def _read_int(path: Path) -> int | None:
    text = read_kernel_file(path)
    return int(text) if text.isdigit() else None
