"""Loss and accuracy over all of a set of samples, whatever the number of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.frameworks.contract import Samples, Trainer

MAJORITY = "majority_accuracy"  # among a training's baselines: of always naming the test set's most frequent class


def evaluate(keras: Any, model: Any, trainer: Trainer, samples: Samples) -> dict[str, float]:
    """Means over the samples, in inference mode: the loss as compiled, and the accuracy of a classification.

    Each part counts by its number of samples, so that a last, smaller one weighs no more than it should.
    """
    totals: dict[str, float] = {}
    size = len(samples) if samples.window is None else trainer.batch_size  # windows are copied: not all at once
    for inputs, targets in batches(samples, size):
        predicted = trainer.predict(inputs, trainer.batch_size)
        for name, value in _figures(keras, model, targets, predicted).items():
            totals[name] = totals.get(name, 0.0) + value * len(targets)
    return {name: total / len(samples) for name, total in totals.items()}


def batches(samples: Samples, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """(inputs, targets) of `size` samples each, in order; the last one may be smaller."""
    for first in range(0, len(samples), size):
        yield samples.batch(np.arange(first, min(first + size, len(samples))))


def _figures(keras: Any, model: Any, targets: NDArray[Any], predicted: NDArray[np.float32]) -> dict[str, float]:
    loss = keras.losses.get(model.loss)
    figures = {"loss": float(np.mean(keras.ops.convert_to_numpy(loss(targets, predicted))))}
    right = _right(str(getattr(loss, "name", getattr(loss, "__name__", ""))), targets, predicted)
    return figures if right is None else figures | {"accuracy": float(np.mean(right))}


def _right(loss: str, targets: NDArray[Any], predicted: NDArray[np.float32]) -> NDArray[np.bool_] | None:
    """Which predictions name the right class; None where the loss is of no classification."""
    if loss == "categorical_crossentropy":
        return np.asarray(predicted.argmax(-1) == targets.argmax(-1))
    if loss == "sparse_categorical_crossentropy":
        return np.asarray(predicted.argmax(-1) == targets)
    if loss == "binary_crossentropy":
        return np.asarray((predicted.reshape(targets.shape) > 0.5) == (targets > 0.5))
    return None
