"""Report device and host facts: topology, caches, instructions, memory, GPUs, TPUs, frameworks.

The workload times no arithmetic. The result's `details` hold all facts; the artifact `device.txt` is a readable list.
A sample is the time to read the facts from /proc, /sys and NVML. Only the first run queries the frameworks.
"""

import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import Field, JsonValue

from dyno.bench import contract, estimates, references
from dyno.bench.devices import cpu_speed, discovery, gpu, tpu
from dyno.bench.devices.cpu import Topology, read_topology
from dyno.bench.frameworks.visible_devices import query_visible_devices
from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.errors import DeviceUnavailable
from dyno.models.device import Device
from dyno.models.spec import FrameworkName
from dyno.settings import Settings

_WIDTH = 24
Facts = dict[str, Any]


def host_facts() -> Facts:
    """Facts under `cpu` (see `Topology`), `gpus` and `tpu`; `reason` says why a kind is missing. JSON values only."""
    return {"cpu": _cpu(read_topology(platform.machine())), "gpus": _gpus(), "tpu": _tpu()}


def listing(facts: Facts) -> str:
    """One line per known fact, formatted like `lscpu`."""
    lines: list[str] = []
    for name, value in _rows(facts):
        lines.append(f"{name + ':':<{_WIDTH}} {value}".rstrip())
    return "\n".join(lines) + "\n"


def _cpu(topology: Topology) -> dict[str, JsonValue]:
    cpu: dict[str, Any] = asdict(topology)
    cpu["isa"] = list(topology.isa)
    cpu["caches"] = [{"name": cache.name, **asdict(cache)} for cache in topology.caches]
    return cpu


def _gpus() -> dict[str, Any]:
    try:
        return {"found": gpu.gpu_facts()}
    except DeviceUnavailable as absent:
        return {"found": [], "reason": absent.detail}


def _tpu() -> dict[str, Any]:
    tried = tpu.tpu_facts()
    try:
        device = tpu.discover_tpu(None, discovery.host_name(), Settings())
    except DeviceUnavailable as absent:
        return {"found": [], "reason": absent.detail, "looked_at": tried}
    return {"found": [{"model": device.model, **tried}], "looked_at": tried}


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from _cpu_rows(facts["cpu"])
    for kind in ("gpus", "tpu"):
        for number, device in enumerate(facts[kind]["found"]):
            title = f"{kind.upper().removesuffix('S')} {number}"
            yield from ((f"{title} {name.replace('_', ' ')}", str(value)) for name, value in device.items() if value)
        if reason := facts[kind].get("reason"):
            yield kind.upper().removesuffix("S"), reason
    for name, framework in facts.get("frameworks", {}).items():
        yield from _framework_rows(name, framework)


def _cpu_rows(cpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Architecture", cpu["architecture"]
    yield "Name", cpu["name"]
    yield "Model", cpu["model"]
    if cpu["marketing_name"]:
        yield "Calls itself", cpu["marketing_name"]
    yield "Virtual machine", "yes" if cpu["virtual"] else "not said"
    yield "Processors", f"{cpu['threads']} ({cpu['processors']})"
    yield "Sockets", str(cpu["sockets"])
    yield "Cores", str(cpu["cores"])
    for node, processors in cpu["nodes"].items():
        yield f"NUMA {node}", processors
    for cache in cpu["caches"]:
        size = f"{cache['each_bytes'] / 1024:g} KiB"
        yield (
            f"{cache['name']} cache",
            f"{cache['count']} x {size}, {cache['ways']} ways of {cache['line_bytes']} bytes",
        )
    for name in ("shown", "least", "most", "measured"):
        if cpu.get(f"{name}_hz"):
            yield f"Clock, {name}", f"{cpu[f'{name}_hz'] / 1e9:.3f} GHz"
    yield "Memory", f"{cpu['memory_bytes'] / 2**30:.2f} GiB, {cpu['available_bytes'] / 2**30:.2f} GiB available"
    yield "Swap", f"{cpu['swap_bytes'] / 2**30:.2f} GiB"
    yield "Instructions", " ".join(cpu["isa"])


def _framework_rows(name: str, framework: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield name, framework["version"]
    for device in framework["devices"]:
        yield f"{name} sees", ", ".join(str(value) for value in device.values() if value is not None)
    if "reason" in framework:
        yield f"{name} sees", f"no devices: {framework['reason']}"


LISTING = "device.txt"
_FACTS = "facts that the system reports about its devices can't be verified against another source"
_READ_S = 0.01  # time of one execution
_QUERY_S = 15.0  # time to query another framework in a separate process


class DeviceInfoParams(contract.Params):
    ask_frameworks: bool = Field(
        True, description="Also query every other installed framework, which takes seconds for each"
    )


class _DeviceInfo:
    """One execution reads all facts about the host once."""

    work = 1.0

    def __init__(self, params: DeviceInfoParams, context: contract.BuildContext) -> None:
        self._params, self._context = params, context
        self._facts: Facts = {}
        self._frameworks: Facts = {}

    def compile(self) -> None:
        """Do nothing."""

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._facts = host_facts()

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        """Query the frameworks and write the list."""
        loaded, installed = self._context.framework, discovery.installed_frameworks()
        for number, (name, version) in enumerate(installed.items()):
            self._context.report("asking", number, len(installed), "frameworks")
            if name == loaded.name:
                self._frameworks[name] = {"version": version, "devices": loaded.visible_devices()}
            elif self._params.ask_frameworks:
                self._frameworks[name] = {"version": version, **query_visible_devices(name)}
        if self._context.artifacts is not None:
            (self._context.artifacts / LISTING).write_text(listing(self._all()))

    def verify(self) -> contract.Verification:
        facts = self._all()
        return contract.Verification(
            unchecked=dict.fromkeys(OUTPUT_CODES, _FACTS), details=facts | {"listing": listing(facts).splitlines()}
        )

    def _all(self) -> Facts:
        device = self._context.device
        cores = device.cores if device else []
        measured = {"measured_hz": cpu_speed.measure_clock_hz(cores[0]) if cores else None}
        facts: dict[str, Any] = {**self._facts, "cpu": self._facts["cpu"] | measured}
        return facts | ({"frameworks": self._frameworks} if self._frameworks else {})


def flops(params: DeviceInfoParams) -> float:
    """Zero: the workload times no arithmetic."""
    return 0.0


def estimate(
    params: DeviceInfoParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    """The time of one execution, and the time to query the other frameworks."""
    queried = max(0, len(device.frameworks) - 1) if params.ask_frameworks else 0
    return contract.Estimate(1.0, estimates.runtime_bytes(device), queried * _QUERY_S, (_READ_S,))


def build(params: DeviceInfoParams, context: contract.BuildContext) -> contract.Built:
    return _DeviceInfo(params, context)


_CORES = "Eight cores are one board of four chips; two cores share each chip's memory."

WORKLOAD = contract.Workload(
    name="device_info",
    description="Device facts: topology, caches, instructions, memory, driver, and the devices each framework sees",
    params=DeviceInfoParams,
    metrics=(contract.MetricSpec("discovery_time", "s", "lower", "Time to read all facts about the host's devices"),),
    flops=flops,
    estimate=estimate,
    build=build,
    references=(references.LABORATORY.figure(references.TPU_V2, "cores", 8.0, "cores", _CORES),),
    executions=lambda params: "all facts about the host's devices read once",
    smoke=contract.Smoke(
        {"ask_frameworks": False},
        details=frozenset({"cpu", "frameworks", "listing"}),
        artifacts=frozenset({"device.txt"}),
    ),
    options="a readable list, `device.txt`",
)
