"""Find the CPU device, and read from Linux its processors, cgroup limits and memory.

The module reads /proc and /sys only. Values that a hypervisor hides are null.

Core lists: "0-1,4", as the kernel writes them (cpulist, for example in /sys/devices/system/cpu/online).

Cgroups, version 2 and 1 (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ in the Linux kernel): a limit of any
ancestor binds this process, so all ancestors are read and the smallest limit applies. Files: cpu.max, memory.max (v2);
cpu.cfs_quota_us, cpu.cfs_period_us, memory.limit_in_bytes (v1).

Identity: vendor, family and model as the processor reports them, never the marketing name. Of two machines with
the name "AMD EPYC", one was three times as fast as the other.

Topology: /proc/cpuinfo, /proc/meminfo and /sys/devices/system/{cpu,node}, as documented in the kernel's
Documentation/ABI/testing, sysfs-devices-system-cpu and sysfs-devices-node.
"""

import os
import platform
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dyno.errors import DeviceUnavailable
from dyno.models.device import Device
from dyno.models.processor_names import processor_name
from dyno.settings import Settings

_PART = re.compile(r"^(\d{1,5})(?:-(\d{1,5}))?$")


def parse_cpulist(text: str) -> list[int]:
    """The cores in the cpulist `text`, sorted, without duplicates. Raises ValueError if `text` is not a cpulist."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        match = _PART.match(part)
        if match is None:
            raise ValueError(f'"{text}" is not a list of cores; write it like "0-1,4"')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f'"{part}" is reversed; write the lower core first')
        cores.update(range(first, last + 1))
    return sorted(cores)


def format_cpulist(cores: Iterable[int]) -> str:
    """The shortest cpulist of `cores`: [0, 1, 2, 4] gives "0-2,4", [0] gives "0-0".

    A single core is written as a range too, so that device ids have one form for any number of cores.
    """
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    if len(runs) == 1:
        return f"{runs[0][0]}-{runs[0][1]}"
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


CGROUP_MOUNT = Path("/sys/fs/cgroup")
CGROUP_MEMBERSHIP = Path("/proc/self/cgroup")

# v1 writes "no limit" as the largest multiple of the page size: 2**63 rounded down.
_NO_LIMIT_BYTES = 2**62


@dataclass(frozen=True)
class CgroupLimits:
    """`cpu_cores` is processor seconds per second. None means no limit."""

    cpu_cores: float | None = None
    memory_bytes: int | None = None


def cgroup_limits(mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP) -> CgroupLimits:
    """The tightest limits on this process."""
    cpu, memories = (_with_ancestors(controller, mount, membership) for controller in ("cpu", "memory"))
    cores = [value for folder in cpu if (value := _cgroup_cores(folder)) is not None]
    memory = [value for folder in memories if (value := _cgroup_memory(folder)) is not None]
    return CgroupLimits(min(cores, default=None), min(memory, default=None))


def own_cgroups(
    controller: str, mount: Path = CGROUP_MOUNT, membership: Path = CGROUP_MEMBERSHIP
) -> Iterator[tuple[Path, Path]]:
    """Candidate folders of this process's cgroup for `controller`, each with the root of its tree.

    Covers version 1 and both mount points of version 2.
    """
    for line in read_kernel_file(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if not controllers:
            roots = [mount, mount / "unified"]
        elif controller in names:
            roots = [mount / controller] if names == [controller] else [mount / controller, mount / controllers]
        else:
            continue
        for root in roots:
            yield root, root / path.strip("/")


def _with_ancestors(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """This process's cgroup and its ancestors, nearest first."""
    for root, folder in own_cgroups(controller, mount, membership):
        yield from _upwards(root, folder)


def _upwards(root: Path, folder: Path) -> Iterator[Path]:
    yield folder
    for parent in folder.parents:
        if parent == root.parent or not parent.is_relative_to(root):
            return
        yield parent


def _cgroup_cores(folder: Path) -> float | None:
    words = read_kernel_file(folder / "cpu.max").split()
    if not words:
        words = [read_kernel_file(folder / "cpu.cfs_quota_us"), read_kernel_file(folder / "cpu.cfs_period_us")]
    quota, period = words if len(words) == 2 else ("", "")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # "max" in v2, -1 in v1
    return int(quota) / int(period)


def _cgroup_memory(folder: Path) -> int | None:
    text = read_kernel_file(folder / "memory.max") or read_kernel_file(folder / "memory.limit_in_bytes")
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None


