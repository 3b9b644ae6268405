"""Train a model: all epochs once in full, then the same compiled step repeatedly for timing.

A workload provides a `Plan`: how to make its model, the training data, how to evaluate the model. `Epochs` runs the
epochs with Keras' own callbacks. Further trials differ only in their seed.

On TensorFlow, `jit_compile` "auto" measures both settings and uses the faster one. JAX compiles every step, PyTorch
none. Run 0 of a job measures with a separate model, and the other runs reuse its choice. On a CPU, a small batch leads
to the same choice as a full batch, and limits XLA's compilation and slow convolutions to seconds. On two Zen cores, XLA
made a step of `mnist_cnn` 15 times as long at batch 32 (345 ms instead of 23 ms) and 11 times as long at batch 1024
(7.1 s instead of 0.63 s). An accelerator gets the full batch, because it would finish a small batch before the host has
started the operations.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.bench.contract import BuildContext, Verification
from dyno.bench.frameworks.interface import Dataset, JitCompile, Trainer, full_batch
from dyno.bench.measure import result_checks, statistics
from dyno.bench.measure.host_noise import HostNoise
from dyno.bench.training import checkpoints, evaluation, plots, workload
from dyno.bench.training.epochs import Callbacks, Epochs, finite, watch_cores
from dyno.bench.training.step_checks import FLOAT32, CompiledStep, StepCounter, StepLosses, check_training
from dyno.bench.training.workload import ONE_BY_ONE, TrainingParams
from dyno.errors import RunFailed
from dyno.models.result import DataOrigin, Epoch, ResultWarning, Training, Trial

_SEEDS = 2**32


def trial_seed(seed: int, trial: int) -> int:
    """The seed of trial number `trial` (from 0) of a job with `seed`."""
    return (seed + trial) % _SEEDS


def trial_result(
    seed: int,
    epochs: Sequence[Epoch],
    judged: Mapping[str, Any],
    start_loss: float | None = None,
    target: float | None = None,
) -> Trial:
    """`judged`: the trial's `TrainingOutcome.training`. `target`: the accuracy to reach."""
    return Trial(
        seed=seed,
        epochs=len(epochs),
        loss=epochs[-1].loss,
        start_loss=start_loss,
        highest_loss=max(epoch.loss for epoch in epochs),
        accuracy=judged.get("accuracy"),
        wrong=judged.get("wrong"),
        **_to_accuracy(epochs, target),
    )


def _to_accuracy(epochs: Sequence[Epoch], target: float | None) -> dict[str, Any]:
    """The number of epochs and the time until the accuracy reaches the target; empty if it never does."""
    for count, epoch in enumerate(epochs, 1):
        if target is not None and epoch.test_accuracy is not None and epoch.test_accuracy >= target:
            time_s = math.fsum(done.time_s for done in epochs[:count])
            return {"epochs_to_accuracy": count, "time_to_accuracy_s": time_s}
    return {}


def mean_over_trials(trials: Sequence[Trial]) -> dict[str, float | None]:
    """The mean accuracy and its interval (Student's t over the seeds, clipped to 0 to 1); empty for a single accuracy.

    `wrong` becomes None, because it belongs to a single trial.
    """
    accuracies = [trial.accuracy for trial in trials if trial.accuracy is not None]
    if len(accuracies) < 2:
        return {}
    interval = statistics.mean_interval(accuracies)
    assert interval.low is not None
    assert interval.high is not None
    return {
        "accuracy": interval.value,
        "accuracy_low": max(0.0, interval.low),
        "accuracy_high": min(1.0, interval.high),
        "wrong": None,
    }


_BATCH_ON_CPU = 32
_BATCHES = 8  # number of batches to use, so that the cost of a shuffle is spread over as many steps
_ROUNDS, _BUDGET_S = 5, 10.0
_ROUND_S = 0.02  # long compared with the clock's resolution and one call
_MOST_STEPS = 1024  # maximum in a round; for such short steps, more steps wouldn't change the choice
_ERROR_CHARACTERS = 300  # maximum length of XLA's message
_PLACES = ("Graph execution error", "Detected at node", "<stack traces", "File ", "Node:")
_HOPELESS = 3.0  # the measurement ends if a step with XLA takes this many times as long as a step without XLA
_SETTLED = {"jax": (True, "JAX compiles every step"), "torch": (False, "PyTorch's step is not compiled")}


@dataclass(frozen=True)
class JitChoice:
    """`setting` is the argument of `Plan.make`; `details` explain the choice."""

    setting: bool
    details: dict[str, JsonValue]

    @property
    def tuned(self) -> dict[str, JsonValue]:
        """The choice for later runs; see `BuildContext.tuned`."""
        return {"jit_compile": self.setting}


