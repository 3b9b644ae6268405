"""Plain Keras beside each training workload: the article's model written by hand, its data, and the time of `fit`.

Images are float32 from 0 to 1 with one-hot labels. Windows are cut before `fit` is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets import cifar10, fashion_mnist, imdb, mnist, shakespeare, weather
from dyno.settings import Settings

layers = keras.layers
Layers = Sequence[Any]
_CHARACTERS = 100  # in a window of text
_WARMUP, _AHEAD = 50, 24  # hours
_ADAM: dict[str, Any] = {"optimizer": "adam", "metrics": ["accuracy"]}


@dataclass(frozen=True)
class Data:
    """One sample a row; `kind` as in `dyno.models.result.DataOrigin`."""

    inputs: NDArray[Any]
    targets: NDArray[Any]
    kind: str

    def repeated(self, samples: int) -> Data:
        """The first `samples` rows of the data in turns: a shipped sample has fewer rows than its data set."""
        rows = np.arange(samples) % len(self.inputs)
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows])


@dataclass(frozen=True)
class Plain:
    """A workload in plain Keras.

    `make(jit_compile)` returns a compiled model with fresh weights. `load(samples)` returns `samples` training samples.
    """

    make: Callable[[bool], Any]
    load: Callable[[int], Data]


def epochs_s(model: Any, data: Data, batch_size: int, epochs: int = 1) -> list[float]:
    """The epochs of one call of `fit`, which shuffles by default. A model's first epoch includes compiling it."""
    begin_s, end_s = list[float](), list[float]()
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: begin_s.append(time.perf_counter()),
        on_epoch_end=lambda epoch, logs: end_s.append(time.perf_counter()),
    )
    model.fit(data.inputs, data.targets, batch_size=batch_size, epochs=epochs, verbose=0, callbacks=[clock])
    return [end - begin for begin, end in zip(begin_s, end_s, strict=True)]


def _sequential(
    shape: tuple[int, ...], body: Callable[[], Layers], loss: Any, jit: bool, dtype: str = "float32", **settings: Any
) -> Any:
    model = keras.Sequential([keras.Input(shape, dtype=dtype), *body()])
    model.compile(loss=loss, jit_compile=jit, **settings)
    return model


def _classifier(body: Callable[[], Layers], data_set: ModuleType, side: int = 28, channels: int = 1) -> Plain:
    shape, loss = (side, side, channels), "categorical_crossentropy"
    return Plain(partial(_sequential, shape, body, loss, **_ADAM), partial(_images, data_set))


def _images(data_set: ModuleType, samples: int) -> Data:
    data = data_set.load(Settings())
    images = data.train_images[:samples].astype(np.float32) / np.float32(255)
    return Data(images, np.eye(10, dtype=np.float32)[data.train_labels[:samples]], data.origin.kind)


def _conv(filters: int, kernel: int, activation: str = "relu", padding: str = "same") -> Any:
    return layers.Conv2D(filters, kernel, padding=padding, activation=activation)


def _pooled(dropout: float) -> Layers:
    return layers.MaxPooling2D(2), layers.Dropout(dropout)


def _top(units: int, activation: str = "relu") -> Layers:
    hidden = layers.Dense(units, activation=activation)
    return layers.Flatten(), hidden, layers.Dropout(0.5), layers.Dense(10, activation="softmax")


def _digits() -> Layers:
    return [_conv(64, 2), *_pooled(0.3), _conv(32, 2), *_pooled(0.3), *_top(256)]


def _clothes() -> Layers:
    blocks = ([layers.BatchNormalization(), _conv(filters, 5, "elu"), *_pooled(0.25)] for filters in (64, 128, 256))
    return [*(layer for block in blocks for layer in block), *_top(256, "elu")]


def _photographs() -> Layers:
    first = [layers.BatchNormalization(), _conv(32, 3), _conv(32, 3), *_pooled(0.25)]
    second = [layers.BatchNormalization(), _conv(64, 3), _conv(64, 3, padding="valid"), *_pooled(0.25)]
    return [*first, *second, *_top(512)]


