"""A Keras model's outputs on TensorFlow, for any number of inputs over any number of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dyno.frameworks.tensorflow_step import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Forward:
    """One graph per shape of a batch, kept from call to call."""

    def __init__(self, tf: Any, strategy: Any, model: Any) -> None:
        self._tf, self._strategy, self._model = tf, strategy, model
        self._on_replica = self._inferred
        if model.jit_compile:
            self._on_replica = tf.function(self._inferred, jit_compile=True, autograph=False)
        self._graph = tf.function(self._all_replicas, autograph=False)

    def __call__(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        """Batches of one shape, the last one padded with its last input; what the padding gives is dropped."""
        replicas = self._strategy.num_replicas_in_sync
        size = -(-min(batch_size, len(inputs)) // replicas) * replicas
        batches = (_padded(inputs[first : first + size], size) for first in range(0, len(inputs), size))
        outputs = [self._graph(self._tf.convert_to_tensor(batch)).numpy() for batch in batches]
        return np.concatenate(outputs)[: len(inputs)].astype(np.float32, copy=False)

    def _all_replicas(self, batch: Any) -> Any:
        tf, strategy = self._tf, self._strategy
        shares = tf.split(batch, strategy.num_replicas_in_sync)
        outputs = strategy.run(self._on_replica, (spread(tf, strategy, shares),))
        return tf.concat(strategy.experimental_local_results(outputs), axis=0)

    def _inferred(self, batch: Any) -> Any:
        return self._model(batch, training=False)


def _padded(batch: NDArray[Any], size: int) -> NDArray[Any]:
    missing = size - len(batch)
    return np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)]) if missing else batch
