"""What a trainer must do over any number of replicas. The model of the first cases never learns: each sample's loss
stays what it is, so that a mean tells which samples were seen."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset

SAMPLES, CLASSES, WINDOW = 10, 3, 4
INPUTS = np.arange(SAMPLES * 4, dtype=np.float32).reshape(SAMPLES, 4) / 10
TARGETS = np.eye(CLASSES, dtype=np.float32)[np.arange(SAMPLES) % CLASSES]
DATA = Dataset(INPUTS, TARGETS)
# Of two ways to sum the same in float32: a hundred terms differ by 6e-6 at most, several steps by a few times as much.
# A sample left out, seen twice or given another's label changes a loss by a hundredth.
ROUNDING = 1e-4
STARTS = np.array([0, 1, 2, 3, 5, 6], np.int32)
WINDOWS = Dataset(INPUTS, TARGETS, WINDOW, STARTS)

Maker = Callable[..., Any]


def _epoch(trainer, count):
    trainer.steps(count // trainer.batch_size)
    if count % trainer.batch_size:
        trainer.tail()
    return trainer.finish_epoch()


@pytest.mark.parametrize("batch_size", [4, 7, SAMPLES])
def test_an_epoch_sees_every_sample_once(framework, model_of, batch_size):
    model = model_of(rate=0.0)
    trainer = framework.trainer(model, DATA, batch_size, seed=0)
    assert trainer.batch_size == batch_size // trainer.replicas * trainer.replicas
    first = _epoch(trainer, SAMPLES)
    trainer.shuffle()
    second = _epoch(trainer, SAMPLES)
    expected = model_of(rate=0.0).evaluate(INPUTS, TARGETS, verbose=0, return_dict=True)
    assert first == pytest.approx(expected, rel=ROUNDING)
    assert second == pytest.approx(expected, rel=ROUNDING)


def test_samples_that_no_replica_could_share_are_left_out(framework, model_of):
    trainer = framework.trainer(model_of(rate=0.0), Dataset(INPUTS[:5], TARGETS[:5]), 4, seed=0)
    trainer.steps(1)
    assert np.isfinite(trainer.tail())
    assert np.isfinite(trainer.finish_epoch()["loss"])


def test_windows_are_cut_from_one_series(framework, model_of):
    trainer = framework.trainer(model_of(rate=0.0, shape=(WINDOW, 4)), WINDOWS, 2, seed=0)
    rows = STARTS[:, np.newaxis] + np.arange(WINDOW)
    reference = model_of(rate=0.0, shape=(WINDOW, 4))
    expected = reference.evaluate(INPUTS[rows], TARGETS[rows], verbose=0, return_dict=True)
    assert _epoch(trainer, len(STARTS)) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("count", [1, 3, 6, 10])
def test_any_number_is_predicted_without_dropout(framework, model_of, count):
    model = model_of(rate=0.0, dropout=0.9)
    trainer = framework.trainer(model, DATA, 4, 0)
    predicted = trainer.predict(INPUTS[:count], 4)
    kernel, bias = model.get_weights()
    scores = np.exp(INPUTS[:count] @ kernel + bias)
    np.testing.assert_allclose(predicted, scores / scores.sum(axis=1, keepdims=True), rtol=ROUNDING)
    assert predicted.dtype == np.float32


def test_replicas_train_as_one_device_does(framework, model_of):
    if framework.name != "jax":
        pytest.skip("a trainer for some of the devices can be had on JAX only")
    import jax

    from dyno.bench.frameworks.jax_trainer import JaxTrainer

    together = framework.trainer(model_of(rate=0.5), DATA, 4, seed=3)
    alone = JaxTrainer(jax, jax.devices()[:1], model_of(rate=0.5), DATA, 4, 3, steps_per_execution=1)
    losses = [alone.steps(1) for _ in range(6)]
    assert len(set(losses)) == len(losses)
    assert [together.steps(1) for _ in range(6)] == pytest.approx(losses, rel=ROUNDING)


def test_a_thousand_steps_in_a_row_go_through(framework, model_of):
    """Concurrent steps on virtual devices can deadlock."""
    trainer = framework.trainer(model_of(rate=0.01), DATA, 4, seed=0)
    assert np.isfinite(trainer.steps(1000))
