"""A step fed by the host equals the trainer's step on the same batch."""

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset

INPUTS = np.random.default_rng(0).random((6, 4), np.float32)
TARGETS = np.eye(3, dtype=np.float32)[np.arange(6) % 3]
OTHERS = INPUTS[::-1].copy()
ROUNDING = 1e-4  # of two ways to sum the same in float32, over a few steps; other batches differ by a hundredth


def _step(framework, model):
    step = framework.fed_step(model, INPUTS, TARGETS)
    step.compile()
    return step


def _weights(model):
    return [np.array(each) for each in model.get_weights()]


def test_it_trains_as_the_trainer_does_on_the_same_samples(framework, model_of):
    trained, fed = model_of(rate=0.5), model_of(rate=0.5)
    trainer = framework.trainer(trained, Dataset(INPUTS, TARGETS), len(INPUTS), seed=0)
    step = _step(framework, fed)
    for count in (1, 2, 3):
        loss = step.train(step.placed(INPUTS, TARGETS))
        assert loss == pytest.approx(trainer.steps(1), rel=ROUNDING), count
    trainer.sync()
    step.sync()
    for one, other in zip(_weights(trained), _weights(fed), strict=True):
        np.testing.assert_allclose(one, other, rtol=ROUNDING, atol=1e-6)


def test_each_step_is_on_the_batch_that_it_is_given(framework, model_of):
    step = _step(framework, model_of(rate=0.0))
    first, second = (step.placed(inputs, TARGETS) for inputs in (INPUTS, OTHERS))
    one = step.train(first)
    both = step.train(second)
    expected = model_of(rate=0.0).evaluate(OTHERS, TARGETS, verbose=0)[0]
    assert 2 * both - one == pytest.approx(expected, rel=ROUNDING)
    assert expected != pytest.approx(one, rel=1e-3)
    assert step.train(first) == pytest.approx((2 * one + expected) / 3, rel=ROUNDING)  # a batch can be given again


def test_compiling_it_trains_nothing(framework, model_of):
    model = model_of(rate=1.0)
    before = _weights(model)
    _step(framework, model).sync()
    assert all((old == new).all() for old, new in zip(before, _weights(model), strict=True))


def test_its_operations_are_counted(framework, model_of):
    """6 samples, 4 x 3, twice: forward pass and gradient of the weights; the gradient of the inputs isn't needed."""
    step = _step(framework, model_of(rate=0.1))
    step.train(step.placed(INPUTS, TARGETS))
    assert step.counted_flops() == 2 * 2 * 6 * 4 * 3
