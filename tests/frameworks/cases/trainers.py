from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyno.frameworks.contract import Framework, Samples, Trainer

SAMPLES, CLASSES, WINDOW = 10, 3, 4
INPUTS = np.arange(SAMPLES * 4, dtype=np.float32).reshape(SAMPLES, 4) / 10
TARGETS = np.eye(CLASSES, dtype=np.float32)[np.arange(SAMPLES) % CLASSES]
DATA = Samples(INPUTS, TARGETS)
STARTS = np.array([0, 1, 2, 3, 5, 6], np.int32)
WINDOWS = Samples(INPUTS, TARGETS, WINDOW, STARTS)

Maker = Callable[..., Any]


def _epoch(trainer: Trainer, count: int) -> dict[str, float]:
    trainer.steps(count // trainer.batch_size)
    if count % trainer.batch_size:
        trainer.tail()
    return trainer.finish_epoch()


def _weights(model: Any) -> list[Any]:
    return [np.array(each) for each in model.get_weights()]


@pytest.mark.parametrize("batch_size", [4, 5, 7, 1000])
def test_an_epoch_sees_every_sample_once(framework: Framework, model_of: Maker, batch_size: int) -> None:
    """A model that never learns: each sample's loss stays what it is, so a mean tells which samples were seen."""
    model = model_of(rate=0.0)
    trainer = framework.trainer(model, DATA, batch_size, seed=0)
    assert trainer.batch_size == min(batch_size, SAMPLES) // trainer.replicas * trainer.replicas
    first = _epoch(trainer, SAMPLES)
    trainer.shuffle()
    second = _epoch(trainer, SAMPLES)
    expected = model_of(rate=0.0).evaluate(INPUTS, TARGETS, verbose=0, return_dict=True)
    assert first == pytest.approx(expected, rel=1e-5)
    assert second == pytest.approx(expected, rel=1e-5)


def test_samples_that_no_replica_could_share_are_left_out(framework: Framework, model_of: Maker) -> None:
    trainer = framework.trainer(model_of(rate=0.0), Samples(INPUTS[:5], TARGETS[:5]), 4, seed=0)
    trainer.steps(1)
    assert np.isfinite(trainer.tail())
    assert np.isfinite(trainer.finish_epoch()["loss"])


def test_windows_are_cut_from_one_series(framework: Framework, model_of: Maker) -> None:
    trainer = framework.trainer(model_of(rate=0.0, shape=(WINDOW, 4)), WINDOWS, 2, seed=0)
    rows = STARTS[:, np.newaxis] + np.arange(WINDOW)
    reference = model_of(rate=0.0, shape=(WINDOW, 4))
    expected = reference.evaluate(INPUTS[rows], TARGETS[rows], verbose=0, return_dict=True)
    assert _epoch(trainer, len(STARTS)) == pytest.approx(expected, rel=1e-5)


def test_the_order_is_the_seeds_and_changes_with_every_shuffle(framework: Framework, model_of: Maker) -> None:
    def losses(seed: int) -> list[float]:
        trainer = framework.trainer(model_of(rate=0.1), DATA, 2, seed)
        return [trainer.steps(1) for _ in range(SAMPLES)]

    first, again, other = losses(1), losses(1), losses(2)
    assert first == again
    assert first != other


def test_steps_in_one_call_train_as_single_ones_do(framework: Framework, model_of: Maker) -> None:
    """Seven of four in a call, over orders that hold five batches: calls of 4, 1 and 2."""
    singly, together = (framework.trainer(model_of(rate=0.1), DATA, 2, 0, steps) for steps in (1, 4))
    together.compile()
    assert together.steps(7) == pytest.approx(singly.steps(7), rel=1e-5)
    assert together.finish_epoch() == pytest.approx(singly.finish_epoch(), rel=1e-5)


def test_it_learns(framework: Framework, model_of: Maker) -> None:
    samples = Samples(np.eye(CLASSES, 4, dtype=np.float32)[np.arange(60) % CLASSES], np.tile(TARGETS[:3], (20, 1)))
    trainer = framework.trainer(model_of(rate=1.0), samples, 20, 0)
    trainer.compile()
    trainer.steps(3)
    before = trainer.finish_epoch()["loss"]
    trainer.steps(30)
    trainer.finish_epoch()
    trainer.steps(3)
    after = trainer.finish_epoch()
    assert after["loss"] < before / 2
    assert after["accuracy"] == 1.0


def test_compiling_trains_nothing(framework: Framework, model_of: Maker) -> None:
    model = model_of(rate=1.0)
    before = _weights(model)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.compile()
    trainer.sync()
    assert all((old == new).all() for old, new in zip(before, _weights(model), strict=True))


@pytest.mark.parametrize("count", [1, 3, 6, 10])
def test_any_number_is_predicted_without_dropout(framework: Framework, model_of: Maker, count: int) -> None:
    model = model_of(rate=0.0, dropout=0.9)
    trainer = framework.trainer(model, DATA, 4, 0)
    predicted = trainer.predict(INPUTS[:count], 4)
    kernel, bias = model.get_weights()
    scores = np.exp(INPUTS[:count] @ kernel + bias)
    np.testing.assert_allclose(predicted, scores / scores.sum(axis=1, keepdims=True), rtol=1e-4)
    assert predicted.dtype == np.float32


def test_the_keras_model_has_what_was_trained_once_it_is_up_to_date(framework: Framework, model_of: Maker) -> None:
    model = model_of(rate=1.0)
    before = _weights(model)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(3)
    trainer.sync()
    after = _weights(model)
    assert any((old != new).any() for old, new in zip(before, after, strict=True))
    found = framework.keras.ops.convert_to_numpy(framework.keras.ops.stop_gradient(model(INPUTS)))
    np.testing.assert_allclose(trainer.predict(INPUTS, 4), found, rtol=1e-5)


def test_a_learning_rate_set_on_the_optimizer_takes_effect(framework: Framework, model_of: Maker) -> None:
    model = model_of(rate=1.0)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(1)
    trainer.sync()
    before = _weights(model)
    model.optimizer.learning_rate = 0.0
    trainer.refresh()
    trainer.steps(4)
    trainer.sync()
    assert all((old == new).all() for old, new in zip(before, _weights(model), strict=True))


def test_weights_set_on_the_model_take_effect(framework: Framework, model_of: Maker) -> None:
    model = model_of(rate=1.0)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(2)
    model.set_weights([np.zeros_like(each) for each in _weights(model_of(rate=1.0))])
    trainer.refresh()
    np.testing.assert_allclose(trainer.predict(INPUTS, 4), 1 / CLASSES, rtol=1e-6)
    assert np.isfinite(trainer.steps(2))


def test_a_model_that_is_behind_gives_no_old_value(framework: Framework, model_of: Maker) -> None:
    if framework.name != "jax":
        pytest.skip("its step trains the model's own variables")
    model = model_of(rate=1.0)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(1)
    with pytest.raises(RuntimeError, match="deleted"):
        model.get_weights()


def test_a_loop_on_the_device_trains_as_single_steps_do(framework: Framework, model_of: Maker) -> None:
    if framework.name != "jax":
        pytest.skip("JAX alone takes its loop on accelerators only")
    import jax

    from dyno.frameworks.jax_trainer import JaxTrainer

    looped = JaxTrainer(jax, jax.devices(), model_of(rate=0.1), DATA, 2, 0, steps_per_execution=4)
    singly = framework.trainer(model_of(rate=0.1), DATA, 2, 0)
    assert looped.steps(7) == pytest.approx(singly.steps(7), rel=1e-5)


def test_losses_to_compare_over_replicas(framework: Framework, model_of: Maker) -> None:
    trainer = framework.trainer(model_of(rate=0.5), DATA, 4, seed=3)
    losses = [trainer.steps(1) for _ in range(6)]
    assert len(set(losses)) == len(losses)
    Path(os.environ["CASES_LOSSES"]).write_text(json.dumps(losses))
