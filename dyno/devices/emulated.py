"""A GPU or TPU made of virtual CPU devices, to try routing, replicas and a whole fleet on a laptop.

What it measures is a CPU's speed under another name: every result says `emulated` and is untrusted.
"""

from __future__ import annotations

import re

from dyno.devices.cpu import VIRTUAL_UNITS, free_cores, last_cache_bytes, memory_bytes
from dyno.devices.device import Device, PeakFigure
from dyno.devices.identity import processor
from dyno.errors import DeviceUnavailable
from dyno.models.spec import DeviceKind
from dyno.settings import Settings

_FORM = re.compile(r"^(?P<kind>gpu|tpu):(?P<units>[0-9]{1,4})$")
_NO_PEAK = PeakFigure(value=None, reason="an emulated device has no peak of its own")


def parse_emulated(text: str) -> tuple[DeviceKind, int]:
    """(kind, units) of "tpu:8" or "gpu:1". Raises DeviceUnavailable for anything else."""
    match = _FORM.match(text)
    if match is None or not 1 <= int(match["units"]) <= VIRTUAL_UNITS:
        form = f'"tpu:8" or "gpu:1", with 1 to {VIRTUAL_UNITS} virtual devices'
        raise DeviceUnavailable(f'"{text}" can\'t be emulated; it would be {form}')
    return ("gpu" if match["kind"] == "gpu" else "tpu"), int(match["units"])


def emulated_device(kind: DeviceKind, units: int, index: str | None, host: str, settings: Settings) -> Device:
    """The device `kind`:`index` (0 by default) on all cores that are free for it, shared with other emulated ones.

    Raises DeviceUnavailable where no core is free, or `index` is no number.
    """
    if index is not None and not index.isdigit():
        raise DeviceUnavailable(f"{kind}:{index}: an emulated device has one number, such as {kind}:0")
    cores = free_cores(settings)
    if not cores:
        raise DeviceUnavailable(f"no core is left to emulate a {kind}; reserved are {settings.reserved_cores}")
    return Device(
        id=f"{kind}:{int(index or 0)}",
        kind=kind,
        model=f"emulated {kind}",
        host=host,
        cores=cores,
        memory_bytes=memory_bytes(),
        last_cache_bytes=last_cache_bytes(cores),
        isa=list(processor().isa),
        peak=dict.fromkeys(("float32", "bfloat16", "float16"), _NO_PEAK),
        emulated=True,
        units=units,
    )
