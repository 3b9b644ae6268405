"""What data and weights tell of a training that was timed, on the real network of the digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyno.frameworks.contract import Samples
from dyno.workloads._timed_steps import TimedSteps
from dyno.workloads._training_checks import Checked, checked
from dyno.workloads.contract import BuildContext

Context = Callable[..., BuildContext]
SAMPLES = Samples(np.arange(64, dtype=np.float32).reshape(16, 4), np.eye(4, dtype=np.float32)[np.arange(16) % 4])


@pytest.fixture
def looked_at(context: Context) -> Callable[..., Checked]:
    def look(
        samples: Samples = SAMPLES,
        spoil: float | None = None,
    ) -> Checked:
        made = context()
        keras = made.framework.keras
        model: Any = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="softmax")])
        model.compile(keras.optimizers.SGD(1e-3), "categorical_crossentropy")
        trainer = made.framework.trainer(model, samples, 8, 0)
        timed = TimedSteps.of(model)
        timed.asked = 1
        trainer.steps(1)
        if spoil is not None:
            kernel, bias = model.get_weights()
            kernel[1, 2] = spoil
            model.set_weights([kernel, bias])
        return checked(made, model, trainer, samples, timed, None)

    return look


def _codes(found: Checked) -> list[str]:
    return [raised.code for raised in found.warnings]


def test_a_sound_training_raises_nothing_and_its_float32_is_observed(looked_at: Callable[..., Checked]) -> None:
    found = looked_at()
    assert _codes(found) == []
    assert found.verified == {"DEGENERATE_DATA", "OUTPUT_NONFINITE"}
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