def _resnet50(image_size: int) -> Plain:
    def make(jit: bool) -> Any:
        model = keras.applications.ResNet50(weights=None, input_shape=(image_size, image_size, 3), classes=1000)
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", jit_compile=jit)
        return model

    def load(samples: int) -> Data:
        random = np.random.default_rng(0)
        images = random.uniform(-1, 1, (samples, image_size, image_size, 3)).astype(np.float32)
        return Data(images, random.integers(0, 1000, samples, dtype=np.int32), "synthetic")

    return Plain(make, load)


def _imdb_lstm() -> Plain:
    def body() -> Layers:
        return layers.Embedding(15_000, 32), layers.LSTM(100), layers.Dense(1, activation="sigmoid")

    def load(samples: int) -> Data:
        data = imdb.load(Settings())
        labels = data.train_labels[:samples, np.newaxis].astype(np.float32)
        return Data(data.train[:samples], labels, data.origin.kind)

    return Plain(partial(_sequential, (250,), body, "binary_crossentropy", dtype="int32", **_ADAM), load)


def _weather_gru(window: int) -> Plain:
    def body() -> Layers:
        return layers.GRU(512, return_sequences=True), layers.Dense(3, activation="sigmoid")

    def loss(true: Any, predicted: Any) -> Any:
        return keras.ops.mean(keras.ops.square(true[:, _WARMUP:] - predicted[:, _WARMUP:]))

    def load(samples: int) -> Data:
        """Windows of the training hours, in units of their range. Targets: the first station's signals a day later."""
        data = weather.load(Settings())
        known = data.values[: data.origin.train_samples]
        scaled = (known - known.min(axis=0)) / np.ptp(known, axis=0)
        station = data.signals[0].split()[0]
        forecast = [data.signals.index(f"{station} {quantity}") for quantity in ("temp", "wind_speed", "pressure")]
        starts = np.random.default_rng(0).integers(0, len(known) - window - _AHEAD, samples)
        inputs = np.stack([scaled[start : start + window] for start in starts])
        targets = np.stack([scaled[start + _AHEAD : start + _AHEAD + window, forecast] for start in starts])
        return Data(inputs, targets, data.origin.kind)

    make = lambda jit: _sequential((window, 20), body, loss, jit, optimizer=keras.optimizers.RMSprop(1e-3))  # noqa: E731
    return Plain(make, load)


def _shakespeare_lstm() -> Plain:
    def body() -> Layers:
        recurrent = [layers.LSTM(512, return_sequences=True) for _ in range(2)]
        return layers.Embedding(256, 512), *recurrent, layers.Dense(256, activation="softmax")

    def make(jit: bool) -> Any:
        settings = {"optimizer": keras.optimizers.RMSprop(1e-2), "metrics": ["accuracy"]}
        return _sequential((_CHARACTERS,), body, "sparse_categorical_crossentropy", jit, "int32", **settings)

    def load(samples: int) -> Data:
        """Windows that begin anywhere in the training part; each character's target is the next one."""
        data = shakespeare.load(Settings())
        ids = data.ids[: data.train_count].astype(np.int32)
        starts = np.random.default_rng(0).integers(0, len(ids) - _CHARACTERS - 1, samples)
        rows = starts[:, np.newaxis] + np.arange(_CHARACTERS)
        return Data(ids[rows], ids[rows + 1], data.origin.kind)

    return Plain(make, load)


PLAIN: dict[str, Callable[..., Plain]] = {
    "mnist_cnn": lambda: _classifier(_digits, mnist),
    "fashion_mnist_cnn": lambda: _classifier(_clothes, fashion_mnist),
    "cifar10_cnn": lambda: _classifier(_photographs, cifar10, side=32, channels=3),
    "imdb_lstm": _imdb_lstm,
    "weather_gru": _weather_gru,
    "shakespeare_lstm": _shakespeare_lstm,
    "resnet50": _resnet50,
}
