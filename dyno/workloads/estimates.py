"""Time and memory estimates that all workloads share, and the warnings that follow from them.

Admission asks for both before a job is queued: how fast a device computes, how long its samples take, how much so
many replicas hold, and which batch sizes, layer widths and data deserve a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dyno.datasets.loading import DataKind
from dyno.devices.device import Device
from dyno.measure.result_checks import batch_small, batch_uneven, cache_resident, width_uneven
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning

RUNTIME_BYTES = 700_000_000  # a framework and Keras imported, on a CPU host; measured 690 MB (TensorFlow), 320 MB (JAX)
# Building and tracing a model once more for each further virtual device. Measured on two busy cores: 1 to 5 s
# (TensorFlow, the small trainings), none (JAX).
_REPLICA_S = 2.0


@dataclass(frozen=True)
class StepCost:
    """One training step on a device. `own_s` is what it takes whatever the batch; `touched_bytes` of all memory."""

    products_s: float
    own_s: float
    touched_bytes: int

    @property
    def time_s(self) -> float:
        return self.products_s + self.own_s


def runtime_bytes(device: Device) -> int:
    """What the framework itself holds where a job's memory is the host's."""
    return RUNTIME_BYTES if device.driven_as == "cpu" else 0


def rate_flop_per_s(device: Device, dtype: str, reached: float, assumed: Mapping[str, float]) -> float:
    """`reached` is a share of the peak for `dtype`; where none is known `assumed` counts: of a core, or accelerator."""
    peak = device.peak.get(dtype)
    if peak is not None and peak.value:
        return reached * peak.value
    kind = device.driven_as
    return assumed[kind] * (max(1, len(device.cores)) if kind == "cpu" else 1)


def sampling_s(execution_s: float) -> float:
    """The default budget: 25 samples, 3 s at least; after 60 s none is begun."""
    return min(max(25 * execution_s, 3.0), 60.0 + execution_s)


def speed_up(device: Device, replicas: int) -> int:
    """Accelerators of their own compute side by side; virtual devices share one processor."""
    return 1 if device.driven_as == "cpu" else replicas


def replicas_s(device: Device, replicas: int) -> float:
    """What making a model on so many devices takes beyond making it on one."""
    return _REPLICA_S * (replicas - 1) if device.driven_as == "cpu" else 0.0


def held_bytes(device: Device, replicas: int, *, once: int, each: int, shared: int) -> int:
    """What is held at once: `once` by the host, `each` by every replica, `shared` by all of them in equal parts.

    On a CPU all of it together, with the framework; elsewhere by the fullest accelerator, without what is the host's:
    but `once` counts there too, for a second copy is made while data is brought over.
    """
    if device.driven_as == "cpu":
        return once + replicas * each + shared + RUNTIME_BYTES
    return once + each + shared // replicas


def data_warnings(kind: DataKind, what: str = "accuracy is no reference accuracy") -> list[ResultWarning]:
    """`what` follows from another kind than the real one. Nothing of `auto`: the worker knows what it has."""
    if kind not in ("sample", "synthetic"):
        return []
    return [warning("SYNTHETIC_DATA", f"{kind} data was asked for, so {what}.")]


def batch_warnings(batch_size: int, replicas: int) -> list[ResultWarning]:
    return [raised for raised in (batch_uneven(batch_size, replicas),) if raised is not None]


def step_warnings(step: StepCost, device: Device, widths: Mapping[str, int] | None = None) -> list[ResultWarning]:
    """What only a device tells. `widths`: sizes of layers that params decide, by their names."""
    raised = (
        batch_small(step.products_s, step.own_s),
        width_uneven(widths or {}) if device.kind == "tpu" else None,
        cache_resident(step.touched_bytes, device.last_cache_bytes),
    )
    return [each for each in raised if each is not None]
