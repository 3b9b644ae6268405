"""Plain Keras: a model as one writes it by hand, what it is trained on, and how long epochs of its `fit` take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from numpy.typing import NDArray


@dataclass(frozen=True)
class Data:
    """One sample a row; `kind` as in `dyno.models.result.DataOrigin`."""

    inputs: NDArray[Any]
    targets: NDArray[Any]
    kind: str


@dataclass(frozen=True)
class Plain:
    """`make(jit_compile)`: compiled, with fresh weights. `load(samples)`: so many of the training set."""

    make: Callable[[bool], keras.Model]
    load: Callable[[int], Data]


class Clock(keras.callbacks.Callback):
    """The time of every epoch, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.times_s: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.start_s = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.times_s.append(time.perf_counter() - self.start_s)


def epochs_s(model: keras.Model, data: Data, batch_size: int, epochs: int = 1) -> list[float]:
    """Of one call of `fit`, shuffled as it does by itself. The very first epoch of a model takes in compiling it."""
    clock = Clock()
    model.fit(data.inputs, data.targets, batch_size=batch_size, epochs=epochs, verbose=0, callbacks=[clock])
    return clock.times_s
