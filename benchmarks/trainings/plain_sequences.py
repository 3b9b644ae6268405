"""The recurrent networks, written by hand as in the articles. Windows are cut beforehand: `fit` is spared that."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from benchmarks.trainings.plain import Data, Plain
from dyno.datasets import imdb, shakespeare, weather
from dyno.settings import Settings

layers = keras.layers

_CHARACTERS = 100  # of a window of text
_WARMUP, _AHEAD = 50, 24  # hours


def imdb_lstm() -> Plain:
    return Plain(_review_model, _reviews)


def weather_gru(window: int) -> Plain:
    return Plain(lambda jit: _weather_model(window, jit), lambda samples: _weather(samples, window))


def shakespeare_lstm() -> Plain:
    return Plain(_character_model, _text)


def _review_model(jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((250,), dtype="int32"),
            layers.Embedding(15_000, 32),
            layers.LSTM(100),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"], jit_compile=jit_compile)
    return model


def _weather_model(window: int, jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((window, 20)),
            layers.GRU(512, return_sequences=True),
            layers.Dense(3, activation="sigmoid"),
        ]
    )
    model.compile(optimizer=keras.optimizers.RMSprop(1e-3), loss=_mse_after_warmup, jit_compile=jit_compile)
    return model


def _mse_after_warmup(true: Any, predicted: Any) -> Any:
    return keras.ops.mean(keras.ops.square(true[:, _WARMUP:] - predicted[:, _WARMUP:]))


def _character_model(jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((_CHARACTERS,), dtype="int32"),
            layers.Embedding(256, 512),
            layers.LSTM(512, return_sequences=True),
            layers.LSTM(512, return_sequences=True),
            layers.Dense(256, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-2),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def _reviews(samples: int) -> Data:
    data = imdb.load(Settings())
    labels = data.train_labels[:samples, np.newaxis].astype(np.float32)
    return Data(data.train[:samples], labels, data.origin.kind)


def _weather(samples: int, window: int) -> Data:
    """Of the training hours, in units of their range; the first station's three signals a day later."""
    data = weather.load(Settings())
    known = data.values[: data.origin.train_samples]
    scaled = (known - known.min(axis=0)) / np.ptp(known, axis=0)
    station = data.signals[0].split()[0]
    forecast = [data.signals.index(f"{station} {quantity}") for quantity in ("temp", "wind_speed", "pressure")]
    starts = np.random.default_rng(0).integers(0, len(known) - window - _AHEAD, samples)
    inputs = np.stack([scaled[start : start + window] for start in starts])
    targets = np.stack([scaled[start + _AHEAD : start + _AHEAD + window, forecast] for start in starts])
    return Data(inputs, targets, data.origin.kind)


def _text(samples: int) -> Data:
    """Windows that begin anywhere in the training part; each character's target is the next one."""
    data = shakespeare.load(Settings())
    ids = data.ids[: data.train_count].astype(np.int32)
    starts = np.random.default_rng(0).integers(0, len(ids) - _CHARACTERS - 1, samples)
    rows = starts[:, np.newaxis] + np.arange(_CHARACTERS)
    return Data(ids[rows], ids[rows + 1], data.origin.kind)
