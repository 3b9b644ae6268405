"""Evaluate a model on held-out data: split the data, compute loss and accuracy, and margins over reference predictors.

A margin is the advantage of a trained model over a reference predictor. Neighbouring hours and characters are alike,
so single values aren't independent. The evaluation therefore cuts the data, in order, into blocks of equal length and
applies Student's t to the blocks' mean differences.

Seasons and plays are longer than a block. The correlation of neighbouring blocks' differences was up to 0.57, which
makes a 95 % interval 1.9 times too narrow. So Dyno takes the 99.9 % interval, which is 1.9 times as wide.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.bench.frameworks.interface import Dataset, Trainer
from dyno.bench.measure.statistics import Interval, mean_interval
from dyno.errors import RunFailed


def held_out_count(count: int, share: float) -> int:
    """The number of held-out samples: 0 for a `share` of 0, else at least 1."""
    return max(1, int(count * share)) if share > 0 else 0


def hold_out(samples: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset | None]:
    """Split into (training samples, validation samples or None). Raises RunFailed if no training sample is left.

    The `seed` draws the held-out samples. But if the samples are windows over one series, the last windows are held out
    and windows that overlap them are dropped: random windows would share nearly all rows with training windows.
    """
    count = held_out_count(len(samples), share)
    if count == 0:
        return samples, None
    split = _drawn(samples, count, seed) if samples.starts is None else _last(samples, count)
    if not len(split[0]):
        detail = f"{len(samples)} samples are too few to hold out {share:.0%} of them for validation"
        raise RunFailed("benchmark", "too_few_samples", detail)
    return split


def _drawn(samples: Dataset, count: int, seed: int) -> tuple[Dataset, Dataset]:
    order = np.random.default_rng(seed).permutation(len(samples))
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    return (
        replace(samples, inputs=samples.inputs[kept], targets=samples.targets[kept]),
        replace(samples, inputs=samples.inputs[held], targets=samples.targets[held]),
    )


def _last(samples: Dataset, count: int) -> tuple[Dataset, Dataset]:
    assert samples.starts is not None
    assert samples.window is not None
    starts = np.sort(samples.starts)
    held = starts[-count:]
    kept = starts[starts + samples.window <= held[0]]
    return replace(samples, starts=kept), replace(samples, starts=held)


MAJORITY = "majority_accuracy"  # the reference predictor that always names the test set's most frequent class


def evaluate(keras: Any, model: Any, trainer: Trainer, samples: Dataset) -> dict[str, float]:
    """Means over the samples in inference mode: the compiled loss and, for a classification, the accuracy.

    Each batch is weighted by its number of samples, so a smaller last batch doesn't distort the mean.
    """
    totals: dict[str, float] = {}
    size = len(samples) if samples.window is None else trainer.batch_size  # windows are copied, so not all at once
    for inputs, targets in batches(samples, size):
        predicted = trainer.predict(inputs, trainer.batch_size)
        for name, value in _figures(keras, model, targets, predicted).items():
            totals[name] = totals.get(name, 0.0) + value * len(targets)
    return {name: total / len(samples) for name, total in totals.items()}


def batches(samples: Dataset, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Batches (inputs, targets) of `size` samples, in order; the last batch may be smaller."""
    for first in range(0, len(samples), size):
        yield samples.batch(np.arange(first, min(first + size, len(samples))))


def _figures(keras: Any, model: Any, targets: NDArray[Any], predicted: NDArray[np.float32]) -> dict[str, float]:
    loss = keras.losses.get(model.loss)
    figures = {"loss": float(np.mean(keras.ops.convert_to_numpy(loss(targets, predicted))))}
    right = _right(str(getattr(loss, "name", getattr(loss, "__name__", ""))), targets, predicted)
    return figures if right is None else figures | {"accuracy": float(np.mean(right))}


def _right(loss: str, targets: NDArray[Any], predicted: NDArray[np.float32]) -> NDArray[np.bool_] | None:
    """Which predictions are correct; None if the loss isn't a classification loss."""
    if loss == "categorical_crossentropy":
        return np.asarray(predicted.argmax(-1) == targets.argmax(-1))
    if loss == "sparse_categorical_crossentropy":
        return np.asarray(predicted.argmax(-1) == targets)
    if loss == "binary_crossentropy":
        return np.asarray((predicted.reshape(targets.shape) > 0.5) == (targets > 0.5))
    return None


MAX_BLOCKS = 20
MIN_BLOCKS = 5  # with fewer blocks, their scatter is unknown
CONFIDENCE = 0.999


@dataclass(frozen=True)
class Margin:
    """`by`: the mean error of the reference predictor minus the mean error of the model."""

    baseline: str
    by: Interval
    blocks: int

    def to_json(self) -> dict[str, JsonValue]:
        figures: dict[str, JsonValue] = {"by": self.by.value, "low": self.by.low, "high": self.by.high}
        return figures | ({"blocks": self.blocks} if self.by.reason is None else {"reason": self.by.reason})


def margins(
    model_errors: NDArray[np.float64], baselines: Mapping[str, NDArray[np.float64]], shortest: int
) -> list[Margin]:
    """The margin over each reference predictor. Error arrays have the shape (values,), in the order of the data.

    There are up to 20 blocks, each with at least `shortest` values. Fewer than 5 blocks give no interval.
    """
    count = min(MAX_BLOCKS, len(model_errors) // shortest)
    return [
        Margin(name, _interval(errors - model_errors, count, shortest), count) for name, errors in baselines.items()
    ]


def _interval(better: NDArray[np.float64], count: int, shortest: int) -> Interval:
    if count < MIN_BLOCKS:
        reason = f"{len(better)} held-out values are too few for {MIN_BLOCKS} blocks of {shortest}"
        return Interval(float(better.mean()), reason=reason)
    return mean_interval([float(block.mean()) for block in np.array_split(better, count)], CONFIDENCE)
