"""The graph of training steps on batches of a fixed size: static shapes let the kernels be chosen once.

The step itself is Keras' own `train_step`. Over several replicas it runs on each device on a share of the batch,
gathered there; the optimiser sums the gradients, as under Keras' `fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dyno.errors import RunFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dyno.frameworks.contract import Samples

Graph = Callable[..., Any]


class Resident:
    """The samples, in the memory of every device that takes part. Virtual CPU devices share one copy."""

    def __init__(self, tf: Any, strategy: Any, samples: Samples) -> None:
        self._tf, self._window = tf, samples.window
        starts = np.zeros(0, np.int32) if samples.starts is None else samples.starts
        replicas, accelerated = strategy.num_replicas_in_sync, bool(tf.config.list_logical_devices("GPU"))
        kept = [kept_as(each, accelerated=accelerated) for each in (samples.inputs, samples.targets, starts)]
        self.tensors = tuple(spread(tf, strategy, [each] * replicas) for each in kept)

    def batch(self, chosen: Any, inputs: Any, targets: Any, starts: Any) -> tuple[Any, Any]:
        """Of the samples `chosen` by number: their rows (size, …), or those of their windows (size, window, …)."""
        tf = self._tf
        if self._window is not None:
            chosen = tf.gather(starts, chosen)[:, tf.newaxis] + tf.range(self._window, dtype=starts.dtype)
        return tf.gather(inputs, chosen), tf.gather(targets, chosen)


def kept_as(values: NDArray[Any], *, accelerated: bool) -> NDArray[Any]:
    """int64 for int32 where there is a GPU: TensorFlow keeps int32 in host memory, and would copy all at every step."""
    return values.astype(np.int64) if accelerated and values.dtype == np.int32 else values


def spread(tf: Any, strategy: Any, values: Sequence[Any]) -> Any:
    """One value for each replica, on its device."""
    if len(values) == 1:
        return tf.convert_to_tensor(values[0])
    distinct = {id(value): value for value in values}
    shared = {number: tf.convert_to_tensor(value) for number, value in distinct.items()}

    def on_its_device(context: Any) -> Any:
        replica = context.replica_id_in_sync_group
        with tf.device(strategy.extended.worker_devices[replica]):
            return tf.identity(shared[id(values[replica])])

    return strategy.experimental_distribute_values_from_function(on_its_device)


class StepGraphs:
    """Makes the graphs of one model's training over `count` samples."""

    def __init__(self, tf: Any, strategy: Any, model: Any, samples: Samples) -> None:
        if strategy.num_replicas_in_sync > 1 and model.jit_compile:
            detail = "TensorFlow's XLA compiles no step over several replicas: jit_compile must be false or auto"
            raise RunFailed("unsupported", "jit_over_replicas", detail)
        self._tf, self._strategy, self._count = tf, strategy, len(samples)
        self._data = Resident(tf, strategy, samples)
        self._train_step = model.train_step
        if strategy.num_replicas_in_sync == 1:  # several meet in the optimiser, which a nested graph can't do
            # Without XLA as well: in the outer graph recurrent layers took a quarter longer, in some of the processes.
            self._train_step = tf.function(model.train_step, jit_compile=bool(model.jit_compile), autograph=False)

    def one(self, size: int) -> Graph:
        """`step(order, first)` trains on the samples order[first : first + size] and gives the running loss."""
        return self._traced(lambda order, first: self._step(size, order, first), numbers=1)

    def several(self, size: int) -> Graph:
        """`steps(order, first, times)`: so many steps in one call, one after the other."""
        tf = self._tf

        def steps(order: Any, first: Any, times: Any) -> Any:
            return tf.while_loop(
                lambda done, loss: done < times,
                lambda done, loss: (done + 1, self._step(size, order, first + done * size)),
                (tf.constant(0), tf.constant(float("nan"))),
                parallel_iterations=1,
            )[1]

        return self._traced(steps, numbers=2)

    def _traced(self, function: Graph, numbers: int) -> Graph:
        tf = self._tf
        signature = [tf.TensorSpec((self._count,), tf.int32), *[tf.TensorSpec((), tf.int32)] * numbers]
        # The names of the arguments don't matter; how many there are does.
        traced: Graph = tf.function(function, input_signature=signature, autograph=False).get_concrete_function()
        return traced

    def _step(self, size: int, order: Any, first: Any) -> Any:
        tf, strategy = self._tf, self._strategy
        replicas = strategy.num_replicas_in_sync
        share = size // replicas
        shares = [tf.slice(order, [first + share * replica], [share]) for replica in range(replicas)]
        losses = strategy.run(self._on_replica, (spread(tf, strategy, shares), *self._data.tensors))
        return tf.cast(strategy.reduce("MEAN", losses, axis=None), tf.float32)

    def _on_replica(self, chosen: Any, *data: Any) -> Any:
        return self._train_step(self._data.batch(chosen, *data))["loss"]
