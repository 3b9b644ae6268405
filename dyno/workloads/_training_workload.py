"""What every training's `WORKLOAD` has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dyno.devices.device import Device
from dyno.models.result import Reference, ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads._training_details import TRAINING_METRICS
from dyno.workloads._training_params import TrainingParams
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload


class Trainable(Protocol):
    """A model with its data and what both cost, by params of its own."""

    def flops(self, params: Any) -> float: ...

    def estimate(
        self, params: Any, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
    ) -> Estimate: ...

    def build(self, params: Any, context: BuildContext) -> Built: ...

    def lint(self, params: Any, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]: ...


def training_workload(
    trained: Trainable,
    name: str,
    description: str,
    params: type[TrainingParams],
    dataset: str,
    references: Sequence[Reference] = (),
    metrics: Sequence[MetricSpec] = TRAINING_METRICS,
) -> Workload:
    """The training under its own name; `dataset` is the module of `dyno.datasets`."""
    return Workload(
        name=name,
        description=description,
        params=params,
        metrics=tuple(metrics),
        flops=trained.flops,
        estimate=trained.estimate,
        build=trained.build,
        lint=trained.lint,
        references=tuple(references),
        datasets=(dataset,),
        replicable=True,
    )
