"""What a trainer must do over any number of replicas.

The model of the first cases never learns: each sample's loss stays the same, so a mean shows which samples were seen.
"""

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


def _epoch(trainer, count):
    trainer.steps(count // trainer.batch_size)
    if count % trainer.batch_size:
        trainer.tail()
    return trainer.finish_epoch()


@pytest.mark.parametrize("batch_size", [4, 7, pytest.param(SAMPLES, marks=pytest.mark.verify)])
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


@pytest.mark.verify
def test_a_thousand_steps_in_a_row_go_through(framework, model_of):
    """Concurrent steps on virtual devices can deadlock."""
    trainer = framework.trainer(model_of(rate=0.01), DATA, 4, seed=0)
    assert np.isfinite(trainer.steps(1000))


def _weights(model):
    return [np.array(each) for each in model.get_weights()]


def test_the_order_is_the_seeds_and_changes_with_every_shuffle(framework, model_of):
    def losses(seed):
        trainer = framework.trainer(model_of(rate=0.1), DATA, 2, seed)
        return [trainer.steps(1) for _ in range(SAMPLES)]

    first, again, other = losses(1), losses(1), losses(2)
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "counts",
    [pytest.param((7,), marks=pytest.mark.verify), (1, 2, 4), pytest.param((3, 3, 1), marks=pytest.mark.verify)],
)
def test_steps_in_one_call_train_as_single_ones_do(framework, model_of, counts):
    """Up to four steps per call, over orders of five batches."""
    (one, singly), (other, together) = (
        (model, framework.trainer(model, DATA, 2, 0, steps)) for steps in (1, 4) for model in [model_of(rate=0.1)]
    )
    together.compile()
    for count in counts:
        assert together.steps(count) == pytest.approx(singly.steps(count), rel=ROUNDING)
    assert together.finish_epoch() == pytest.approx(singly.finish_epoch(), rel=ROUNDING)
    for trainer in (singly, together):
        trainer.sync()
    for mine, theirs in zip(_weights(one), _weights(other), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=ROUNDING)


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
