"""The real TensorFlow with a wrong training step. Dyno must detect each kind."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dyno.bench.frameworks.interface import Dataset
from dyno.bench.frameworks.tensorflow import TensorFlow

Spoil = Callable[[Any, Dataset], Dataset]


class StartedTensorFlow(TensorFlow):
    """The TensorFlow that the tests have started. Subclasses replace methods; `spoil` changes values in these."""

    def __init__(self, sound, spoil=lambda value: value):
        super().__init__()
        self._tf, self._keras, self._spoil = sound._tf, sound._keras, spoil


class Wrong(StartedTensorFlow):
    """`spoil(model, samples)` corrupts the model or the samples before the step is built, and returns the samples."""

    def trainer(self, model, samples, batch_size, seed, steps_per_execution=1):
        return super().trainer(model, self._spoil(model, samples), batch_size, seed, steps_per_execution)


def without_gradients(model, samples):
    _changed(model, lambda gradients: [0 * each for each in gradients])
    return samples


def with_the_last_layer_s_alone(model, samples):
    """Keep only the gradients of the last layer's kernel and bias."""
    _changed(model, lambda gradients: [*(0 * each for each in gradients[:-2]), *gradients[-2:]])
    return samples


def on_shuffled_targets(model, samples):
    """Shuffle the targets once, before the training."""
    return replace(samples, targets=np.random.default_rng(3).permutation(samples.targets))


def on_targets_shuffled_in_every_step(model, samples):
    import tensorflow as tf

    step = model.train_step
    model.train_step = lambda data: step((data[0], tf.random.shuffle(data[1])))
    return samples


def on_three_quarters_of_each_batch(model, samples):
    step = model.train_step

    def shortened(data):
        some = data[0].shape[0] * 3 // 4
        return step((data[0][:some], data[1][:some]))

    model.train_step = shortened
    return samples


def _changed(model, change):
    """Apply `change` to all gradients before the optimiser gets them."""
    apply = model.optimizer.apply
    model.optimizer.apply = lambda gradients, variables: apply(change([*map(_dense, gradients)]), variables)


def _dense(gradient):
    """The gradient as a dense tensor. An embedding's gradient is a set of indexed rows."""
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)
