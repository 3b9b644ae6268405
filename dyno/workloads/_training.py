"""What every training workload does: its epochs in full once, the same compiled step again and again for timing.

A workload brings a `Plan`: how its model is made, what it is trained on, and what it is worth afterwards. The epochs
are ours (see `_epochs`), the callbacks at their ends are Keras' own (see `_callbacks`).
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.frameworks._even import full_batch
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.measure.result_checks import loss_nonfinite
from dyno.models.result import DataOrigin, Epoch, Training, Trial
from dyno.workloads._callbacks import Callbacks
from dyno.workloads._epochs import Epochs, finite
from dyno.workloads._holdout import hold_out
from dyno.workloads._jit import choose
from dyno.workloads._margins import Margin
from dyno.workloads._plots import curves
from dyno.workloads._reference_step import FLOAT32, Timed
from dyno.workloads._timed_steps import TimedSteps
from dyno.workloads._training_checks import checked
from dyno.workloads._training_details import figures_of, of_model, of_step
from dyno.workloads._training_params import TrainingParams
from dyno.workloads._trials import over_seeds, seed_of, trial_of
from dyno.workloads._weights import leave_model, load_weights
from dyno.workloads.contract import BuildContext, Verification


@dataclass
class Outcome:
    """What a trained model is worth, on data it hasn't seen. `training`: fields of `dyno.models.result.Training`.

    `margins`: by how much it is better than each of its baselines, where it is no classification.
    """

    training: dict[str, Any] = field(default_factory=dict)
    details: dict[str, JsonValue] = field(default_factory=dict)
    margins: list[Margin] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """`make(jit_compile)` gives a new compiled Keras model with fresh weights; `judge` evaluates a trained one.

    `judge` may leave files in `context.artifacts`. `steps_per_epoch` null: every sample once. Without `validation` the
    `validation_share` of `train` is held out, drawn by the seed.
    """

    make: Callable[[JitCompile], Any]
    train: Samples
    data: DataOrigin
    judge: Callable[[Any, Trainer], Outcome]
    validation: Samples | None = None
    steps_per_epoch: int | None = None
    amounts: dict[str, float] = field(default_factory=dict)  # beside "epoch" and "step"; see MetricSpec.amount
    jit_unmeasured: str | None = None  # why "auto" is False on TensorFlow for this model, without measuring
    flops_per_sample: float | None = None  # of a training step


class ModelTraining:
    """One execution is `steps_per_execution` steps on full batches. `execute` trains on and on; `complete` ends it.

    A loss that becomes no number fails the run while it trains; where steps are only timed it is a warning.
    """

    def __init__(self, params: TrainingParams, plan: Plan, context: BuildContext) -> None:
        self._params, self._context = params, context
        self._whole = _started(plan, context.weights)
        self._plan = self._with_validation(context.seed)
        full_batch(params.batch_size, len(self._plan.train), context.replicas)  # before anything is measured
        with context.phase("build"):
            self._jit = choose(params, self._plan, context)
            self._model, self._trainer = self._new(self._plan, context.seed)
        self.work = float(self._trainer.batch_size * self._trainer.steps_per_execution)
        self._trains = context.run == 0  # until `complete`: whatever is executed otherwise is only timed
        self._timed_loss = 0.0
        self._training: Training | None = None
        self._figures: dict[str, float] = {}
        self._details: dict[str, JsonValue] = {}
        self._margins: list[Margin] = []
        self._timed = TimedSteps.of(self._model)

    def compile(self) -> None:
        self._trainer.compile()

    def execute(self, count: int) -> None:
        steps = count * self._trainer.steps_per_execution
        self._timed.asked += steps
        loss = self._trainer.steps(steps)
        if self._trains:
            finite(loss, "in the first execution")
        elif not math.isfinite(loss):
            self._timed_loss = loss

    def counted_flops(self) -> float | None:
        return self._trainer.counted_flops()

    def complete(self, compile_s: float, first_execution_s: float) -> Training:
        """Every epoch; the first one takes in compiling and the execution before it. Then the further trials."""
        done = self._trainer.steps_per_execution
        epochs, callbacks = self._train(
            self._plan, self._model, self._trainer, done=done, spent_s=compile_s + first_execution_s
        )
        self._trains = False
        self._figures = figures_of(epochs)
        further = [self._further_trial(index) for index in range(1, self._params.trials)]
        outcome = self._plan.judge(self._model, self._trainer)  # last, so that the files left are those of this trial
        self._details, self._margins = outcome.details, outcome.margins
        self._leave(epochs)
        self._timed = TimedSteps.of(self._model)
        first = trial_of(self._context.seed, epochs, outcome.training)
        self._training = Training(
            epochs=epochs,
            seed=self._context.seed,
            data=self._plan.data,
            callbacks=callbacks.events,
            best_epoch=callbacks.best_epoch,
            trials=[first, *further] if further else [],
            **(outcome.training | over_seeds([first, *further])),
        )
        return self._training

    def verify(self) -> Verification:
        trainer = self._trainer
        diverged = loss_nonfinite(self._timed_loss)
        asked_in = getattr(self._params, "dtype", FLOAT32)
        step = self._step() if self._context.run == 0 else None
        found = checked(self._context, self._model, trainer, self._plan.train, self._timed, step, asked_in)
        return Verification(
            warnings=found.warnings if diverged is None else [diverged, *found.warnings],
            verified=frozenset(found.verified),
            unchecked=found.unchecked,
            precision=found.precision,
            details={**self.details(), **found.details},
            amounts={
                "epoch": float(self._samples_per_epoch()),
                "step": float(trainer.batch_size),
                **self._plan.amounts,
            },
            figures=self._figures,
            flops=None if self._plan.flops_per_sample is None else self._plan.flops_per_sample * self.work,
            tuned=self._jit.tuned,
        )

    def details(self) -> dict[str, JsonValue]:
        """How the step was made, of what, and what the training was worth."""
        trainer, validation = self._trainer, self._plan.validation
        steps = _steps_per_epoch(self._plan, trainer.batch_size)
        return {
            **of_step(trainer, self._context.framework.name, self._params.steps_per_execution, steps),
            "jit_compile_choice": self._jit.details,
            **of_model(self._model),
            "trained_samples": len(self._plan.train),
            "validation_samples": 0 if validation is None else len(validation),
            **self._details,
            **self._better_than(),
        }

    def _step(self) -> Timed:
        """The compiled step, by the data that the plan has for it."""
        trainer, plan = self._trainer, self._plan

        def step() -> tuple[NDArray[Any], NDArray[Any], float]:
            chosen = trainer.next_batch()
            trainer.finish_epoch()  # so that the running loss is that of this step
            self._timed.asked += 1
            loss = trainer.steps(1)
            return *plan.train.batch(chosen), loss

        return Timed(self._model, lambda: plan.make(trainer.jit_compile), step, trainer.sync, trainer.parts)

    def _better_than(self) -> dict[str, JsonValue]:
        return {"better_than": {each.baseline: each.told() for each in self._margins}} if self._margins else {}

    def _with_validation(self, seed: int) -> Plan:
        if self._whole.validation is not None:
            return self._whole
        train, validation = hold_out(self._whole.train, self._params.validation_share, seed)
        return replace(self._whole, train=train, validation=validation)

    def _new(self, plan: Plan, seed: int) -> tuple[Any, Trainer]:
        params, framework = self._params, self._context.framework
        with framework.scope():
            model = plan.make(self._jit.setting)
        # no execution goes past the end of an epoch: the first epoch would see samples twice
        steps = min(params.steps_per_execution, _steps_per_epoch(plan, params.batch_size))
        return model, framework.trainer(model, plan.train, params.batch_size, seed, steps)

    def _train(
        self, plan: Plan, model: Any, trainer: Trainer, *, trial: int = 0, done: int = 0, spent_s: float = 0.0
    ) -> tuple[list[Epoch], Callbacks]:
        callbacks = Callbacks(self._params, self._context, model, trainer, plan.validation)
        steps = _steps_per_epoch(plan, trainer.batch_size)
        tail = plan.steps_per_epoch is None and len(plan.train) % trainer.batch_size >= trainer.replicas
        epochs = Epochs(
            self._context, trainer, self._params.epochs, steps, tail=tail, trial=trial, trials=self._params.trials
        )
        return epochs.train(callbacks, done, spent_s), callbacks

    def _further_trial(self, index: int) -> Trial:
        """What a job with that seed would do, on a model and a step of its own."""
        seed = seed_of(self._context.seed, index)
        self._context.framework.seed(seed)
        plan = self._with_validation(seed)
        model, trainer = self._new(plan, seed)
        epochs, _ = self._train(plan, model, trainer, trial=index)
        found = trial_of(seed, epochs, plan.judge(model, trainer).training)
        del model, trainer
        gc.collect()  # graphs refer to themselves, and hold the data on the device
        return found

    def _samples_per_epoch(self) -> int:
        steps, trainer = self._plan.steps_per_epoch, self._trainer
        count = len(self._plan.train)
        return count - count % trainer.batch_size % trainer.replicas if steps is None else steps * trainer.batch_size

    def _leave(self, epochs: list[Epoch]) -> None:
        """The files of every training."""
        curves(self._context.artifacts, epochs)
        leave_model(self._model, self._context.artifacts, self._params.export)


def _started(plan: Plan, weights: Path | None) -> Plan:
    """The plan with its models, those of a trial too, made with these weights: others' are found before any step."""
    if weights is None:
        return plan

    def make(jit_compile: JitCompile) -> Any:
        model = plan.make(jit_compile)
        load_weights(model, weights)
        return model

    return replace(plan, make=make)


def _steps_per_epoch(plan: Plan, batch_size: int) -> int:
    """On full batches."""
    return plan.steps_per_epoch or len(plan.train) // batch_size
