"""A training step for Keras on TensorFlow that takes each batch from the host: one compiled graph a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dyno.frameworks.tensorflow_count import counted_flops

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TensorFlowFedStep:
    """See `dyno.frameworks.contract.FedStep`."""

    def __init__(self, tf: Any, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = bool(model.jit_compile)
        self._tf, self._model = tf, model
        self._signature = [tf.TensorSpec(each.shape, each.dtype) for each in (inputs, targets)]
        self._graph: Callable[..., Any] | None = None
        model._symbolic_build(data_batch=(inputs[:1], targets[:1]))

    def compile(self) -> None:
        if self._graph is not None:
            return
        tf = self._tf
        step = tf.function(self._model.train_step, jit_compile=self.jit_compile, autograph=False)

        def fed(inputs: Any, targets: Any) -> Any:
            return tf.cast(step((inputs, targets))["loss"], tf.float32)

        self._graph = tf.function(fed, input_signature=self._signature, autograph=False).get_concrete_function()

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return self._tf.convert_to_tensor(inputs), self._tf.convert_to_tensor(targets)

    def train(self, batch: Any) -> float:
        self.compile()
        assert self._graph is not None
        return float(self._graph(*batch).numpy())

    def sync(self) -> None:
        """Nothing: the graph trains the Keras model's own variables."""

    def counted_flops(self) -> float | None:
        return None if self._graph is None else counted_flops(self._graph.graph)  # type: ignore[attr-defined]
