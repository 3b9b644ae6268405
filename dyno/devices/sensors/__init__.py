"""Sensors of a device, one file per source: what they say between samples, or why they say nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dyno.devices.cpulist import parse_cpulist
from dyno.devices.device import Device
from dyno.devices.gpu import opened_nvml
from dyno.devices.sensors.host import HostSensors
from dyno.devices.sensors.nvml import GpuSensors
from dyno.devices.sensors.source import NoSensors, Source
from dyno.errors import DeviceUnavailable

_NONE_OF_A_TPU = "no sensor of a TPU is read"


@contextmanager
def sensing(device: Device) -> Iterator[Source]:
    """The sensors of `device`, open for the block. Where there are none, the source says why; nothing is raised.

    An emulated device has those of the cores it is made of.
    """
    with ExitStack() as stack:
        yield _source(device, stack)


def _source(device: Device, stack: ExitStack) -> Source:
    if device.driven_as == "cpu":
        return HostSensors(device.cores)
    if device.driven_as == "tpu":
        return NoSensors(_NONE_OF_A_TPU)
    try:
        nvml = stack.enter_context(opened_nvml())
    except DeviceUnavailable as absent:
        return NoSensors(absent.detail)
    return GpuSensors(nvml, parse_cpulist(device.id.partition(":")[2]), os.getpid())
