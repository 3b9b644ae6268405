"""What a training's linter says: of its batch and its widths, of the data asked for, of memory."""

from __future__ import annotations

from collections.abc import Mapping

from dyno.datasets.kinds import DataKind
from dyno.devices.device import Device
from dyno.measure.result_checks import batch_small, batch_uneven, cache_resident, width_uneven
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning
from dyno.workloads._cost import Step


def of_data(kind: DataKind, what: str = "accuracy is no reference accuracy") -> list[ResultWarning]:
    """`what` follows from another kind than the real one. Nothing of `auto`: the worker knows what it has."""
    if kind not in ("sample", "synthetic"):
        return []
    return [warning("SYNTHETIC_DATA", f"{kind} data was asked for, so {what}.")]


def of_batch(batch_size: int, replicas: int) -> list[ResultWarning]:
    return [raised for raised in (batch_uneven(batch_size, replicas),) if raised is not None]


def of_step(step: Step, device: Device, widths: Mapping[str, int] | None = None) -> list[ResultWarning]:
    """What only a device tells. `widths`: sizes of layers that params decide, by their names."""
    raised = (
        batch_small(step.products_s, step.own_s),
        width_uneven(widths or {}) if device.kind == "tpu" else None,
        cache_resident(step.touched_bytes, device.last_cache_bytes),
    )
    return [each for each in raised if each is not None]