def read_kernel_file(path: Path) -> str:
    """The stripped text of a file below /proc or /sys; empty if it can't be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


CPUINFO = Path("/proc/cpuinfo")

# Instruction sets that affect the speed of matrix products, in the kernel's spelling.
ISA_OF_INTEREST = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx_vnni_int8", "avx_ne_convert"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_fp16", "amx_int8"),
    *("asimd", "asimdhp", "asimddp", "asimdfhm", "bf16", "i8mm", "sve", "sve2", "svebf16", "sme", "sme2"),
    *("altivec", "vsx", "mma", "vx", "vxe"),
)


@dataclass(frozen=True)
class Processor:
    """`model` is the identity, for routing and series; `name` is for display. `family` and `number` (the model number)
    are None except on x86.
    """

    model: str
    name: str
    vendor: str
    family: int | None
    number: int | None
    isa: tuple[str, ...]


def processor(cpuinfo: Path = CPUINFO) -> Processor:
    """The first processor in `cpuinfo`. If the file names no model, `model` is the machine type, such as "x86_64"."""
    fields = _first_block(cpuinfo)
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    isa = tuple(flag for flag in ISA_OF_INTEREST if flag in flags)
    if "vendor_id" in fields and "cpu family" in fields:
        return _x86_processor(fields, isa)
    if "cpu implementer" in fields:
        return _arm_processor(fields, isa)
    name = fields.get("cpu") or fields.get("uarch") or fields.get("model name") or platform.machine() or "unknown"
    return Processor(name, name, fields.get("vendor_id", ""), None, None, isa)


def _first_block(cpuinfo: Path) -> dict[str, str]:
    try:
        block = cpuinfo.read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def _x86_processor(fields: dict[str, str], isa: tuple[str, ...]) -> Processor:
    vendor, family, number = fields["vendor_id"], fields["cpu family"], fields.get("model", "")
    model = f"{vendor} family {family} model {number} stepping {fields.get('stepping', 'unknown')}"
    name = processor_name(model, fields.get("model name"))
    return Processor(model, name, vendor, _int_or_none(family), _int_or_none(number), isa)


def _arm_processor(fields: dict[str, str], isa: tuple[str, ...]) -> Processor:
    vendor = fields["cpu implementer"]
    words = [f"Arm implementer {vendor}"]
    words += [f"{key} {fields[f'cpu {key}']}" for key in ("part", "variant", "revision") if f"cpu {key}" in fields]
    model = " ".join(words)
    return Processor(model, processor_name(model, fields.get("model name")), vendor, None, None, isa)


def _int_or_none(text: str) -> int | None:
    return int(text) if text.isdigit() else None


TOPOLOGY = Path("/sys/devices/system/cpu")
MEMINFO = Path("/proc/meminfo")
NO_CORES = "none"  # value of DYNO_RESERVED_CORES that reserves no core, not even the default one
RESERVE_FROM = 4  # cores; on a host with fewer cores, a reserved core would cost the benchmarks too much
VIRTUAL_UNITS = 64  # maximum number of virtual devices on a processor; higher numbers are untested
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def discover_cpu(index: str | None, host: str, settings: Settings) -> Device:
    """The CPU device of the cores in `index` (a cpulist), or of all free cores.

    Raises DeviceUnavailable if a core is missing, reserved, or outside this process's affinity mask.
    """
    cores = _selected_cores(index, settings)
    facts = processor()
    return Device(
        id=f"cpu:{format_cpulist(cores)}",
        kind="cpu",
        model=facts.model,
        name=f"{facts.name}, {len(cores)} core{'s' if len(cores) > 1 else ''}",
        host=host,
        cores=cores,
        memory_bytes=memory_bytes(),
        last_cache_bytes=last_cache_bytes(cores),
        isa=list(facts.isa),
        units=VIRTUAL_UNITS,
    )


def free_cores(settings: Settings) -> list[int]:
    """The cores that this process may run on, without reserved cores."""
    return sorted(os.sched_getaffinity(0) - reserved_cores(settings))


def reserved_cores(settings: Settings) -> set[int]:
    """The cores in DYNO_RESERVED_CORES. Raises DeviceUnavailable if it isn't a cpulist."""
    if settings.reserved_cores in (None, NO_CORES):
        return set()
    try:
        return set(parse_cpulist(settings.reserved_cores))
    except ValueError as error:
        raise DeviceUnavailable(f"DYNO_RESERVED_CORES: {error}") from None


def core_to_reserve(cores: Collection[int], named: Collection[int] = (), topology: Path = TOPOLOGY) -> set[int]:
    """The first of `cores` and its hyperthreads (they share its pipes and caches), to reserve for Dyno's own processes.

    Cores `named` by a device aren't reserved. Returns no core if there are fewer than RESERVE_FROM, or if none is left.
    """
    if len(cores) < RESERVE_FROM:
        return set()
    physical = ({core} | (siblings([core], topology) & set(cores)) for core in sorted(cores))
    return next((threads for threads in physical if not threads & set(named)), set())


