"""The real TensorFlow, whose training step is wrong in one way: none of them may pass for the training asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dyno.frameworks.contract import Samples, Trainer
from dyno.frameworks.tensorflow import TensorFlow

Spoil = Callable[[Any, Samples], Samples]


class Wrong(TensorFlow):
    """`spoil(model, samples)` spoils either before there is a step; what it gives is trained on."""

    def __init__(self, sound: TensorFlow, spoil: Spoil) -> None:
        super().__init__()
        self._tf, self._keras = sound._tf, sound._keras
        self._spoil = spoil

    def trainer(
        self, model: Any, samples: Samples, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        return super().trainer(model, self._spoil(model, samples), batch_size, seed, steps_per_execution)


def without_gradients(model: Any, samples: Samples) -> Samples:
    _zeroed(model, last=0)
    return samples


def with_the_last_layer_s_alone(model: Any, samples: Samples) -> Samples:
    """Its kernel's and its bias's."""
    _zeroed(model, last=2)
    return samples


def on_shuffled_targets(model: Any, samples: Samples) -> Samples:
    """Once and for all."""
    return replace(samples, targets=np.random.default_rng(3).permutation(samples.targets))


def on_targets_shuffled_in_every_step(model: Any, samples: Samples) -> Samples:
    import tensorflow as tf

    step = model.train_step
    model.train_step = lambda data: step((data[0], tf.random.shuffle(data[1])))
    return samples


def _zeroed(model: Any, last: int) -> None:
    """All gradients but the `last` ones."""
    import tensorflow as tf

    apply = model.optimizer.apply

    def zeros(gradients: Any, variables: Any) -> Any:
        kept = len(gradients) - last
        return apply([*map(tf.zeros_like, variables[:kept]), *gradients[kept:]], variables)

    model.optimizer.apply = zeros
