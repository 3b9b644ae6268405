"""A workload that trains a recurrent model: what is the same of all, given the plan and the cost of its params."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dyno.datasets.kinds import DataKind
from dyno.devices.device import Device
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads._cost import sampling_s
from dyno.workloads._lint import of_batch, of_data, of_step
from dyno.workloads._recurrent import RecurrentParams
from dyno.workloads._recurrent_cost import Cost, build_s, memory_bytes, step_of
from dyno.workloads._training import ModelTraining, Plan
from dyno.workloads.contract import BuildContext, Built, Estimate

_WIDTHS = ("units", "embedding")
_NO_QUALITY = "no figure of quality is the reference's"


@dataclass(frozen=True)
class RecurrentTraining:
    """`after_s(params, device)` is what one training takes beyond its epochs and its evaluation.

    `real_sample`: the sample that ships is the real set.
    """

    plan: Callable[[Any, BuildContext], Plan]
    cost: Callable[[Any], Cost]
    after_s: Callable[[Any, Device], float] = lambda params, device: 0.0
    real_sample: bool = False

    def flops(self, params: RecurrentParams) -> float:
        """Of one execution: training steps on full batches, never past the end of an epoch."""
        cost = self.cost(params)
        return cost.flops_per_sample * cost.schedule.execution

    def estimate(
        self, params: RecurrentParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
    ) -> Estimate:
        cost = self.cost(params)
        step_s = step_of(cost, device, replicas).time_s
        execution_s = cost.schedule.steps * step_s
        steps = cost.schedule.in_all(params) / cost.schedule.batch
        return Estimate(
            time_s=build_s(cost, device, replicas, params.recurrence) + 2 * execution_s + sampling_s(execution_s),
            memory_bytes=memory_bytes(cost, device, replicas, framework),
            train_s=steps * step_s + params.trials * self.after_s(params, device),
        )

    def lint(self, params: RecurrentParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
        cost = self.cost(params)
        kind: DataKind = "real" if self.real_sample and params.data == "sample" else params.data
        widths = {name: getattr(params, name) for name in _WIDTHS if hasattr(params, name)}
        of_device = [] if device is None else of_step(step_of(cost, device, replicas), device, widths)
        return [*of_data(kind, _NO_QUALITY), *of_batch(cost.schedule.batch, replicas), *of_device]

    def build(self, params: RecurrentParams, context: BuildContext) -> Built:
        """A framework may make fewer steps in an execution than were asked for, so FLOP are counted by the sample."""
        plan = replace(self.plan(params, context), flops_per_sample=self.cost(params).flops_per_sample)
        return ModelTraining(params, plan, context)
