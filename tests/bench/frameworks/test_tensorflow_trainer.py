import math
import time

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset
from dyno.bench.frameworks.tensorflow_trainer import kept_as

SAMPLES, CLASSES = 10, 3
INPUTS = np.arange(SAMPLES * 4, dtype=np.float32).reshape(SAMPLES, 4) / 10
TARGETS = np.eye(CLASSES, dtype=np.float32)[np.arange(SAMPLES) % CLASSES]
DATA = Dataset(INPUTS, TARGETS)
# Of two ways to sum the same in float32: a hundred terms differ by 6e-6 at most, several steps by a few times as much.
# A sample left out, seen twice or given another's label changes a loss by a hundredth.
ROUNDING = 1e-4


def _model(framework, rate, *, dropout=0.0, jit_compile="auto"):
    framework.seed(7)
    keras = framework.keras
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(dropout), keras.layers.Dense(CLASSES, activation="softmax")]
    )
    model.compile(keras.optimizers.SGD(rate), "categorical_crossentropy", metrics=["accuracy"], jit_compile=jit_compile)
    return model


def _still(framework, batch_size, seed=0):
    """A model that never learns: each sample's loss is constant, so a mean identifies the samples seen."""
    model = _model(framework, rate=0.0)
    return model, framework.trainer(model, DATA, batch_size, seed)


def test_the_order_is_the_seeds_and_changes_with_every_shuffle(tensorflow):
    def losses(seed):
        _, trainer = _still(tensorflow, 1, seed)
        return [trainer.steps(1) for _ in range(2 * SAMPLES)]

    first, again, other = losses(1), losses(1), losses(2)
    assert first == again
    assert first != other
    assert first[:SAMPLES] != first[SAMPLES:]


@pytest.mark.parametrize("steps_per_execution", [pytest.param(1, marks=pytest.mark.verify), 2])
def test_compiling_with_xla_leaves_no_compilation_for_the_first_step_and_no_trace_in_the_training(
    tensorflow, steps_per_execution
):
    def trained(*, compiled):
        model = _model(tensorflow, 0.1, dropout=0.5, jit_compile=True)
        trainer = tensorflow.trainer(model, DATA, 5, 3, steps_per_execution)
        compile_s = _seconds(trainer.compile) if compiled else math.inf
        losses: list[float] = []
        assert _seconds(lambda: losses.append(trainer.steps(2))) < compile_s / 2
        losses += [trainer.steps(1), trainer.finish_epoch()["loss"]]
        return losses, [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]

    (losses, variables), (expected, others) = trained(compiled=True), trained(compiled=False)
    assert losses == expected
    for one, other in zip(variables, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_fed_step_and_a_forward_pass_with_xla_are_compiled_in_advance_too(tensorflow):
    model = _model(tensorflow, 0.1, jit_compile=True)
    step, batch = tensorflow.fed_step(model, INPUTS, TARGETS), tensorflow.array(INPUTS, "float32")
    before = [variable.numpy() for variable in model.variables]
    fed_s, forward = _seconds(step.compile), None

    def prepare():
        nonlocal forward
        forward = tensorflow.forward(model, batch)

    forward_s = _seconds(prepare)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert _seconds(lambda: step.train(step.placed(INPUTS, TARGETS))) < fed_s / 2
    assert _seconds(lambda: forward(batch).numpy()) < forward_s / 2


def _seconds(act):
    """Processor time: compiling takes much of it, and waiting for other processes none."""
    began_s = time.process_time()
    act()
    return time.process_time() - began_s


def test_windows_are_cut_from_the_series_as_they_are_needed(tensorflow):
    keras, window = tensorflow.keras, 5
    tensorflow.seed(7)
    model = keras.Sequential([keras.Input((window, 4)), keras.layers.GRU(3, return_sequences=True)])
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    series = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    targets, starts = series[:, :3] / 2, np.array([0, 3, 25, 11, 8, 9, 1], np.int32)
    trainer = tensorflow.trainer(model, Dataset(series, targets, window, starts), 3, 0)
    assert trainer.batch_size == 3
    trainer.steps(2)
    trainer.tail()
    rows = starts[:, np.newaxis] + np.arange(window)
    expected = model.evaluate(series[rows], targets[rows], verbose=0, return_dict=True)
    assert trainer.finish_epoch()["loss"] == pytest.approx(expected["loss"], rel=ROUNDING)


def test_whole_numbers_come_as_they_are_whatever_their_width(tensorflow):
    keras = tensorflow.keras
    tensorflow.seed(7)
    layers = [keras.Input((3,), dtype="int32"), keras.layers.Embedding(256, 4), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(CLASSES, "softmax")])
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=["accuracy"], jit_compile=False)
    inputs = np.random.default_rng(0).integers(0, 256, (30, 3))
    targets = inputs[:, 0] % CLASSES
    trainer = tensorflow.trainer(model, Dataset(inputs.astype(np.uint8), targets.astype(np.uint8)), 10, 0)
    trainer.steps(3)
    expected = model.evaluate(inputs, targets, verbose=0, return_dict=True)
    model.reset_metrics()
    trainer.shuffle()
    trainer.steps(3)
    assert trainer.finish_epoch() == pytest.approx(expected, rel=ROUNDING)


def test_a_shape_is_traced_once_for_all_predictions(tensorflow):
    keras, traced = tensorflow.keras, []

    def noted(value):
        traced.append(value.shape)
        return value

    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(noted), keras.layers.Dense(CLASSES)])
    model.compile(loss="mse", jit_compile=False)
    trainer = tensorflow.trainer(model, DATA, 4, 0)
    trainer.predict(INPUTS, 4)
    before = len(traced)
    for count in (10, 4, 9):  # the last batch is filled up
        assert trainer.predict(INPUTS[:count], 4).shape == (count, CLASSES)
    assert len(traced) == before
    trainer.predict(INPUTS[:1], 4)
    assert len(traced) == before + 1


def test_an_epoch_s_figures_are_those_of_any_keras_metrics(tensorflow):
    keras = tensorflow.keras
    model = _model(tensorflow, 0.0)
    metrics = ["mae", keras.metrics.TopKCategoricalAccuracy(CLASSES, name="top"), keras.metrics.F1Score(name="f1")]
    model.compile(keras.optimizers.SGD(0.0), "categorical_crossentropy", metrics=metrics, jit_compile=False)
    trainer = tensorflow.trainer(model, DATA, 5, 0)
    trainer.steps(2)
    figures = trainer.finish_epoch()
    expected = model.evaluate(INPUTS, TARGETS, verbose=0, return_dict=True)
    assert figures.keys() == {"loss", "mae", "top", "f1"}
    assert figures["top"] == 1.0
    assert figures == pytest.approx({name: float(np.mean(value)) for name, value in expected.items()}, rel=ROUNDING)


def test_only_for_a_gpu_whole_numbers_are_kept_in_the_width_that_tensorflow_keeps_there():
    for dtype, kept in ((np.int32, np.int64), (np.uint8, np.uint8), (np.float32, np.float32)):
        values = np.arange(3).astype(dtype)
        np.testing.assert_array_equal(kept_as(values, accelerated=True), values)
        assert kept_as(values, accelerated=True).dtype == kept
        assert kept_as(values, accelerated=False) is values
