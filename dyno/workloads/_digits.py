"""The network of `mnist_cnn`, on the digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyno.datasets import idx_images, mnist
from dyno.frameworks.contract import JitCompile
from dyno.workloads._images import Convolution, Network

FILTERS, DENSE_UNITS, DROPOUT_RATES = (64, 32), 256, (0.3, 0.3, 0.5)  # the reference's


def _layers(keras: Any, filters: Sequence[int], dense_units: int, dropout_rates: Sequence[float]) -> Sequence[Any]:
    layers = keras.layers
    return [
        layers.Conv2D(filters[0], 2, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout_rates[0]),
        layers.Conv2D(filters[1], 2, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout_rates[1]),
        layers.Flatten(),
        layers.Dense(dense_units, activation="relu"),
        layers.Dropout(dropout_rates[2]),
        layers.Dense(mnist.CLASSES, activation="softmax"),
    ]


def digits(
    filters: Sequence[int] = FILTERS, dense_units: int = DENSE_UNITS, dropout_rates: Sequence[float] = DROPOUT_RATES
) -> Network:
    first, second = filters
    return Network(
        load=mnist.load,
        shape=(28, 28, 1),
        samples=idx_images.samples,
        make=lambda keras: _layers(keras, filters, dense_units, dropout_rates),
        convolutions=(Convolution(28, 2, (1, first)), Convolution(14, 2, (first, second))),
        dense=((7 * 7 * second, dense_units), (dense_units, mnist.CLASSES)),
        step_bytes_per_value=21,  # 1.2 MB a sample; measured: 0.8 MB on a CPU from batch 128 to 512
        noun="digits",
    )


DIGITS = digits()


def digit_model(keras: Any, learning_rate: float, jit_compile: JitCompile) -> Any:
    """The network, compiled for training. Takes images as they are stored: uint8, 0 to 255."""
    return DIGITS.model(keras, learning_rate, jit_compile)
