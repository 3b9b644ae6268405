"""What data, weights and accuracy tell of a training that was timed, on the real network of the digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyno.frameworks.contract import Samples
from dyno.result import DataOrigin, Epoch, Training
from dyno.workloads._evidence import Learned, fingerprints
from dyno.workloads._timed_steps import TimedSteps
from dyno.workloads._training_checks import Checked, checked
from dyno.workloads.contract import BuildContext

Context = Callable[..., BuildContext]
SAMPLES = Samples(np.arange(64, dtype=np.float32).reshape(16, 4), np.eye(4, dtype=np.float32)[np.arange(16) % 4])
TRAINED = Training(
    epochs=[Epoch(index=0, time_s=1.0, loss=1.0)],
    seed=0,
    data=DataOrigin(name="none", kind="synthetic", train_samples=16, test_samples=0),
)
QUARTER = {"majority_accuracy": 0.25}


@pytest.fixture
def looked_at(context: Context) -> Callable[..., Checked]:
    def look(
        samples: Samples = SAMPLES,
        accuracy_low: float | None = None,
        spoil: float | None = None,
        baselines: dict[str, float] = QUARTER,
    ) -> Checked:
        made = context()
        keras = made.framework.keras
        model: Any = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="softmax")])
        model.compile(keras.optimizers.SGD(1e-3), "categorical_crossentropy")
        trainer = made.framework.trainer(model, samples, 8, 0)
        before, timed = fingerprints(model), TimedSteps.of(model)
        timed.asked = 1
        trainer.steps(1)
        if spoil is not None:
            kernel, bias = model.get_weights()
            kernel[1, 2] = spoil
            model.set_weights([kernel, bias])
        training = TRAINED.model_copy(update={"accuracy_low": accuracy_low, "baselines": baselines})
        learned = None if accuracy_low is None else Learned(training, before)
        return checked(made, model, trainer, samples, learned, timed)

    return look


def _codes(found: Checked) -> list[str]:
    return [raised.code for raised in found.warnings]


def test_a_sound_training_raises_nothing_and_its_float32_is_observed(looked_at: Callable[..., Checked]) -> None:
    found = looked_at(accuracy_low=0.9)
    assert _codes(found) == []
    assert found.verified == {"DEGENERATE_DATA", "OUTPUT_NONFINITE", "RESULT_INCORRECT"}
    assert found.precision is not None
    assert (found.precision.requested, found.precision.observed) == ("float32", "float32")


def test_data_that_are_all_zero_are_caught(looked_at: Callable[..., Checked]) -> None:
    found = looked_at(replace(SAMPLES, inputs=np.zeros_like(SAMPLES.inputs)))
    assert _codes(found) == ["DEGENERATE_DATA"]
    assert found.warnings[0].evidence == {"constant": ["inputs"]}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_caught(looked_at: Callable[..., Checked], value: float) -> None:
    found = looked_at(spoil=value)
    assert _codes(found) == ["OUTPUT_NONFINITE"]
    assert found.warnings[0].evidence == {"nonfinite": 1, "elements": 20}


@pytest.mark.parametrize(("accuracy_low", "shown"), [(None, False), (0.25, False), (0.625, False), (0.626, True)])
def test_only_more_than_half_of_what_one_class_leaves_to_learn_shows_that_the_steps_are_right(
    looked_at: Callable[..., Checked], accuracy_low: float | None, shown: bool
) -> None:
    assert ("RESULT_INCORRECT" in looked_at(accuracy_low=accuracy_low).verified) is shown


def test_what_one_class_reaches_is_that_of_the_test_set(looked_at: Callable[..., Checked]) -> None:
    uneven = looked_at(accuracy_low=0.9, baselines={"majority_accuracy": 0.85})
    assert "not above 92.5%" in uneven.unchecked["RESULT_INCORRECT"]
    unknown = looked_at(accuracy_low=0.9, baselines={})
    assert "RESULT_INCORRECT" in unknown.unchecked
