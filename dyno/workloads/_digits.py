"""The network of `mnist_cnn`, on the digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyno.datasets import idx_images, mnist
from dyno.frameworks.contract import JitCompile
from dyno.workloads._images import Convolution, Network


def _layers(keras: Any) -> Sequence[Any]:
    layers = keras.layers
    return [
        layers.Conv2D(64, 2, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.3),
        layers.Conv2D(32, 2, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.3),
        layers.Flatten(),
        layers.Dense(256, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(mnist.CLASSES, activation="softmax"),
    ]


DIGITS = Network(
    load=mnist.load,
    shape=(28, 28, 1),
    samples=idx_images.samples,
    make=_layers,
    convolutions=(Convolution(28, 2, (1, 64)), Convolution(14, 2, (64, 32))),
    dense=((7 * 7 * 32, 256), (256, mnist.CLASSES)),
    step_bytes_per_sample=1_200_000,  # measured: 0.8 MB on a CPU from batch 128 to 512
    noun="digits",
)


def digit_model(keras: Any, learning_rate: float, jit_compile: JitCompile) -> Any:
    """The network, compiled for training. Takes images as they are stored: uint8, 0 to 255."""
    return DIGITS.model(keras, learning_rate, jit_compile)
