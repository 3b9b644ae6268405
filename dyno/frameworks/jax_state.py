"""A Keras model's variables as JAX' compiled steps hand them on: values in, new values out.

Each call takes over the buffers of the state before it. The Keras model's variables then name buffers that are gone:
reading one before `bring_back` raises, it never gives an old value.
"""

from __future__ import annotations

from typing import Any

State = tuple[list[Any], list[Any], list[Any], list[Any]]  # trainable, not trainable, the optimiser's, the metrics'


def variables_of(model: Any) -> State:
    """The Keras variables themselves."""
    optimizer = model.optimizer.variables
    return model.trainable_variables, model.non_trainable_variables, optimizer, model.metrics_variables


def values_of(model: Any) -> State:
    """What they hold now."""
    trainable, fixed, optimizer, metrics = ([each.value for each in variables] for variables in variables_of(model))
    return trainable, fixed, optimizer, metrics


def bring_back(model: Any, state: State) -> None:
    """Give the model's variables what was trained."""
    for variables, values in zip(variables_of(model), state, strict=True):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
