"""Estimate time and memory for all workloads, and warn about specs before they run.

Admission uses the estimates and the warnings before it queues a job. Estimates cover a device's speed, the sampling
time and the memory of all replicas. Warnings concern batch sizes, layer widths and data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dyno.bench.datasets.loading import DataKind
from dyno.bench.measure.result_checks import batch_small, batch_uneven, cache_resident, width_uneven
from dyno.bench.measure.warnings import warning
from dyno.models.device import Device
from dyno.models.result import ResultWarning

RUNTIME_BYTES = 700_000_000  # an imported framework and Keras on a CPU host; measured 690 MB (TensorFlow), 320 MB (JAX)
# The framework builds and traces the model again for each additional virtual device. Measured on two busy cores: 1 to
# 5 s (TensorFlow, small trainings), 0 s (JAX).
_REPLICA_S = 2.0


@dataclass(frozen=True)
class StepCost:
    """One training step. `own_s`: fixed time for any batch. `touched_bytes`: all memory that the step touches."""

    products_s: float
    own_s: float
    touched_bytes: int

    @property
    def time_s(self) -> float:
        return self.products_s + self.own_s


def runtime_bytes(device: Device) -> int:
    """Memory of the framework itself if the job uses host memory, else 0."""
    return RUNTIME_BYTES if device.driven_as == "cpu" else 0


def rate_flop_per_s(device: Device, dtype: str, reached: float, assumed: Mapping[str, float]) -> float:
    """`reached` times the peak for `dtype`; for an unknown peak, the `assumed` rate per CPU core or per accelerator."""
    peak = device.peak.get(dtype)
    if peak is not None and peak.value:
        return reached * peak.value
    kind = device.driven_as
    return assumed[kind] * (max(1, len(device.cores)) if kind == "cpu" else 1)


def speed_up(device: Device, replicas: int) -> int:
    """Speed-up of `replicas` devices: accelerators compute in parallel, virtual devices share a processor."""
    return 1 if device.driven_as == "cpu" else replicas


def replicas_s(device: Device, replicas: int) -> float:
    """Additional time to build a model on `replicas` devices instead of one."""
    return _REPLICA_S * (replicas - 1) if device.driven_as == "cpu" else 0.0


def held_bytes(device: Device, replicas: int, *, once: int, per_replica: int, shared: int) -> int:
    """Peak memory: `once` on the host, `per_replica` on each replica, `shared` divided evenly among the replicas.

    On a CPU the result is the total, including the framework. Otherwise it is the memory of the fullest accelerator,
    including `once`, because the transfer of data to the device makes a second copy.
    """
    if device.driven_as == "cpu":
        return once + replicas * per_replica + shared + RUNTIME_BYTES
    return once + per_replica + shared // replicas


def data_warnings(kind: DataKind, what: str = "accuracy isn't comparable with the reference") -> list[ResultWarning]:
    """Warn about `sample` and `synthetic` data; `what` states the consequence. The worker decides about `auto`."""
    if kind not in ("sample", "synthetic"):
        return []
    return [warning("SYNTHETIC_DATA", f"The spec requests {kind} data, so {what}.")]


def batch_warnings(batch_size: int, replicas: int) -> list[ResultWarning]:
    return [uneven for uneven in (batch_uneven(batch_size, replicas),) if uneven is not None]


def step_warnings(step: StepCost, device: Device, widths: Mapping[str, int] | None = None) -> list[ResultWarning]:
    """Warnings that depend on the device. `widths`: layer sizes set by params, by param name."""
    warnings = (
        batch_small(step.products_s, step.own_s),
        width_uneven(widths or {}) if device.kind == "tpu" else None,
        cache_resident(step.touched_bytes, device.last_cache_bytes),
    )
    return [raised for raised in warnings if raised is not None]
