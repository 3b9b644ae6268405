"""The optimisers that a training can be asked for, with Keras' own defaults but for the learning rate."""

from __future__ import annotations

from typing import Any, Literal

Optimizer = Literal["adam", "rmsprop", "sgd"]
DESCRIPTION = "sgd: with a momentum of 0.9"


def made(keras: Any, optimizer: Optimizer, learning_rate: float) -> Any:
    """A new one, without any state."""
    if optimizer == "sgd":
        return keras.optimizers.SGD(learning_rate, momentum=0.9)
    return {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}[optimizer](learning_rate)
