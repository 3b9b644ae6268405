"""The training of `mnist_cnn`: the model, its epochs, what it gets wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.datasets import mnist
from dyno.datasets.images import Images
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.measure.statistics import wilson_interval
from dyno.settings import Settings
from dyno.workloads._training import Outcome, Plan
from dyno.workloads.contract import BuildContext

if TYPE_CHECKING:
    from dyno.workloads.mnist_cnn import MnistCnnParams

_WRONG_SHOWN = 32


def digit_model(keras: Any, learning_rate: float, jit_compile: JitCompile) -> Any:
    """The network, compiled for training."""
    layers = keras.layers
    model = keras.Sequential(
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
            layers.Dense(mnist.CLASSES, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def plan(params: MnistCnnParams, context: BuildContext) -> Plan:
    """Train on the digits, and count those of the test set that the model gets wrong."""
    with context.phase("data"):
        settings = Settings(data_dir=context.data_dir)
        data = mnist.load(settings, params.data).limited(params.train_samples, params.test_samples)
        train = Samples(_pixels(data.train_images), np.eye(mnist.CLASSES, dtype=np.float32)[data.train_labels])
    keras = context.framework.keras
    return Plan(
        make=lambda jit_compile: digit_model(keras, params.learning_rate, jit_compile),
        train=train,
        data=data.origin,
        judge=lambda model, trainer: _judged(data, trainer, context),
    )


def _judged(data: Images, trainer: Trainer, context: BuildContext) -> Outcome:
    context.report("evaluation", 0, len(data.test_labels), "samples")
    predicted = trainer.predict(_pixels(data.test_images), trainer.batch_size).argmax(axis=1)
    wrong = np.flatnonzero(predicted != data.test_labels)
    accuracy = wilson_interval(len(predicted) - len(wrong), len(predicted))
    shown: list[JsonValue] = [
        {"index": int(index), "label": int(data.test_labels[index]), "predicted": int(predicted[index])}
        for index in wrong[:_WRONG_SHOWN]
    ]
    training = {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "wrong": len(wrong),
    }
    return Outcome(training, {"wrong_digits": shown})


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """0 to 1."""
    return images.astype(np.float32) / np.float32(255)
