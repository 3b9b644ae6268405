"""Everything that is known of a host's processors, GPUs and TPUs, and the listing that a person reads."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue

from dyno.devices.cpu import Topology, read_topology
from dyno.devices.discovery import host_name
from dyno.devices.gpu import gpu_facts
from dyno.devices.tpu import discover_tpu, tpu_facts
from dyno.errors import DeviceUnavailable
from dyno.settings import Settings

_WIDTH = 24
Facts = dict[str, Any]


def host_facts() -> Facts:
    """`cpu` (see `Topology`), `gpus` and `tpu`: their facts, or under `reason` why there are none. JSON values only."""
    return {"cpu": _cpu(read_topology(platform.machine())), "gpus": _gpus(), "tpu": _tpu()}


def listing(facts: Facts) -> str:
    """One line per fact, as `lscpu` has it, without those that nobody tells."""
    lines: list[str] = []
    for name, value in _rows(facts):
        lines.append(f"{name + ':':<{_WIDTH}} {value}".rstrip())
    return "\n".join(lines) + "\n"


def _cpu(found: Topology) -> dict[str, JsonValue]:
    cpu: dict[str, Any] = asdict(found)
    cpu["isa"] = list(found.isa)
    cpu["caches"] = [{"name": cache.name, **asdict(cache)} for cache in found.caches]
    return cpu


def _gpus() -> dict[str, Any]:
    try:
        return {"found": gpu_facts()}
    except DeviceUnavailable as absent:
        return {"found": [], "reason": absent.detail}


def _tpu() -> dict[str, Any]:
    tried = tpu_facts()
    try:
        device = discover_tpu(None, host_name(), Settings())
    except DeviceUnavailable as absent:
        return {"found": [], "reason": absent.detail, "looked_at": tried}
    return {"found": [{"model": device.model, **tried}], "looked_at": tried}


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from _cpu_rows(facts["cpu"])
    for kind in ("gpus", "tpu"):
        for place, found in enumerate(facts[kind]["found"]):
            title = f"{kind.upper().removesuffix('S')} {place}"
            yield from ((f"{title} {name.replace('_', ' ')}", str(value)) for name, value in found.items() if value)
        if reason := facts[kind].get("reason"):
            yield kind.upper().removesuffix("S"), reason
    for name, told in facts.get("frameworks", {}).items():
        yield from _framework_rows(name, told)


def _cpu_rows(cpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Architecture", cpu["architecture"]
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
        each = f"{cache['each_bytes'] / 1024:g} KiB"
        yield (
            f"{cache['name']} cache",
            f"{cache['count']} x {each}, {cache['ways']} ways of {cache['line_bytes']} bytes",
        )
    for name in ("shown", "least", "most", "measured"):
        if cpu.get(f"{name}_hz"):
            yield f"Clock, {name}", f"{cpu[f'{name}_hz'] / 1e9:.3f} GHz"
    yield "Memory", f"{cpu['memory_bytes'] / 2**30:.2f} GiB, {cpu['available_bytes'] / 2**30:.2f} GiB available"
    yield "Swap", f"{cpu['swap_bytes'] / 2**30:.2f} GiB"
    yield "Instructions", " ".join(cpu["isa"])


def _framework_rows(name: str, told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield name, told["version"]
    for device in told["devices"]:
        yield f"{name} sees", ", ".join(str(value) for value in device.values() if value is not None)
    if "reason" in told:
        yield f"{name} sees", f"nothing: {told['reason']}"
