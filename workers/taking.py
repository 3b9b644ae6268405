"""Which jobs this worker's device takes, of those whose record doesn't say it."""

from __future__ import annotations

from collections.abc import Mapping

from dyno.devices.device import Device
from dyno.errors import InvalidSpec
from dyno.models.spec import Spec
from dyno.store.fitting import Taker, profile
from dyno.workloads import can_run, validate_params
from dyno.workloads.contract import Workload
from workers.log import LOG


def taker(device: Device, workloads: Mapping[str, Workload]) -> Taker:
    """A job with something wrong with it is taken, whatever it needs: its attempt tells what is wrong."""

    def fits(spec: Spec) -> bool:
        has_all = all(arm.framework in device.frameworks for arm in spec.arms[1:])  # of the first the queue tells it
        return has_all and all(_takes(arm, device, workloads) for arm in spec.arms)

    return Taker(profile(device), fits)


def _takes(spec: Spec, device: Device, workloads: Mapping[str, Workload]) -> bool:
    if (workload := workloads.get(spec.workload)) is None:
        return True
    try:
        params = validate_params(workload, spec.params, spec.replicas, spec.framework)
        return can_run(workload, params, spec.replicas, spec.framework, device)
    except InvalidSpec:
        return True
    except Exception:  # noqa: BLE001 - a fault of the workload's: it must not keep the jobs behind this one waiting
        LOG.exception("fit-unknown workload=%s", spec.workload)
        return True
