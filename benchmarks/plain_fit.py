"""Plain Keras: the same model, data, shuffle, dropout and metrics through `model.fit`; prints epoch times as JSON."""

from __future__ import annotations

import json
import sys
import time

import keras
import numpy as np
from numpy.typing import NDArray

from dyno.datasets import mnist
from dyno.settings import Settings


def model() -> keras.Model:
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(64, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.3),
            layers.Conv2D(32, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    network.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
    return network


class Clock(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.times_s: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.start_s = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.times_s.append(time.perf_counter() - self.start_s)


def digits(train_samples: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Images of shape (train_samples, 28, 28, 1) in 0 to 1 and one-hot labels of shape (train_samples, 10)."""
    data = mnist.load(Settings(), "auto")
    images = data.train_images[:train_samples].astype(np.float32) / np.float32(255)
    return images, np.eye(10, dtype=np.float32)[data.train_labels[:train_samples]]


def main(train_samples: int, batch_size: int, epochs: int) -> None:
    images, labels = digits(train_samples)
    clock = Clock()
    model().fit(images, labels, batch_size=batch_size, epochs=epochs, verbose=0, callbacks=[clock])
    print(json.dumps({"samples": len(images), "times_s": clock.times_s}))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
