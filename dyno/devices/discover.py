"""Finding a device on this host: cheap, without any framework. Peaks are measured apart (`dyno.devices.peak`)."""

from __future__ import annotations

import re
import socket

from dyno.devices.cpu import discover_cpu
from dyno.devices.device import Device
from dyno.devices.emulated import emulated_device, parse_emulated
from dyno.devices.frameworks import installed_frameworks
from dyno.devices.gpu import discover_gpu
from dyno.devices.tpu import discover_tpu
from dyno.errors import DeviceUnavailable
from dyno.models.spec import DEVICE_ID
from dyno.settings import Settings


def discover(device_id_or_kind: str, settings: Settings, emulate: str | None = None) -> Device:
    """The device that "cpu", "cpu:0-1", "gpu", "gpu:0" or "tpu" means on this host, with its installed frameworks.

    An id may end in "@host" if that is this host. `emulate`: "tpu:8" makes the device of so many virtual CPU devices.
    Raises DeviceUnavailable with what was looked at.
    """
    here = host_name()
    kind, index, host = _parts(device_id_or_kind)
    if host not in (None, here):
        raise DeviceUnavailable(f"{device_id_or_kind} is on another host; this one is {here}")
    device = _found(kind, index, here, settings) if emulate is None else _made(emulate, kind, index, here, settings)
    return device.model_copy(update={"frameworks": installed_frameworks(device.driven_as)})


def _found(kind: str, index: str | None, host: str, settings: Settings) -> Device:
    if kind == "cpu":
        return discover_cpu(index, host, settings)
    if kind == "gpu":
        return discover_gpu(index, host, settings)
    return discover_tpu(index, host, settings)


def _made(what: str, kind: str, index: str | None, host: str, settings: Settings) -> Device:
    """Raises DeviceUnavailable where a real device of that id is there: two may not share one id."""
    emulated_kind, units = parse_emulated(what)
    if kind != emulated_kind:
        raise DeviceUnavailable(f"{what} emulates no {kind}")
    device = emulated_device(emulated_kind, units, index, host, settings)
    try:
        _found(kind, device.id.partition(":")[2], host, settings)
    except DeviceUnavailable:
        return device
    raise DeviceUnavailable(f"{device.id} is a real {kind} here; an emulated one needs another number")


def host_name() -> str:
    """This host's name in the letters that a device id allows."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "localhost"


def _parts(text: str) -> tuple[str, str | None, str | None]:
    if text in ("cpu", "gpu", "tpu"):
        return text, None, None
    match = DEVICE_ID.match(text)
    if match is None:
        raise DeviceUnavailable(f'"{text}" names no device; it would be "cpu", "cpu:0-1", "gpu:0" or "tpu:0"')
    return match["kind"], match["index"], match["host"]