def memory_bytes(meminfo: Path = MEMINFO) -> int:
    """Physical memory, or the container's limit if that is less."""
    total, limit = _meminfo(meminfo).get("MemTotal"), cgroup_limits().memory_bytes
    if total is None:
        raise DeviceUnavailable(f"{meminfo} has no MemTotal")
    return total if limit is None else min(total, limit)


def last_cache_bytes(cores: list[int], topology: Path = TOPOLOGY) -> int | None:
    """Total size of the last-level caches of `cores`; None if sysfs lists no cache.

    Separate caches add up: data spread over the cores stays in cache until it exceeds all caches together.
    """
    caches = [cache for core in cores if (cache := _last_cache(topology / f"cpu{core}" / "cache")) is not None]
    return sum(dict(caches).values()) if caches else None


_CACHES = 4  # STREAM's rule: an array is at least four times as large as the last-level cache
_LEAST_STREAMED_BYTES, _MEMORY_SHARE = 64 << 20, 1 / 16


def streamed_bytes(last_cache_bytes: int | None, memory_bytes: int) -> int:
    """Return the size of an array that fits in no cache, but at most a sixteenth of the memory; a multiple of 64."""
    wanted = max(_CACHES * (last_cache_bytes or 0), _LEAST_STREAMED_BYTES)
    return int(min(wanted, memory_bytes * _MEMORY_SHARE)) // 64 * 64


def physical_cores(cores: list[int], topology: Path = TOPOLOGY) -> int:
    """Number of physical cores behind the logical `cores`. Hyperthreads of one core share its pipes."""
    siblings = {
        read_kernel_file(topology / f"cpu{core}" / "topology" / "thread_siblings_list") or str(core) for core in cores
    }
    return len(siblings)


def siblings(cores: Collection[int], topology: Path = TOPOLOGY) -> set[int]:
    """The other hyperthreads on the physical cores of `cores`; empty if sysfs doesn't list them."""
    return _listed(cores, "thread_siblings_list", topology) - set(cores)


def package_cores(cores: Collection[int], topology: Path = TOPOLOGY) -> set[int]:
    """The other cores on the packages of `cores`, without hyperthreads of `cores`; empty if sysfs lists none."""
    return _listed(cores, "core_siblings_list", topology) - siblings(cores, topology) - set(cores)


def _listed(cores: Collection[int], name: str, topology: Path) -> set[int]:
    texts = [read_kernel_file(topology / f"cpu{core}" / "topology" / name) for core in cores]
    return {core for text in texts if text for core in parse_cpulist(text)}


def _selected_cores(cpulist: str | None, settings: Settings) -> list[int]:
    free = free_cores(settings)
    if cpulist is None:
        if not free:
            also = f"DYNO_RESERVED_CORES is {settings.reserved_cores}"
            raise DeviceUnavailable(f"no core is left: {_affinity_mask()} and {also}")
        return free
    try:
        cores = parse_cpulist(cpulist)
    except ValueError as error:
        raise DeviceUnavailable(f"cpu:{cpulist}: {error}") from None
    if reserved := sorted(reserved_cores(settings) & set(cores)):
        raise DeviceUnavailable(f"cpu:{cpulist}: DYNO_RESERVED_CORES reserves {format_cpulist(reserved)}")
    if missing := sorted(set(cores) - set(free)):
        raise DeviceUnavailable(f"cpu:{cpulist}: no core {', '.join(map(str, missing))} available; {_affinity_mask()}")
    return cores


def _affinity_mask() -> str:
    return f"this process may use {format_cpulist(os.sched_getaffinity(0))} (its affinity mask)"


def _last_cache(folder: Path) -> tuple[str, int] | None:
    """(cores that share it, bytes) of the cache of the highest level, without instruction caches."""
    caches: list[tuple[int, str, int]] = []
    for cache in folder.glob("index[0-9]*"):
        match = re.fullmatch(r"(\d+)([KMG]?)", read_kernel_file(cache / "size"))
        if match and read_kernel_file(cache / "type") != "Instruction":
            level, shared = read_kernel_file(cache / "level"), read_kernel_file(cache / "shared_cpu_list")
            caches.append((int(level or 0), shared, int(match[1]) * _UNITS[match[2]]))
    if not caches:
        return None
    _, shared, size_bytes = max(caches)
    return shared, size_bytes


