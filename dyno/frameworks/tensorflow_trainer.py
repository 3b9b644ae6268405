"""A training loop of its own for Keras on TensorFlow: one compiled graph a call, data on the device.

Plain `model.fit` was seen to run whole epochs at half speed with the processor idle; this loop was not. The step
itself is Keras' `train_step`, so that both do the same work: gather, dropout, loss, gradients, optimiser, metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dyno.frameworks.contract import Samples


class TensorFlowTrainer:
    """See `dyno.frameworks.contract.Trainer`."""

    def __init__(
        self,
        tf: Any,
        model: Any,
        samples: Samples,
        batch_size: int,
        seed: int,
        steps_per_execution: int,
    ) -> None:
        self.jit_compile = bool(model.jit_compile)
        self.batch_size = min(batch_size, len(samples))
        self.replicas = 1
        self.steps_per_execution = steps_per_execution
        self._tf = tf
        self._model = model
        self._samples = samples
        self._inputs = tf.convert_to_tensor(samples.inputs)
        self._targets = tf.convert_to_tensor(samples.targets)
        self._count = len(samples)
        self._generator = tf.random.Generator.from_seed(seed)
        self._compiled: dict[int, Callable[..., Any]] = {}
        self.shuffle()

    def compile(self) -> None:
        self._step_of(self.batch_size)

    def shuffle(self) -> None:
        draw = self._generator.uniform((self._count,))
        self._order = self._tf.argsort(draw)
        self._next = 0

    def steps(self, count: int) -> float:
        step = self._step_of(self.batch_size)
        loss = None
        for _ in range(count):
            if self._next + self.batch_size > self._count:
                self.shuffle()
            loss = step(self._order, self._tf.constant(self._next))
            self._next += self.batch_size
        return float(loss.numpy()) if loss is not None else float("nan")

    def tail(self) -> float:
        size = self._count - self._next
        loss = self._step_of(size)(self._order, self._tf.constant(self._next))
        self._next += size
        return float(loss.numpy())

    def finish_epoch(self) -> dict[str, float]:
        figures = {name: float(value) for name, value in self._model.get_metrics_result().items()}
        self._model.reset_metrics()
        return figures

    def sync(self) -> None:
        """Nothing: the graph trains the Keras model's own variables."""

    def refresh(self) -> None:
        """Nothing, for the same reason."""

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        import numpy as np

        forward = self._tf.function(lambda batch: self._model(batch, training=False), reduce_retracing=True)
        starts = range(0, len(inputs), batch_size)
        return np.concatenate([forward(inputs[start : start + batch_size]).numpy() for start in starts])

    def _rows(self, chosen: Any) -> Any:
        """Of samples the rows: themselves (size,), or those of their windows (size, window)."""
        tf, samples = self._tf, self._samples
        if samples.window is None:
            return chosen
        starts = tf.gather(tf.constant(samples.starts), chosen)
        return starts[:, tf.newaxis] + tf.range(samples.window)

    def _step_of(self, size: int) -> Callable[..., Any]:
        if size not in self._compiled:
            self._compiled[size] = self._trace(size)
        return self._compiled[size]

    def _trace(self, size: int) -> Callable[..., Any]:
        """The graph of one step on a batch of a fixed size: static shapes let the kernels be chosen once."""
        tf = self._tf
        train_step = self._model.train_step
        if self.jit_compile:
            train_step = tf.function(train_step, jit_compile=True, autograph=False)

        def step(order: Any, first: Any) -> Any:
            rows = self._rows(tf.slice(order, [first], [size]))
            return train_step((tf.gather(self._inputs, rows), tf.gather(self._targets, rows)))["loss"]

        signature = [tf.TensorSpec((self._count,), tf.int32), tf.TensorSpec((), tf.int32)]
        traced: Callable[..., Any] = tf.function(
            step, input_signature=signature, autograph=False
        ).get_concrete_function()
        return traced
