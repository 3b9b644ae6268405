"""Whether a device can do a job at all: asked before it is queued, and of a device that comes for it later."""

from __future__ import annotations

from dyno.devices.device import Device
from dyno.models.spec import FrameworkName
from dyno.workloads._replicas import check_units
from dyno.workloads.contract import Params, Workload


def can_run(workload: Workload, params: Params, replicas: int, framework: FrameworkName, device: Device) -> bool:
    """By the device's units, by what the workload refuses, and by the memory that it would take there.

    How long it would take doesn't count: an estimate of that is honest to a factor of about 3 only.
    """
    if check_units(replicas, device) or workload.refuses(params, device):
        return False
    return workload.estimate(params, device, replicas, framework).memory_bytes <= device.memory_bytes