def choose_jit(params: TrainingParams, plan: Plan, context: BuildContext) -> JitChoice:
    """Choose the setting for a model of `plan`, then seed the framework with the run's seed again."""
    try:
        return _chosen(params, plan, context)
    finally:
        context.framework.seed(context.seed)


def _chosen(params: TrainingParams, plan: Plan, context: BuildContext) -> JitChoice:
    name, tuned, requested = context.framework.name, context.tuned.get("jit_compile"), params.jit_compile
    if name in _SETTLED:
        setting, how = _SETTLED[name]
        agrees = requested in ("auto", setting)
        return _settled(setting, how if agrees else f"requested {str(requested).lower()}; {how}")
    if requested != "auto":
        return _settled(requested, "as requested")
    if isinstance(tuned, bool):
        return _settled(tuned, "as in the first run")
    if context.replicas > 1:
        return _settled(False, "TensorFlow's XLA can't compile a step over several replicas")
    if plan.jit_unmeasured is not None:
        return _settled(False, plan.jit_unmeasured)
    return _measured(_batch_size(params, context), plan, context)


def _batch_size(params: TrainingParams, context: BuildContext) -> int:
    on_cpu = context.device is None or context.device.driven_as == "cpu"
    return min(params.batch_size, _BATCH_ON_CPU) if on_cpu else params.batch_size


def _settled(setting: bool, how: str, details: Mapping[str, JsonValue] | None = None) -> JitChoice:
    return JitChoice(setting, {"chosen": setting, "how": how, **(details or {})})


def _measured(batch_size: int, plan: Plan, context: BuildContext) -> JitChoice:
    began_s = time.perf_counter()
    candidates = _Candidates(plan, context, batch_size)
    try:
        how = candidates.race(began_s + _BUDGET_S)
    finally:
        times, xla_error = candidates.step_s, candidates.xla_error
        del candidates
        gc.collect()  # graphs contain reference cycles and keep the data on the device
    faster = True in times and times[True] < times[False]
    details: dict[str, JsonValue] = {
        "step_s": {str(setting).lower(): seconds for setting, seconds in times.items()},
        "batch_size": batch_size,
        "took_s": time.perf_counter() - began_s,
    }
    if xla_error is not None:
        details["xla_error"] = xla_error
    return _settled(faster, how, details)


class _Candidates:
    """A model and a step for each setting, on the same few samples. `step_s`: median step time by setting.

    `xla_error`: why the step couldn't be compiled with XLA, or failed later.
    """

    def __init__(self, plan: Plan, context: BuildContext, batch_size: int) -> None:
        self._plan, self._context, self._batch_size = plan, context, batch_size
        self._samples = _few(plan.train, _BATCHES * batch_size)
        self._taken: dict[bool, list[float]] = {}
        self._steps = dict.fromkeys((False, True), 1)
        self.xla_error: str | None = None

    @property
    def step_s(self) -> dict[bool, float]:
        return {setting: statistics.median(times) for setting, times in self._taken.items()}

    def race(self, until_s: float) -> str:
        """Time both settings in turn, at least once each; returns an explanation of the outcome."""
        plain, compiled = self._ready(False), None
        for _ in range(_ROUNDS):
            self._time(False, plain)
            try:
                compiled = compiled or self._ready(True)
                if not compiled.jit_compile:
                    return "Keras reports that XLA can't compile a layer of the model"
                self._time(True, compiled)
            except Exception as error:  # noqa: BLE001 - TensorFlow raises various errors for operations XLA lacks
                self._taken.pop(True, None)  # discard times from before the failure
                self.xla_error = f"{type(error).__name__}: {_said_by(error)}"
                return f"XLA failed: {type(error).__name__}"
            if self.step_s[True] > _HOPELESS * self.step_s[False]:
                return f"measured: a step compiled with XLA takes more than {_HOPELESS:g} times as long"
            if time.perf_counter() > until_s:
                break
        return "measured: the faster setting"

    def _ready(self, setting: bool) -> Trainer:
        """A trainer that has compiled its step and made the first step."""
        framework = self._context.framework
        self._context.report("build", 0, None, "steps")
        model = self._plan.make(setting)
        trainer = framework.trainer(model, self._samples, self._batch_size, self._context.seed)
        trainer.steps(1)
        return trainer

    def _time(self, setting: bool, trainer: Trainer) -> None:
        """Measure steps that queue on the device, as in a sample: reading back after each would hide XLA's gain."""
        self._context.report("build", 0, None, "steps")
        while (spent_s := _spent_s(trainer, self._steps[setting])) < _ROUND_S and self._steps[setting] < _MOST_STEPS:
            self._steps[setting] *= 2
        self._taken.setdefault(setting, []).append(spent_s / self._steps[setting])


