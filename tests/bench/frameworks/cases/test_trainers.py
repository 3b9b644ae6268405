from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset

SAMPLES, CLASSES = 10, 3
INPUTS = np.arange(SAMPLES * 4, dtype=np.float32).reshape(SAMPLES, 4) / 10
TARGETS = np.eye(CLASSES, dtype=np.float32)[np.arange(SAMPLES) % CLASSES]
DATA = Dataset(INPUTS, TARGETS)
# Of two ways to sum the same in float32: a hundred terms differ by 6e-6 at most, several steps by a few times as much.
# A sample left out, seen twice or given another's label changes a loss by a hundredth.
ROUNDING = 1e-4

Maker = Callable[..., Any]


def _weights(model):
    return [np.array(each) for each in model.get_weights()]


def test_the_order_is_the_seeds_and_changes_with_every_shuffle(framework, model_of):
    def losses(seed):
        trainer = framework.trainer(model_of(rate=0.1), DATA, 2, seed)
        return [trainer.steps(1) for _ in range(SAMPLES)]

    first, again, other = losses(1), losses(1), losses(2)
    assert first == again
    assert first != other


def test_steps_in_one_call_train_as_single_ones_do(framework, model_of):
    """Seven steps, up to four per call, over orders of five batches: calls of 4, 1 and 2."""
    singly, together = (framework.trainer(model_of(rate=0.1), DATA, 2, 0, steps) for steps in (1, 4))
    together.compile()
    assert together.steps(7) == pytest.approx(singly.steps(7), rel=ROUNDING)
    assert together.finish_epoch() == pytest.approx(singly.finish_epoch(), rel=ROUNDING)


def test_it_learns(framework, model_of):
    """The loss of one layer has a single minimum, however the processor rounds."""
    samples = Dataset(np.eye(CLASSES, 4, dtype=np.float32)[np.arange(60) % CLASSES], np.tile(TARGETS[:3], (20, 1)))
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


def test_compiling_trains_nothing(framework, model_of):
    model = model_of(rate=1.0)
    before = _weights(model)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.compile()
    trainer.sync()
    assert all((old == new).all() for old, new in zip(before, _weights(model), strict=True))


def test_the_keras_model_has_what_was_trained_once_it_is_up_to_date(framework, model_of):
    model = model_of(rate=1.0)
    before = _weights(model)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(3)
    trainer.sync()
    after = _weights(model)
    assert any((old != new).any() for old, new in zip(before, after, strict=True))
    found = framework.keras.ops.convert_to_numpy(framework.keras.ops.stop_gradient(model(INPUTS)))
    np.testing.assert_allclose(trainer.predict(INPUTS, 4), found, rtol=ROUNDING)


def test_a_learning_rate_set_on_the_optimizer_takes_effect(framework, model_of):
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


def test_weights_set_on_the_model_take_effect(framework, model_of):
    model = model_of(rate=1.0)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(2)
    model.set_weights([np.zeros_like(each) for each in _weights(model_of(rate=1.0))])
    trainer.refresh()
    np.testing.assert_allclose(trainer.predict(INPUTS, 4), 1 / CLASSES, rtol=1e-6)
    assert np.isfinite(trainer.steps(2))


def test_a_model_that_is_behind_gives_no_old_value(framework, model_of):
    if framework.name != "jax":
        pytest.skip("its step trains the model's own variables")
    model = model_of(rate=1.0)
    trainer = framework.trainer(model, DATA, 4, 0)
    trainer.steps(1)
    with pytest.raises(RuntimeError, match="deleted"):
        model.get_weights()


def test_a_loop_on_the_device_trains_as_single_steps_do(framework, model_of):
    if framework.name != "jax":
        pytest.skip("JAX alone takes its loop on accelerators only")
    import jax

    from dyno.bench.frameworks.jax_trainer import JaxTrainer

    looped = JaxTrainer(jax, jax.devices(), model_of(rate=0.1), DATA, 2, 0, steps_per_execution=4)
    singly = framework.trainer(model_of(rate=0.1), DATA, 2, 0)
    assert looped.steps(7) == pytest.approx(singly.steps(7), rel=ROUNDING)
