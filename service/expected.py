"""How long a job that waits is to have a device, as its workloads estimate it."""

from __future__ import annotations

from collections.abc import Mapping

from dyno.devices.device import Device
from dyno.errors import InvalidSpec
from dyno.models.spec import Spec
from dyno.workloads import can_run, validate_params
from dyno.workloads.contract import Workload


def expected_s(workloads: Mapping[str, Workload], spec: Spec, device: Device) -> float | None:
    """All runs of all that it runs in turns, with nothing learned yet; null where it can't run there.

    Also null of a job that another version has queued: whoever claims it says what is wrong with it.
    """
    times_s = [_of_arm(workloads, arm, device) for arm in spec.arms]
    known = [time_s for time_s in times_s if time_s is not None]
    return sum(known) if len(known) == len(times_s) else None


def _of_arm(workloads: Mapping[str, Workload], arm: Spec, device: Device) -> float | None:
    workload = workloads.get(arm.workload)
    if workload is None:
        return None
    try:
        params = validate_params(workload, arm.params, arm.replicas, arm.framework)
    except InvalidSpec:
        return None
    if arm.framework not in device.frameworks or not can_run(workload, params, arm.replicas, arm.framework, device):
        return None
    return workload.estimate(params, device, arm.replicas, arm.framework).in_all_s(arm.measure)
