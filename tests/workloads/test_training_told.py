"""What a training says of itself beside its epochs: a loss that became no number, and why it has fewer steps a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyno.errors import RunFailed
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.frameworks.tensorflow import TensorFlow
from dyno.models.result import DataOrigin
from dyno.workloads import validate_params, workload
from dyno.workloads._training import ModelTraining, Outcome, Plan
from dyno.workloads._training_params import TrainingParams
from dyno.workloads.contract import BuildContext

Context = Callable[..., BuildContext]
# With these the error grows two thousandfold in every step, past what float32 holds after a few.
LARGE = np.linspace(990.0, 1010.0, 40, dtype=np.float32)[:, np.newaxis]
EXPLODING = Samples(LARGE, LARGE)


def _exploding(context: BuildContext, steps_per_execution: int = 1) -> ModelTraining:
    keras = context.framework.keras

    def make(jit_compile: JitCompile) -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(1e-3), "mean_squared_error", jit_compile=jit_compile)
        return model

    origin = DataOrigin(name="line", kind="synthetic", train_samples=40, test_samples=0)
    plan = Plan(make, EXPLODING, origin, lambda model, trainer: Outcome())
    params = TrainingParams(batch_size=10, jit_compile=False, steps_per_execution=steps_per_execution)
    training = ModelTraining(params, plan, context)
    training.compile()
    return training


def test_a_training_that_succeeded_is_kept_when_its_loss_is_no_number_in_the_timing_after_it(context: Context) -> None:
    training = _exploding(context())
    training.execute(1)
    assert len(training.complete(0.0, 0.0).epochs) == 1
    assert training.verify().warnings == []
    training.execute(50)
    raised = {each.code: each.severity for each in training.verify().warnings}
    assert raised == {"LOSS_NONFINITE": "A", "OUTPUT_NONFINITE": "A"}


def test_a_run_that_only_times_warns_of_a_loss_that_is_no_number(context: Context) -> None:
    training = _exploding(context(run=1))
    training.execute(50)
    assert [raised.code for raised in training.verify().warnings] == ["LOSS_NONFINITE", "OUTPUT_NONFINITE"]


def test_a_run_that_trains_fails_with_a_loss_that_is_no_number(context: Context) -> None:
    training = _exploding(context())
    with pytest.raises(RunFailed) as failed:
        training.execute(50)
    assert failed.value.reason == "nonfinite_loss"


class StepByStep(TensorFlow):
    """The real framework, with one step a call as JAX has it on a CPU."""

    def __init__(self, sound: TensorFlow) -> None:
        super().__init__()
        self._tf, self._keras = sound._tf, sound._keras

    def trainer(
        self, model: Any, samples: Samples, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        return super().trainer(model, samples, batch_size, seed, 1)


def test_steps_that_a_framework_makes_one_by_one_are_told(tensorflow: TensorFlow, context: Context) -> None:
    details = _exploding(context(StepByStep(tensorflow)), steps_per_execution=3).verify().details
    assert details["steps_per_execution"] == 1
    why = "asked for 3; tensorflow makes each step a call of its own on this device"
    assert details["steps_per_execution_reason"] == why


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("imdb_lstm", {"data": "synthetic", "train_samples": 40, "test_samples": 10, "length": 5}),
        ("weather_gru", {"data": "synthetic", "window": 5, "warmup_steps": 1}),
        ("shakespeare_lstm", {"window": 5, "embedding": 4}),
    ],
)
def test_only_the_steps_that_are_made_count_as_work(
    tensorflow: TensorFlow, context: Context, name: str, params: dict[str, Any]
) -> None:
    small = {"units": 4, "batch_size": 10, "steps_per_execution": 3, "jit_compile": False}
    asked = validate_params(workload(name), params | small)
    in_turn, one_by_one = (
        workload(name).build(asked, context(framework)) for framework in (tensorflow, StepByStep(tensorflow))
    )
    assert (in_turn.work, one_by_one.work) == (30, 10)
    assert in_turn.verify().flops == workload(name).flops(asked)
    assert one_by_one.verify().flops == pytest.approx(workload(name).flops(asked) / 3)
