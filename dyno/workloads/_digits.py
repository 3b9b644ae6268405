"""The training of `mnist_cnn`: the model, its epochs, what it gets wrong."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import mnist
from dyno.errors import RunFailed
from dyno.measure.statistics import wilson_interval
from dyno.result import Epoch, Training
from dyno.settings import Settings
from dyno.workloads.contract import BuildContext, Verification

if TYPE_CHECKING:
    from dyno.workloads.mnist_cnn import MnistCnnParams

_REPORTS_PER_EPOCH = 10
_WRONG_SHOWN = 32


def digit_model(keras: Any, params: MnistCnnParams) -> Any:
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
        optimizer=keras.optimizers.Adam(params.learning_rate),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=params.jit_compile,
    )
    return model


class DigitTraining:
    """One execution is one step on a full batch. The steps of `execute` train on and on; `complete` ends the epochs."""

    def __init__(self, params: MnistCnnParams, context: BuildContext) -> None:
        self._params = params
        self._seed = context.seed
        self._report = context.report
        with context.phase("data"):
            settings = Settings(data_dir=context.data_dir)
            data = mnist.load(settings, params.data).limited(params.train_samples, params.test_samples)
            self._data = data
            inputs, targets = _pixels(data.train_images), np.eye(mnist.CLASSES, dtype=np.float32)[data.train_labels]
        with context.phase("build"):
            self._model = digit_model(context.framework.keras, params)
            self._trainer = context.framework.trainer(
                self._model, inputs, targets, params.batch_size, seed=context.seed
            )
        self.work = float(self._trainer.batch_size)
        self._figures: dict[str, float] = {}
        self._wrong: list[dict[str, int]] = []

    def compile(self) -> None:
        self._trainer.compile()

    def execute(self, count: int) -> None:
        _finite(self._trainer.steps(count), "while it was timed")

    def complete(self, compile_s: float, first_execution_s: float) -> Training:
        """Every epoch; the first one takes in compiling and the step that was executed before."""
        count = len(self._data.train_labels)
        steps, tail = divmod(count, self._trainer.batch_size)
        epochs = [self._epoch(0, steps - 1, tail > 0, compile_s + first_execution_s)]
        for index in range(1, self._params.epochs):
            epochs.append(self._epoch(index, steps, tail > 0, 0.0))
        self._figures["first_epoch_time"] = epochs[0].time_s
        return self._evaluated(epochs)

    def verify(self) -> Verification:
        return Verification(
            details={
                "batch_size": self._trainer.batch_size,
                "jit_compile": self._trainer.jit_compile,
                "weights": int(self._model.count_params()),
                "wrong_digits": self._wrong,
            },
            amounts={"epoch": float(len(self._data.train_labels))},
            figures=self._figures,
        )

    def _epoch(self, index: int, steps: int, tail: bool, spent_s: float) -> Epoch:
        began_s = time.perf_counter()
        if index > 0:
            self._trainer.shuffle()
        place, total = f"in epoch {index + 1}", self._params.epochs
        self._report("training", index, total, "epochs")
        chunk = math.ceil(steps / _REPORTS_PER_EPOCH)
        for done in range(0, steps, chunk or 1):
            _finite(self._trainer.steps(min(chunk, steps - done)), place)
            self._report("training", index, total, "epochs")
        if tail:
            _finite(self._trainer.tail(), place)
        loss, accuracy = self._trainer.finish_epoch()
        time_s = spent_s + time.perf_counter() - began_s
        return Epoch(
            index=index, time_s=time_s, loss=_finite(loss, place), accuracy=accuracy, includes_compile=index == 0
        )

    def _evaluated(self, epochs: list[Epoch]) -> Training:
        data = self._data
        self._report("evaluation", 0, len(data.test_labels), "samples")
        predicted = self._trainer.predict(_pixels(data.test_images), self._trainer.batch_size).argmax(axis=1)
        wrong = np.flatnonzero(predicted != data.test_labels)
        self._wrong = [
            {"index": int(index), "label": int(data.test_labels[index]), "predicted": int(predicted[index])}
            for index in wrong[:_WRONG_SHOWN]
        ]
        accuracy = wilson_interval(len(predicted) - len(wrong), len(predicted))
        return Training(
            epochs=epochs,
            seed=self._seed,
            data=data.origin,
            accuracy=accuracy.value,
            accuracy_low=accuracy.low,
            accuracy_high=accuracy.high,
            wrong=len(wrong),
        )


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """0 to 1, with the one channel."""
    return (images.astype(np.float32) / np.float32(255))[..., np.newaxis]


def _finite(loss: float, place: str) -> float:
    if not math.isfinite(loss):
        raise RunFailed("benchmark", "nonfinite_loss", f"the loss became {loss} {place}")
    return loss
