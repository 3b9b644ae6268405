from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dyno.frameworks.contract import Samples, Trainer
from dyno.frameworks.tensorflow import TensorFlow

SAMPLES, CLASSES = 10, 3
INPUTS = np.arange(SAMPLES * 4, dtype=np.float32).reshape(SAMPLES, 4) / 10
TARGETS = np.eye(CLASSES, dtype=np.float32)[np.arange(SAMPLES) % CLASSES]
DATA = Samples(INPUTS, TARGETS)


def _model(framework: TensorFlow, rate: float, *, dropout: float = 0.0, jit_compile: bool | str = "auto") -> Any:
    framework.seed(7)
    keras = framework.keras
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(dropout), keras.layers.Dense(CLASSES, activation="softmax")]
    )
    model.compile(keras.optimizers.SGD(rate), "categorical_crossentropy", metrics=["accuracy"], jit_compile=jit_compile)
    return model


def _still(framework: TensorFlow, batch_size: int, seed: int = 0) -> tuple[Any, Trainer]:
    """A model that never learns: each sample's loss stays what it is, so that a mean tells which samples were seen."""
    model = _model(framework, rate=0.0)
    return model, framework.trainer(model, DATA, batch_size, seed)


@pytest.mark.parametrize("batch_size", [4, 5, 7])
def test_full_batches_and_the_tail_see_every_sample_once(tensorflow: TensorFlow, batch_size: int) -> None:
    model, trainer = _still(tensorflow, batch_size)
    trainer.steps(SAMPLES // batch_size)
    if SAMPLES % batch_size:
        trainer.tail()
    expected = model.evaluate(INPUTS, TARGETS, verbose=0, return_dict=True)
    model.reset_metrics()
    trainer.shuffle()
    trainer.steps(SAMPLES // batch_size)
    if SAMPLES % batch_size:
        trainer.tail()
    assert trainer.finish_epoch() == pytest.approx(expected, rel=1e-5)


def test_an_epoch_starts_its_figures_anew(tensorflow: TensorFlow) -> None:
    _, trainer = _still(tensorflow, SAMPLES)
    trainer.steps(1)
    first = trainer.finish_epoch()
    trainer.steps(2)
    assert trainer.finish_epoch() == pytest.approx(first, rel=1e-5)


def test_the_order_is_the_seeds_and_changes_with_every_shuffle(tensorflow: TensorFlow) -> None:
    def losses(seed: int) -> list[float]:
        _, trainer = _still(tensorflow, 1, seed)
        return [trainer.steps(1) for _ in range(2 * SAMPLES)]

    first, again, other = losses(1), losses(1), losses(2)
    assert first == again
    assert first != other
    assert first[:SAMPLES] != first[SAMPLES:]


def test_steps_go_on_into_a_new_order_when_no_full_batch_is_left(tensorflow: TensorFlow) -> None:
    _, trainer = _still(tensorflow, 4)
    assert np.isfinite(trainer.steps(9))


def test_a_batch_larger_than_the_data_is_all_of_it(tensorflow: TensorFlow) -> None:
    _, trainer = _still(tensorflow, 1000)
    assert trainer.batch_size == SAMPLES
    trainer.steps(1)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_it_learns(tensorflow: TensorFlow, jit_compile: bool) -> None:
    inputs = np.eye(CLASSES, 4, dtype=np.float32)[np.arange(60) % CLASSES]
    targets = np.eye(CLASSES, dtype=np.float32)[np.arange(60) % CLASSES]
    trainer = tensorflow.trainer(_model(tensorflow, 1.0, jit_compile=jit_compile), Samples(inputs, targets), 20, 0)
    assert trainer.jit_compile == jit_compile
    trainer.compile()
    trainer.steps(3)
    before = trainer.finish_epoch()
    trainer.steps(60)
    trainer.finish_epoch()
    trainer.steps(3)
    after = trainer.finish_epoch()
    assert after["loss"] < before["loss"] / 2
    assert after["accuracy"] == 1.0


def test_compiling_trains_nothing(tensorflow: TensorFlow) -> None:
    model = _model(tensorflow, 1.0)
    before = [weights.copy() for weights in model.get_weights()]
    trainer = tensorflow.trainer(model, DATA, 5, 0)
    trainer.compile()
    assert all((old == new).all() for old, new in zip(before, model.get_weights(), strict=True))
    trainer.steps(1)
    assert any((old != new).any() for old, new in zip(before, model.get_weights(), strict=True))


def test_predicting_leaves_dropout_out_and_takes_any_number_of_samples(tensorflow: TensorFlow) -> None:
    model = _model(tensorflow, 0.0, dropout=0.9)
    trainer = tensorflow.trainer(model, DATA, 4, 0)
    predicted = trainer.predict(INPUTS, 4)
    assert predicted.shape == (SAMPLES, CLASSES)
    np.testing.assert_allclose(predicted, model.predict(INPUTS, verbose=0), rtol=1e-5)
