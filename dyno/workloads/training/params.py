"""The params of every training, and the optimisers it can use.

Optimisers have Keras' own defaults but for the learning rate, and a momentum of 0.9 for SGD.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dyno.errors import FieldError
from dyno.frameworks.contract import JitCompile, divisible_size
from dyno.models.spec import FrameworkName, WeightsRef
from dyno.workloads.contract import Params
from dyno.workloads.training.checkpoints import Export
from dyno.workloads.training.evaluation import held_out_count

Optimizer = Literal["adam", "rmsprop", "sgd"]
OPTIMIZERS = "sgd: with a momentum of 0.9"


def new_optimizer(keras: Any, optimizer: Optimizer, learning_rate: float) -> Any:
    """A new one, without any state."""
    if optimizer == "sgd":
        return keras.optimizers.SGD(learning_rate, momentum=0.9)
    return {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}[optimizer](learning_rate)


# How long and how well is trained, and from what on; the sampled step is the same one, and so is the sampled call of
# `quantized_inference`, which with weights trains nothing.
_UNTIMED = frozenset(
    {
        *("epochs", "learning_rate", "early_stopping_patience", "reduce_lr_patience", "best_weights"),
        *("trials", "weights", "export"),
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


class TrainingParams(Params):
    """What every training can be asked for; each workload sets the defaults of its reference."""

    untimed: ClassVar[frozenset[str]] = _UNTIMED
    how: ClassVar[frozenset[str]] = frozenset({"batch_size", "jit_compile", "steps_per_execution"})

    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(64, description="Of all replicas together")
    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    optimizer: Optimizer = Field("adam", description=OPTIMIZERS)
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="The optimiser's")
    jit_compile: JitCompile = Field("auto", description="auto: whichever is measured to be faster on the device")
    steps_per_execution: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Steps in one compiled call")
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = Field(0.0, description="Of the training data, held out")
    early_stopping_patience: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="Stop after so many epochs without a lower validation loss"
    )
    reduce_lr_patience: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="After so many epochs without a lower validation loss, a tenth of the learning rate"
    )
    best_weights: bool = Field(False, description="Go on with the weights of the lowest validation loss, at the end")
    trials: Annotated[int, Field(ge=1, le=100)] = Field(1, description="Full trainings, each with another seed")
    weights: WeightsRef | None = Field(None, description="Start from the weights that another job left behind")
    export: Export | None = Field(None, description="Also leave the model in a format for serving; TensorFlow only")

    def only_training(self, why: str, *further: str) -> list[FieldError]:
        """For `conflicts` of a job that trains nothing: each field, or `further` one, that it would ignore.

        A field left at its default asks for nothing. `why` is what the job does in place of training.
        """
        fields, detail = type(self).model_fields, f"{why}, so nothing is trained: leave it out"
        ignored = [name for name in (*_ONLY_TRAINING, *further) if getattr(self, name) != fields[name].default]
        return [FieldError(f"/{name}", "nothing-trained", detail) for name in ignored]

    @property
    def samples_asked_for(self) -> tuple[str, int] | None:
        """The field that says how many samples there are at most, and that number; None where all found count."""
        return None

    def conflicts(self) -> list[FieldError]:
        if self.validation_share > 0:
            return self._too_few(1, f"{self.validation_share:.0%} are held out for validation")
        asked = {
            "early_stopping_patience": self.early_stopping_patience is not None,
            "reduce_lr_patience": self.reduce_lr_patience is not None,
            "best_weights": self.best_weights,
        }
        detail = "goes by the validation loss: give a validation_share above 0"
        return [FieldError(f"/{name}", "needs-validation", detail) for name, given in asked.items() if given]

    @property
    def draws_batches(self) -> bool:
        """Whether batches are drawn from the samples to train on."""
        return True

    def fitted(self, replicas: int) -> dict[str, object]:
        """A batch that isn't asked for is no larger than the samples that are."""
        most = self._largest_batch(replicas)
        return {"batch_size": most} if most is not None and 0 < most < self.batch_size else {}

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        found = self._too_few(replicas, f"not one for each of {replicas} replicas") if replicas > 1 else []
        most = self._largest_batch(replicas)
        if not found and most is not None and 0 < most < self.batch_size:
            detail = f"a batch of {self.batch_size} needs more samples to train on than there are; at most {most}"
            found.append(FieldError("/batch_size", "batch-too-large", detail))
        if self.export is not None and framework != "tensorflow":
            detail = f"a SavedModel is made by TensorFlow, not by {framework}"
            found.append(FieldError("/export", "export-unsupported", detail))
        if self.jit_compile is True and framework == "tensorflow" and replicas > 1:
            detail = 'TensorFlow\'s XLA compiles no step over several replicas: take false or "auto"'
            found.append(FieldError("/jit_compile", "jit-over-replicas", detail))
        return found

    def _too_few(self, least: int, detail: str) -> list[FieldError]:
        """A field error where fewer than `least` samples are left to train on."""
        if self.samples_asked_for is None:
            return []
        name, count = self.samples_asked_for
        left = self._left_of(count)
        told = f"{left} of {count} left to train on: {detail}"
        return [FieldError(f"/{name}", "too-few-samples", told)] if left < least else []

    def _left_of(self, samples: int) -> int:
        return samples - held_out_count(samples, self.validation_share)

    def _largest_batch(self, replicas: int) -> int | None:
        """That can be drawn from the samples asked for; None where it isn't known how many there are."""
        if self.samples_asked_for is None or not self.draws_batches:
            return None
        return divisible_size(self._left_of(self.samples_asked_for[1]), replicas)
