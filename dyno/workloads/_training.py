"""What every training workload does: its epochs in full once, the same compiled step again and again for timing.

A workload brings a `Plan`: how its model is made, what it is trained on, and what it is worth afterwards. The epochs
are ours, step by step, and not `model.fit`'s, whose epoch times take in validation and were seen to be bimodal. The
callbacks at their ends are Keras' own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, JsonValue

from dyno.errors import FieldError, RunFailed
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.result import DataOrigin, Epoch, Training
from dyno.spec import WeightsRef
from dyno.workloads._callbacks import Callbacks
from dyno.workloads._weights import load_weights, save_weights
from dyno.workloads.contract import BuildContext, Params, Verification

_REPORTS_PER_EPOCH = 10


class TrainingParams(Params):
    """What every training can be asked for; each workload sets the defaults of its reference."""

    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(64, description="Of all replicas together")
    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-3
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

    def conflicts(self) -> list[FieldError]:
        asked = {
            "early_stopping_patience": self.early_stopping_patience is not None,
            "reduce_lr_patience": self.reduce_lr_patience is not None,
            "best_weights": self.best_weights,
        }
        if self.validation_share > 0 or not any(asked.values()):
            return []
        detail = "goes by the validation loss: give a validation_share above 0"
        return [FieldError(f"/{name}", "needs-validation", detail) for name, given in asked.items() if given]


@dataclass
class Outcome:
    """What a trained model is worth, on data it hasn't seen. `training`: fields of `dyno.result.Training`."""

    training: dict[str, Any] = field(default_factory=dict)
    details: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """`make(jit_compile)` gives a new compiled Keras model with fresh weights; `judge` evaluates a trained one.

    `judge` may leave files in `context.artifacts`. `steps_per_epoch` null: every sample once.
    """

    make: Callable[[JitCompile], Any]
    train: Samples
    data: DataOrigin
    judge: Callable[[Any, Trainer], Outcome]
    validation: Samples | None = None
    steps_per_epoch: int | None = None
    amounts: dict[str, float] = field(default_factory=dict)  # beside "epoch"; see MetricSpec.amount


class ModelTraining:
    """One execution is `steps_per_execution` steps on full batches. `execute` trains on and on; `complete` ends it."""

    def __init__(self, params: TrainingParams, plan: Plan, context: BuildContext) -> None:
        self._params, self._plan, self._context = params, plan, context
        with context.phase("build"):
            self._model, self._trainer = self._new(context.seed)
        self.work = float(self._trainer.batch_size * params.steps_per_execution)
        self._figures: dict[str, float] = {}
        self._details: dict[str, JsonValue] = {}

    def compile(self) -> None:
        self._trainer.compile()

    def execute(self, count: int) -> None:
        _finite(self._trainer.steps(count * self._params.steps_per_execution), "while it was timed")

    def complete(self, compile_s: float, first_execution_s: float) -> Training:
        """Every epoch; the first one takes in compiling and the execution before it."""
        done = self._params.steps_per_execution
        epochs, callbacks = self._train(self._model, self._trainer, done, compile_s + first_execution_s)
        self._figures["first_epoch_time"] = epochs[0].time_s
        outcome = self._plan.judge(self._model, self._trainer)
        self._details = outcome.details
        save_weights(self._model, self._context.artifacts)
        return Training(
            epochs=epochs,
            seed=self._context.seed,
            data=self._plan.data,
            callbacks=callbacks.events,
            best_epoch=callbacks.best_epoch,
            **outcome.training,
        )

    def verify(self) -> Verification:
        trainer = self._trainer
        return Verification(
            details={
                "batch_size": trainer.batch_size,
                "batch_size_per_replica": trainer.batch_size // trainer.replicas,
                "replicas": trainer.replicas,
                "jit_compile": trainer.jit_compile,
                "weights": int(self._model.count_params()),
                **self._details,
            },
            amounts={"epoch": float(self._samples_per_epoch()), **self._plan.amounts},
            figures=self._figures,
        )

    def _new(self, seed: int) -> tuple[Any, Trainer]:
        params, framework = self._params, self._context.framework
        with framework.scope():
            model = self._plan.make(params.jit_compile)
        if self._context.weights is not None:
            load_weights(model, self._context.weights)
        return model, framework.trainer(model, self._plan.train, params.batch_size, seed, params.steps_per_execution)

    def _samples_per_epoch(self) -> int:
        steps = self._plan.steps_per_epoch
        return len(self._plan.train) if steps is None else steps * self._trainer.batch_size

    def _train(self, model: Any, trainer: Trainer, done: int, spent_s: float) -> tuple[list[Epoch], Callbacks]:
        """All epochs; `done` steps of the first were made before, in `spent_s`."""
        callbacks = Callbacks(self._params, self._context, model, trainer, self._plan.validation)
        epochs: list[Epoch] = []
        for index in range(self._params.epochs):
            epochs.append(callbacks.after(self._epoch(trainer, index, done, spent_s)))
            done, spent_s = 0, 0.0
            if callbacks.stop:
                break
        callbacks.finish()
        return epochs, callbacks

    def _epoch(self, trainer: Trainer, index: int, done: int, spent_s: float) -> Epoch:
        began_s = time.perf_counter()
        if index > 0:
            trainer.shuffle()
        place, total = f"in epoch {index + 1}", self._params.epochs
        steps, tail = divmod(self._samples_per_epoch(), trainer.batch_size)
        steps = max(0, steps - done)
        chunk = math.ceil(steps / _REPORTS_PER_EPOCH) or 1
        for first in range(0, steps, chunk):
            self._context.report("training", index, total, "epochs")
            _finite(trainer.steps(min(chunk, steps - first)), place)
        if tail and self._plan.steps_per_epoch is None:
            _finite(trainer.tail(), place)
        figures = trainer.finish_epoch()
        return Epoch(
            index=index,
            time_s=spent_s + time.perf_counter() - began_s,
            loss=_finite(figures["loss"], place),
            accuracy=figures.get("accuracy"),
            includes_compile=index == 0,
        )


def _finite(loss: float, place: str) -> float:
    if not math.isfinite(loss):
        raise RunFailed("benchmark", "nonfinite_loss", f"the loss became {loss} {place}")
    return loss