ROOT = Path("/")
_SYSTEM_PATH, _CPUINFO_PATH, _MEMINFO_PATH = "sys/devices/system", "proc/cpuinfo", "proc/meminfo"


@dataclass(frozen=True)
class Cache:
    """All caches of one level and kind ("data", "instruction", "unified"): `count` caches of `each_bytes`."""

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
    """`cores` counts physical cores; `processors` lists logical cores; `nodes`: NUMA node -> its processors.

    `shown_hz` is the clock that the kernel reports, which a hypervisor may falsify. `least_hz` and `most_hz` are the
    governor's limits.
    """

    architecture: str
    model: str
    name: str
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


def read_topology(architecture: str, root: Path = ROOT) -> Topology:
    """The topology of the host whose /proc and /sys lie under `root`. Raises OSError if /proc/meminfo is missing."""
    cpuinfo, folder = root / _CPUINFO_PATH, root / _SYSTEM_PATH / "cpu"
    facts, fields = processor(cpuinfo), _first_block(cpuinfo)
    numbers = _online(folder, cpuinfo)
    topologies = [folder / f"cpu{number}" / "topology" for number in numbers]
    memory = _meminfo(root / _MEMINFO_PATH)
    megahertz = fields.get("cpu mhz")
    return Topology(
        architecture=architecture,
        model=facts.model,
        name=facts.name,
        marketing_name=fields.get("model name") or None,
        isa=facts.isa,
        virtual="hypervisor" in fields.get("flags", "").split(),
        processors=format_cpulist(numbers),
        sockets=len({read_kernel_file(topology / "physical_package_id") for topology in topologies}),
        cores=len({read_kernel_file(topology / "thread_siblings_list") or str(topology) for topology in topologies}),
        threads=len(numbers),
        nodes=_nodes(root / _SYSTEM_PATH / "node"),
        caches=_caches([folder / f"cpu{number}" / "cache" for number in numbers]),
        shown_hz=float(megahertz) * 1e6 if megahertz else None,
        least_hz=_hertz(folder / "cpu0" / "cpufreq" / "cpuinfo_min_freq"),
        most_hz=_hertz(folder / "cpu0" / "cpufreq" / "cpuinfo_max_freq"),
        memory_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        swap_bytes=memory.get("SwapTotal", 0),
    )


def _online(folder: Path, cpuinfo: Path) -> list[int]:
    if online := read_kernel_file(folder / "online"):
        return parse_cpulist(online)
    return list(range(len(re.findall(r"^processor\s*:", read_kernel_file(cpuinfo), re.MULTILINE))))


def _nodes(folder: Path) -> dict[str, str]:
    nodes = sorted(folder.glob("node[0-9]*"), key=lambda node: int(node.name.removeprefix("node")))
    return {node.name: read_kernel_file(node / "cpulist") for node in nodes}


def _caches(folders: Iterable[Path]) -> tuple[Cache, ...]:
    """Each cache once: sysfs lists a shared cache under every processor that shares it."""
    shared_by: dict[tuple[int, str, int, int | None, int | None], set[str]] = {}
    for cache_folder in _indices(folders):
        size = re.fullmatch(r"(\d+)([KMG]?)", read_kernel_file(cache_folder / "size"))
        level = _read_int(cache_folder / "level")
        if size and level:
            key = (
                *(level, read_kernel_file(cache_folder / "type").lower(), int(size[1]) * _UNITS[size[2]]),
                *(_read_int(cache_folder / "coherency_line_size"), _read_int(cache_folder / "ways_of_associativity")),
            )
            shared_by.setdefault(key, set()).add(read_kernel_file(cache_folder / "shared_cpu_list"))
    caches = [
        Cache(level, kind, each_bytes, len(shared), line_bytes, ways)
        for (level, kind, each_bytes, line_bytes, ways), shared in shared_by.items()
    ]
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind)))


def data_caches(cores: Iterable[int], topology: Path = TOPOLOGY) -> dict[str, int]:
    """The bytes of all caches of each level that `cores` have, by name: L1d, L2, … Without instruction caches."""
    caches = _caches([topology / f"cpu{core}" / "cache" for core in cores])
    return {cache.name: cache.each_bytes * cache.count for cache in caches if cache.kind != "instruction"}


def _indices(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.glob("index[0-9]*"))


def _meminfo(meminfo: Path) -> dict[str, int]:
    """Field -> bytes; the kernel counts in KiB."""
    return {name: int(value) * 1024 for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo.read_text(), re.M)}


def _hertz(path: Path) -> float | None:
    kilohertz = _read_int(path)
    return None if kilohertz is None else kilohertz * 1e3


def _read_int(path: Path) -> int | None:
    return _int_or_none(read_kernel_file(path))
