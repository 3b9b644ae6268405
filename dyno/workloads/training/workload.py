"""What all training workloads declare and report: metrics, details of a step and of a model, `Workload`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import JsonValue

from dyno.devices.device import Device
from dyno.frameworks.contract import Trainer
from dyno.models.result import Epoch, Reference, ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload
from dyno.workloads.training.params import TrainingParams

TRAINING_METRICS = (
    MetricSpec("time_per_sample", "s", "lower", "Training time of one sample in steady steps on full batches"),
    MetricSpec("throughput", "samples/s", "higher", "Samples trained on per second"),
    MetricSpec("epoch_time", "s", "lower", "Time of an epoch of such steps, validation apart", amount="epoch"),
    MetricSpec("first_epoch_time", "s", "lower", "The first epoch as it was, compiling included", once=True),
    MetricSpec("training_time", "s", "lower", "All epochs as they were, compiling included, validation not", once=True),
)


def step_details(trainer: Trainer, framework: str, asked_steps: int, steps_per_epoch: int) -> dict[str, JsonValue]:
    """`asked_steps` an execution were asked for; where it has fewer, `steps_per_execution_reason` says why."""
    found: dict[str, JsonValue] = {
        "execution": _in_words(trainer),
        "batch_size": trainer.batch_size,
        "batch_size_per_replica": trainer.batch_size // trainer.replicas,
        "replicas": trainer.replicas,
        "steps_per_execution": trainer.steps_per_execution,
        "jit_compile": trainer.jit_compile,
    }
    if trainer.steps_per_execution < asked_steps:
        fewer = trainer.steps_per_execution < min(asked_steps, steps_per_epoch)
        why = f"{framework} makes each step a call of its own on this device" if fewer else "an epoch has no more steps"
        found["steps_per_execution_reason"] = f"asked for {asked_steps}; {why}"
    return found


def model_details(model: Any) -> dict[str, JsonValue]:
    return {
        "weights": int(model.count_params()),
        "optimizer": type(model.optimizer).__name__,
        "loss": _named(model.loss),
    }


def epoch_figures(epochs: Sequence[Epoch]) -> dict[str, float]:
    """What a training has once; `train_accuracy` as Keras prints it: the running mean over the last epoch."""
    figures = {"first_epoch_time": epochs[0].time_s, "training_time": sum(epoch.time_s for epoch in epochs)}
    accuracy = epochs[-1].accuracy
    return figures if accuracy is None else figures | {"train_accuracy": accuracy}


def _in_words(trainer: Trainer) -> str:
    """What one execution was."""
    steps, batch = trainer.steps_per_execution, trainer.batch_size
    if steps == 1:
        return f"one training step on a full batch of {batch} samples"
    return f"{steps} training steps on full batches of {batch} samples"


def _named(loss: Any) -> str:
    """A loss as it was compiled: its name, or that of the function or class."""
    return loss if isinstance(loss, str) else str(getattr(loss, "name", getattr(loss, "__name__", type(loss).__name__)))


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
