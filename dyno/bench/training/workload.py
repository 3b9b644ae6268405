"""Declare what all training workloads share: metrics, details of steps and models, their `Workload`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue

from dyno.bench.contract import BuildContext, Built, Estimate, MetricSpec, Smoke, Workload
from dyno.bench.frameworks.interface import Trainer
from dyno.bench.training.params import TrainingParams
from dyno.models.device import Device
from dyno.models.result import Epoch, Reference, ResultWarning
from dyno.models.spec import FrameworkName

TRAINING_METRICS = (
    MetricSpec("time_per_sample", "s", "lower", "Training time of one sample in steady steps on full batches"),
    MetricSpec("throughput", "samples/s", "higher", "Samples trained on per second"),
    MetricSpec("epoch_time", "s", "lower", "Time of an epoch of steady steps, without validation", amount="epoch"),
    MetricSpec(
        "full_training_time",
        "s",
        "lower",
        "Time that all epochs take in steady steps, without compiling and validation",
        amount="training",
    ),
    MetricSpec("first_epoch_time", "s", "lower", "Actual time of the first epoch, including compiling", once=True),
    MetricSpec(
        "training_time", "s", "lower", "Actual time of all epochs, including compiling, without validation", once=True
    ),
)


def step_details(trainer: Trainer) -> dict[str, JsonValue]:
    return {
        "execution": _in_words(trainer),
        "batch_size": trainer.batch_size,
        "batch_size_per_replica": trainer.batch_size // trainer.replicas,
        "replicas": trainer.replicas,
        "steps_per_execution": trainer.steps_per_execution,
        "jit_compile": trainer.jit_compile,
    }


def model_details(model: Any) -> dict[str, JsonValue]:
    return {
        "weights": int(model.count_params()),
        "optimizer": type(model.optimizer).__name__,
        "loss": _named(model.loss),
    }


def epoch_figures(epochs: Sequence[Epoch]) -> dict[str, float]:
    """One-time figures of a training. `train_accuracy`: the running mean over the last epoch, as Keras prints it."""
    figures = {"first_epoch_time": epochs[0].time_s, "training_time": sum(epoch.time_s for epoch in epochs)}
    accuracy = epochs[-1].accuracy
    return figures if accuracy is None else figures | {"train_accuracy": accuracy}


def _in_words(trainer: Trainer) -> str:
    """A description of one execution."""
    steps, batch = trainer.steps_per_execution, trainer.batch_size
    if steps == 1:
        return f"one training step on a full batch of {batch} samples"
    return f"{steps} training steps on full batches of {batch} samples"


def _named(loss: Any) -> str:
    """The name of a compiled loss, or of its function or class."""
    return loss if isinstance(loss, str) else str(getattr(loss, "name", getattr(loss, "__name__", type(loss).__name__)))


class Trainable(Protocol):
    """A model, its data and their cost, as functions of the params."""

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
    *,
    smoke: Smoke,
    bench: Mapping[str, JsonValue],
    options: str,
) -> Workload:
    """The `Workload` of a training. `dataset` is the module in `dyno.bench.datasets`."""
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
        smoke=smoke,
        bench=bench,
        options=options,
    )


def training_smoke(
    params: Mapping[str, JsonValue], details: Collection[str] = (), artifacts: Collection[str] = ()
) -> Smoke:
    """A training of one epoch with the usual outputs, without XLA, which would compile for most of the time."""
    return Smoke(
        params={"epochs": 1, "jit_compile": False, **params},
        details=frozenset({"batch_size", "batch_size_per_replica", "replicas", "jit_compile", "weights", *details}),
        artifacts=frozenset({"training.png", "model.weights.h5", "model.keras", *artifacts}),
    )
