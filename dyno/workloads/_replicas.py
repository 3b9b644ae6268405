"""Whether a workload can be copied to several devices, its batch split evenly among them."""

from __future__ import annotations

from typing import Any

from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.models.spec import FrameworkName
from dyno.workloads.contract import Params, Workload


def check_replicas(
    workload: Workload, params: Params, replicas: int, framework: FrameworkName = "tensorflow"
) -> list[FieldError]:
    """What is wrong with `replicas` (/replicas), or a `batch_size` for them (/params/batch_size); [] if nothing."""
    if replicas == 1:
        return []
    if not (workload.replicable and params.replicable):
        what = f"{workload.name} with these params" if workload.replicable else workload.name
        return [FieldError("/replicas", "not-replicable", f"{what} runs on one device: replicas must be 1")]
    if framework == "torch":
        return [FieldError("/replicas", "not-replicable", "Keras trains on one device under PyTorch")]
    batch_size = getattr(params, "batch_size", None)
    if not isinstance(batch_size, int) or batch_size % replicas == 0:
        return []
    nearest = ", ".join(map(str, _nearest(type(params), batch_size, replicas)))
    detail = f"{batch_size} is not divisible by {replicas} replicas; nearest valid: {nearest or 'none'}"
    return [FieldError("/params/batch_size", "not-divisible", detail)]


def check_units(replicas: int, device: Device) -> list[FieldError]:
    """What is wrong with so many replicas on that device (/replicas); [] if nothing."""
    if replicas <= device.units:
        return []
    detail = f"{device.full_id} takes up to {device.units}: {replicas} are too many"
    return [FieldError("/replicas", "too-many-replicas", detail)]


def _nearest(params: type[Params], batch_size: int, replicas: int) -> list[int]:
    """The multiples of `replicas` on both sides of `batch_size`, as far as the field allows them."""
    below = batch_size - batch_size % replicas
    allowed: list[Any] = params.model_fields["batch_size"].metadata
    most = min((limit.le for limit in allowed if hasattr(limit, "le")), default=None)
    return [size for size in (below, below + replicas) if size > 0 and (most is None or size <= most)]
