"""Shared declarations of all training workloads: params, optimisers, metrics, details, `Workload`.

Optimisers use Keras' defaults, except for the learning rate and SGD's momentum of 0.9.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, JsonValue, model_validator

from dyno.bench.contract import BuildContext, Built, Estimate, MetricSpec, Params, Smoke, Workload
from dyno.bench.frameworks.interface import JitCompile, Trainer, divisible_size
from dyno.bench.training.checkpoints import Export
from dyno.bench.training.evaluation import held_out_count
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.result import Epoch, Reference, ResultWarning
from dyno.models.spec import FrameworkName, WeightsRef

Optimizer = Literal["adam", "rmsprop", "sgd"]
# Types of params whose defaults differ between workloads.
OptimizerName = Annotated[Optimizer, Field(description="sgd uses a momentum of 0.9")]
LearningRate = Annotated[float, Field(gt=0, le=10, description="Learning rate of the optimizer")]
EpochCount = Annotated[int, Field(ge=1, le=1000)]


def new_optimizer(keras: Any, optimizer: Optimizer, learning_rate: float) -> Any:
    """A new optimizer without state."""
    if optimizer == "sgd":
        return keras.optimizers.SGD(learning_rate, momentum=0.9)
    return {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}[optimizer](learning_rate)


# These fields change the length, the quality or the start of a training. They don't change the sampled step, nor the
# sampled call of `quantized_inference`, which doesn't train if it has weights.
_UNTIMED = frozenset(
    {
        *("epochs", "learning_rate", "early_stopping_patience", "reduce_lr_patience", "best_weights"),
        *("trials", "weights", "export", "train"),
    }
)
# Fields that only matter to the full training: if a spec sets one, the job trains in full.
_OF_FULL = frozenset(
    {
        *("epochs", "validation_share", "early_stopping_patience", "reduce_lr_patience", "best_weights", "trials"),
        *("export", "target_accuracy", "recognise", "test_samples", "generate", "prompt", "temperature"),
        "generate_seed",
    }
)
_ONLY_TRAINING = (
    "epochs",
    "optimizer",
    "learning_rate",
    "steps_per_execution",
    "validation_share",
    "early_stopping_patience",
    "reduce_lr_patience",
    "best_weights",
    "trials",
    "export",
)


ONE_BY_ONE = "{} makes each step in a separate call on a CPU, so steps_per_execution must be 1"


class TrainingParams(Params):
    """Params of every training. Each workload sets the defaults of its reference."""

    untimed: ClassVar[frozenset[str]] = _UNTIMED
    how: ClassVar[frozenset[str]] = frozenset({"jit_compile", "steps_per_execution"})
    tests_accuracy: ClassVar[bool] = False  # whether results include the accuracy on a test set

    train: Literal["steps", "full"] = Field(
        "steps",
        description="steps: time training steps; full: also train every epoch first, and evaluate. With a field of the "
        "full training given, such as epochs, the default is full",
    )
    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(64, description="Total over all replicas")
    epochs: EpochCount = 1
    optimizer: OptimizerName = "adam"
    learning_rate: LearningRate = 1e-3
    jit_compile: JitCompile = Field("auto", description="auto: the faster setting, measured on the device")
    steps_per_execution: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Steps per compiled call")
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = Field(
        0.0, description="Share of the training data held out for validation"
    )
    early_stopping_patience: EpochCount | None = Field(
        None, description="Stop after this many epochs without a lower validation loss"
    )
    reduce_lr_patience: EpochCount | None = Field(
        None, description="Divide the learning rate by 10 after this many epochs without a lower validation loss"
    )
    best_weights: bool = Field(False, description="Restore the weights of the lowest validation loss after training")
    trials: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="Number of full trainings, each with its own seed"
    )
    weights: WeightsRef | None = Field(None, description="Start from another job's weights")
    export: Export | None = Field(None, description="Also save the model in a serving format; TensorFlow only")

    @model_validator(mode="before")
    @classmethod
    def _full_if_asked(cls, values: Any) -> Any:
        sets_full = isinstance(values, Mapping) and "train" not in values and not _OF_FULL.isdisjoint(values)
        return {**values, "train": "full"} if sets_full else values

    def only_training(self, why: str, *further: str) -> list[FieldError]:
        """Errors for the training fields and the `further` fields that a job without training would ignore.

        A field at its default isn't an error. `why` is the reason why the job doesn't train.
        """
        fields, detail = type(self).model_fields, f"{why}, so the job doesn't train: leave this field out"
        ignored = [name for name in (*_ONLY_TRAINING, *further) if getattr(self, name) != fields[name].default]
        return [FieldError(f"/{name}", "nothing-trained", detail) for name in ignored]

    @property
    def samples_asked_for(self) -> tuple[str, int] | None:
        """The field that limits the number of samples, and the limit; None without a limit."""
        return None

    def conflicts(self) -> list[FieldError]:
        if self.train == "steps":
            detail = 'with "train": "steps" the job trains no epochs: leave this field out, or use "full"'
            names = _OF_FULL - {"recognise"}  # its default depends on the number of test images
            defaults = {name: field.default for name, field in type(self).model_fields.items() if name in names}
            ignored = [name for name, default in defaults.items() if getattr(self, name) != default]
            return [FieldError(f"/{name}", "nothing-trained", detail) for name in ignored]
        if self.validation_share > 0:
            return self._too_few(1, f"{self.validation_share:.0%} are held out for validation")
        is_set = {
            "early_stopping_patience": self.early_stopping_patience is not None,
            "reduce_lr_patience": self.reduce_lr_patience is not None,
            "best_weights": self.best_weights,
        }
        detail = "depends on the validation loss: set validation_share above 0"
        return [FieldError(f"/{name}", "needs-validation", detail) for name, has_value in is_set.items() if has_value]

    @property
    def available_samples(self) -> int | None:
        """The number of samples if no param limits it; None if it is unknown or irrelevant."""
        return None

    @property
    def epoch_steps(self) -> int | None:
        """The maximum number of steps in an epoch; None if unknown."""
        samples = self._largest_batch(1)
        return None if samples is None else samples // self.batch_size

    @property
    def draws_batches(self) -> bool:
        """Whether batches are drawn from the training samples."""
        return True

    def fitted(self, replicas: int) -> dict[str, object]:
        """Reduces the default batch size to the requested number of samples."""
        largest = self._largest_batch(replicas)
        return {"batch_size": largest} if largest is not None and 0 < largest < self.batch_size else {}

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        errors = self._too_few(replicas, f"each of {replicas} replicas needs at least one") if replicas > 1 else []
        largest = self._largest_batch(replicas)
        if not errors and largest is not None and 0 < largest < self.batch_size:
            detail = f"a batch of {self.batch_size} is larger than the training set; at most {largest}"
            errors.append(FieldError("/batch_size", "batch-too-large", detail))
        if not errors and (steps := self.epoch_steps) is not None and 0 < steps < self.steps_per_execution:
            detail = f"an epoch has no more than {steps} steps on full batches, so one call makes at most {steps}"
            errors.append(FieldError("/steps_per_execution", "too-many-steps", detail))
        if self.export is not None and framework != "tensorflow":
            detail = f"only TensorFlow exports a SavedModel, not {framework}"
            errors.append(FieldError("/export", "export-unsupported", detail))
        if self.jit_compile is True and framework == "tensorflow" and replicas > 1:
            detail = "TensorFlow's XLA can't compile a step over several replicas: use false or \"auto\""
            errors.append(FieldError("/jit_compile", "jit-over-replicas", detail))
        return errors

    def conflicts_with(self, framework: FrameworkName, device: Device) -> list[FieldError]:
        if self.steps_per_execution == 1 or framework != "jax" or device.driven_as != "cpu":
            return []
        return [FieldError("/steps_per_execution", "steps-unsupported", ONE_BY_ONE.format(framework))]

    def _too_few(self, required: int, detail: str) -> list[FieldError]:
        """A field error if fewer than `required` samples are left for training."""
        if self.samples_asked_for is None:
            return []
        name, count = self.samples_asked_for
        remaining = self._left_of(count)
        shown = f"{remaining} of {count} left for training: {detail}"
        return [FieldError(f"/{name}", "too-few-samples", shown)] if remaining < required else []

    def _left_of(self, samples: int) -> int:
        return samples - held_out_count(samples, self.validation_share)

    def _largest_batch(self, replicas: int) -> int | None:
        """The largest batch that the requested or available samples allow; None if their number is unknown."""
        samples = self.available_samples if self.samples_asked_for is None else self.samples_asked_for[1]
        if samples is None or not self.draws_batches:
            return None
        return divisible_size(self._left_of(samples), replicas)


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


_WEIGHT_BYTES = 4  # the weights of all trainings are float32


def step_bytes(model: Any, batch_bytes: int, replicas: int = 1) -> float:
    """The compulsory memory traffic of a training step of a compiled Keras model.

    The batch is read once. Each weight, its gradient and the optimiser's variables for it are read and written once in
    each replica.
    """
    trained, kept = (
        sum(math.prod(variable.shape) for variable in variables)
        for variables in (model.trainable_variables, model.optimizer.variables)
    )
    return float(batch_bytes + replicas * 2 * _WEIGHT_BYTES * (2 * trained + kept))


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
    """A training of one epoch with the usual outputs, without XLA, whose compilation would take most of the time."""
    return Smoke(
        params={"epochs": 1, "jit_compile": False, **params},
        details=frozenset({"batch_size", "batch_size_per_replica", "replicas", "jit_compile", "weights", *details}),
        artifacts=frozenset({"training.png", "model.weights.h5", "model.keras", *artifacts}),
    )
