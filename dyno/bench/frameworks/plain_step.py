"""Make one plain training step of a Keras model, for comparison with the compiled step.

The plain step computes the gradients operation by operation if the framework can. It uses neither the loop nor the
resident data nor the compiler of a `Trainer`. Both steps share only Keras: its layers, loss and optimiser.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]


class PlainStep:
    """A call doesn't change the model's variables. `exact`: all layers and products in float32, none in TF32.

    `gradients(inputs, targets)`: the loss, and a gradient of the current model for each trainable variable.
    `apply(gradients)`: one optimiser step with the mean of the gradients of all parts.
    """

    def __init__(
        self,
        model: Any,
        gradients: Callable[[NDArray[Any], NDArray[Any]], tuple[float, Sequence[Any]]],
        apply: Callable[[Sequence[Sequence[Any]]], None],
        *,
        exact: bool,
    ) -> None:
        self._model, self._gradients, self._apply = model, gradients, apply
        self._policies = {layer: "float32" if exact else layer.dtype_policy for layer in model._flatten_layers()}

    def __call__(
        self, inputs: NDArray[Any], targets: NDArray[Any], *, at: Arrays | None = None, parts: int = 1
    ) -> tuple[float, Arrays]:
        """(loss, trainable weights after the step). `at`: weights at which to compute the gradients.

        Computes the gradients of several `parts` of a batch separately and averages them, as replicas do.
        """
        model, before = self._model, state_of(self._model)
        policies = {layer: layer.dtype_policy for layer in self._policies}
        losses, gradients = [], []
        try:
            _put_policies(self._policies)
            for some_inputs, some_targets in zip(np.split(inputs, parts), np.split(targets, parts), strict=True):
                put_state(model, before)
                if at is not None:
                    _put(model.trainable_variables, at)
                loss, part_gradients = self._gradients(some_inputs, some_targets)
                losses.append(loss)
                gradients.append(part_gradients)
            put_state(model, before)
            self._apply(gradients)
            return float(np.mean(losses)), arrays_of(model.trainable_variables)
        finally:
            _put_policies(policies)
            put_state(model, before)


def mean_of(gradients: Sequence[Sequence[Any]]) -> list[Any]:
    """The mean gradient of each variable over the parts."""
    return [sum(parts[1:], start=parts[0]) / len(parts) for parts in zip(*gradients, strict=True)]


def state_of(model: Any) -> Arrays:
    """Copies of all variables that a step reads and changes: weights, dropout seeds, the optimiser's variables."""
    return arrays_of(_variables(model))


def put_state(model: Any, state: Arrays) -> None:
    _put(_variables(model), state)


def arrays_of(variables: Sequence[Any]) -> Arrays:
    import keras

    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def _variables(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _put(variables: Sequence[Any], values: Arrays) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _put_policies(policies: dict[Any, Any]) -> None:
    for layer, policy in policies.items():
        layer.dtype_policy = policy