def _spent_s(trainer: Trainer, steps: int) -> float:
    began_s = time.perf_counter()
    trainer.steps(steps)
    return time.perf_counter() - began_s


def _said_by(error: Exception) -> str:
    """The line of the message that describes the failure. TensorFlow names the place in the graph before that line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith(_PLACES)), "")[:_ERROR_CHARACTERS]


def _few(samples: Dataset, count: int) -> Dataset:
    """The first `count` samples. Windows may start anywhere, so they keep the whole series, which is small."""
    if samples.starts is not None:
        return replace(samples, starts=samples.starts[:count])
    return replace(samples, inputs=samples.inputs[:count], targets=samples.targets[:count])


@dataclass
class TrainingOutcome:
    """The evaluation of a trained model on held-out data. `training`: fields of `dyno.models.result.Training`.

    `margins`: the advantage over each reference predictor, unless the model is a classifier.
    """

    training: dict[str, Any] = field(default_factory=dict)
    details: dict[str, JsonValue] = field(default_factory=dict)
    margins: list[evaluation.Margin] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """`make(jit_compile)` returns a new compiled Keras model with new weights; `judge` evaluates a trained model.

    `judge` may write files to `context.artifacts`. With `target_accuracy`, the training tests every epoch on `test`.
    If `steps_per_epoch` is None, an epoch uses every sample once. Without `validation`, the training holds out the
    `validation_share` of `train`; the seed draws these samples.
    """

    make: Callable[[JitCompile], Any]
    train: Dataset
    data: DataOrigin
    judge: Callable[[Any, Trainer], TrainingOutcome]
    validation: Dataset | None = None
    test: Dataset | None = None
    target_accuracy: float | None = None
    steps_per_epoch: int | None = None
    amounts: dict[str, float] = field(default_factory=dict)  # besides "epoch" and "step"; see MetricSpec.amount
    jit_unmeasured: str | None = None  # why "auto" means False for this model on TensorFlow, without a measurement
    flops_per_sample: float | None = None  # of a training step
    params: dict[str, JsonValue] = field(default_factory=dict)  # decided by the data; see `Verification.params`


class ModelTraining:
    """One execution is `steps_per_execution` steps on full batches. `complete` runs the training to its end.

    A loss that isn't finite fails the run during training. In timed steps it only raises a warning.
    """

    def __init__(self, params: TrainingParams, plan: Plan, context: BuildContext) -> None:
        self._params, self._context = params, context
        self._new_model = plan.make
        self._whole = _started(plan, context.weights)
        self._plan = self._with_validation(context.seed)
        full_batch(params.batch_size, len(self._plan.train), context.replicas)  # fail before measuring
        self._check_steps()
        with context.phase("build"):
            self._jit = choose_jit(params, self._plan, context)
            self._model, self._trainer = self._new(self._plan, context.seed)
        self.work = float(self._trainer.batch_size * self._trainer.steps_per_execution)
        # True while executions are part of the full training, which `complete` ends. Other executions are only timed.
        self._trains = context.run == 0 and params.train == "full"
        self._losses = self._new_losses()
        self._training: Training | None = None
        self._figures: dict[str, float] = {}
        self._details: dict[str, JsonValue] = {}
        self._margins: list[evaluation.Margin] = []
        self._timed = StepCounter.of(self._model)
        self._noise: HostNoise | None = None

    def compile(self) -> None:
        if self._trains:
            self._noise = watch_cores(self._context)
        self._trainer.compile()

    def execute(self, count: int) -> None:
        steps = count * self._trainer.steps_per_execution
        self._timed.counted += steps
        loss = self._trainer.steps(steps)
        if self._trains:
            finite(loss, "in the first execution")
        self._losses.add(loss, steps)

    def counted_flops(self) -> float | None:
        return self._trainer.counted_flops()

    def complete(self, compile_s: float, first_execution_s: float) -> Training | None:
        """Train all epochs, then the further trials. The first epoch includes compiling and the first execution."""
        if not self._trains:
            return None
        done = self._trainer.steps_per_execution
        epochs, callbacks = self._train(
            self._plan, self._model, self._trainer, done=done, spent_s=compile_s + first_execution_s, noise=self._noise
        )
        self._trains = False
        self._losses.restart()
        self._figures = workload.epoch_figures(epochs)
        further = [self._further_trial(number) for number in range(1, self._params.trials)]
        outcome = self._plan.judge(self._model, self._trainer)  # last, so that the artifacts are from the first trial
        self._details, self._margins = outcome.details, outcome.margins
        self._leave(epochs)
        self._timed = StepCounter.of(self._model)
        target = self._plan.target_accuracy
        first = trial_result(self._context.seed, epochs, outcome.training, self._losses.start, target)
        self._training = Training(
            epochs=epochs,
            start_loss=self._losses.start,
            seed=self._context.seed,
            data=self._plan.data,
            callbacks=callbacks.events,
            best_epoch=callbacks.best_epoch,
            trials=[first, *further] if further or target is not None else [],
            target_accuracy=target,
            **(outcome.training | mean_over_trials([first, *further])),
        )
        return self._training

    def verify(self) -> Verification:
        trainer = self._trainer
        requested = getattr(self._params, "dtype", FLOAT32)
        step = self._step() if self._context.run == 0 else None
        checked = check_training(self._context, self._model, trainer, self._plan.train, self._timed, step, requested)
        of_losses, unchecked = self._losses.warnings(), dict(checked.unchecked)
        if self._training is not None and self._losses.start is None and not (of_losses or self._rising):
            try:
                of_losses = self._against_new_weights(self._training)
            except Exception as error:  # noqa: BLE001 - a failed check must not lose the measurement
                unchecked["LOSS_RISING"] = f"the loss of new weights isn't known: {type(error).__name__}: {error}"[:500]
        return Verification(
            warnings=[*of_losses, *checked.warnings],
            verified=frozenset(checked.verified),
            unchecked=unchecked,
            precision=checked.precision,
            details={**self.details(), **checked.details},
            amounts={
                "epoch": float(self._samples_per_epoch()),
                "training": float(self._params.trials * self._params.epochs * self._samples_per_epoch()),
                "step": float(trainer.batch_size),
                **self._plan.amounts,
            },
            figures=self._figures,
            bytes=trainer.steps_per_execution * workload.step_bytes(self._model, self._batch_bytes, trainer.replicas),
            flops=None if self._plan.flops_per_sample is None else self._plan.flops_per_sample * self.work,
            tuned=self._jit.tuned | checked.tuned,
            params=self._ran(),
        )

    @property
    def _batch_bytes(self) -> int:
        sample = self._plan.train.batch(np.zeros(1, np.intp))
        return self._trainer.batch_size * sum(array.nbytes for array in sample)

    @property
    def _rising(self) -> bool:
        """Whether the training's own losses rose."""
        return self._training is not None and result_checks.loss_rising(self._training) is not None

    def _against_new_weights(self, training: Training) -> list[ResultWarning]:
        """LOSS_RISING, if a loss is far above the loss of a model with new weights, which has learned nothing."""
        highest = [epoch.loss for epoch in training.epochs] + [trial.highest_loss or 0.0 for trial in training.trials]
        start = self._loss_of_new_weights()
        rising = result_checks.loss_diverged(start, max(*highest, self._losses.highest))
        return [] if rising is None else [rising]

    def _loss_of_new_weights(self) -> float:
        """The mean over a few batches. They have the job's batch size, so they need no more memory than its steps."""
        framework, size = self._context.framework, self._trainer.batch_size
        per_execution = self._trainer.steps_per_execution
        steps = per_execution * math.ceil(result_checks.LEAST_STARTING / (size * per_execution))
        self._context.report("verify", 0, steps, "steps")
        with framework.scope():
            model = self._new_model(False)
        model.optimizer.learning_rate = 0.0
        samples = _few(self._plan.train, steps * size)
        return framework.trainer(model, samples, size, self._context.seed, per_execution).steps(steps)

    def _ran(self) -> dict[str, JsonValue]:
        """The values used for params that the spec left open."""
        return {"jit_compile": self._trainer.jit_compile, **self._plan.params}

    def details(self) -> dict[str, JsonValue]:
        """Details of the step, the model, the data and the evaluation."""
        trainer, validation = self._trainer, self._plan.validation
        return {
            **workload.step_details(trainer),
            "jit_compile_choice": self._jit.details,
            **workload.model_details(self._model),
            "trained_samples": len(self._plan.train),
            "validation_samples": 0 if validation is None else len(validation),
            **self._details,
            **self._better_than(),
        }

    def _step(self) -> CompiledStep:
        """The compiled step, with the plan's own data for comparison."""
        trainer, plan = self._trainer, self._plan

        def step() -> tuple[NDArray[Any], NDArray[Any], float]:
            chosen = trainer.next_batch()
            trainer.finish_epoch()  # so that the running loss covers this step only
            self._timed.counted += 1
            loss = trainer.steps(1)
            return *plan.train.batch(chosen), loss

        return CompiledStep(self._model, lambda: plan.make(trainer.jit_compile), step, trainer.sync, trainer.parts)

    def _better_than(self) -> dict[str, JsonValue]:
        return {"better_than": {margin.baseline: margin.to_json() for margin in self._margins}} if self._margins else {}

    def _with_validation(self, seed: int) -> Plan:
        if self._whole.validation is not None:
            return self._whole
        train, validation = evaluation.hold_out(self._whole.train, self._params.validation_share, seed)
        return replace(self._whole, train=train, validation=validation)

    def _new(self, plan: Plan, seed: int) -> tuple[Any, Trainer]:
        params, framework = self._params, self._context.framework
        with framework.scope():
            model = plan.make(self._jit.setting)
        trainer = framework.trainer(model, plan.train, params.batch_size, seed, params.steps_per_execution)
        if trainer.steps_per_execution < params.steps_per_execution:
            raise RunFailed("unsupported", "steps_unsupported", ONE_BY_ONE.format(framework.name))
        return model, trainer

    def _new_losses(self) -> StepLosses:
        return StepLosses(self._trainer.batch_size, trained=self._context.weights is not None)

    def _check_steps(self) -> None:
        """Raises RunFailed if an execution is longer than an epoch: the first epoch would use samples twice."""
        steps, in_epoch = self._params.steps_per_execution, _steps_per_epoch(self._plan, self._params.batch_size)
        if steps > in_epoch:
            detail = f"{steps} steps per execution are more than the {in_epoch} of an epoch of {len(self._plan.train)}"
            raise RunFailed("benchmark", "too_many_steps", f"{detail} samples")

    def _train(
        self,
        plan: Plan,
        model: Any,
        trainer: Trainer,
        *,
        trial: int = 0,
        done: int = 0,
        spent_s: float = 0.0,
        noise: HostNoise | None = None,
    ) -> tuple[list[Epoch], Callbacks]:
        callbacks = Callbacks(self._params, self._context, model, trainer, plan.validation, plan.test)
        steps = _steps_per_epoch(plan, trainer.batch_size)
        tail = plan.steps_per_epoch is None and len(plan.train) % trainer.batch_size >= trainer.replicas
        epochs = Epochs(
            self._context, trainer, self._params.epochs, steps, tail=tail, trial=trial, trials=self._params.trials
        )
        return epochs.train(callbacks, done, spent_s, noise), callbacks

    def _further_trial(self, number: int) -> Trial:
        """Train like a job with the trial's seed, with a separate model and step."""
        seed = trial_seed(self._context.seed, number)
        self._context.framework.seed(seed)
        plan = self._with_validation(seed)
        model, trainer = self._new(plan, seed)
        losses, began_s = self._new_losses(), time.perf_counter()
        losses.add(finite(trainer.steps(1), f"in the first step of trial {number + 1}"), 1)
        epochs, _ = self._train(plan, model, trainer, trial=number, done=1, spent_s=time.perf_counter() - began_s)
        judged = plan.judge(model, trainer).training
        trial = trial_result(seed, epochs, judged, losses.start, plan.target_accuracy)
        del model, trainer
        gc.collect()  # graphs contain reference cycles and keep the data on the device
        return trial

    def _samples_per_epoch(self) -> int:
        steps, trainer = self._plan.steps_per_epoch, self._trainer
        count = len(self._plan.train)
        return count - count % trainer.batch_size % trainer.replicas if steps is None else steps * trainer.batch_size

    def _leave(self, epochs: list[Epoch]) -> None:
        """Write the artifacts that every training has."""
        plots.plot_curves(self._context.artifacts, epochs)
        checkpoints.save_model(self._model, self._context.artifacts, self._params.export)


def _started(plan: Plan, weights: Path | None) -> Plan:
    """The plan, changed to load `weights` into every new model. Mismatching weights fail before any step."""
    if weights is None:
        return plan

    def make(jit_compile: JitCompile) -> Any:
        model = plan.make(jit_compile)
        checkpoints.load_weights(model, weights)
        return model

    return replace(plan, make=make)


def _steps_per_epoch(plan: Plan, batch_size: int) -> int:
    """Steps on full batches."""
    return plan.steps_per_epoch or len(plan.train) // batch_size
