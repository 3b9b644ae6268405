"""A training loop of its own for Keras on TensorFlow: one compiled graph a call, data on the device.

Plain `model.fit` was seen to run whole epochs at half speed with the processor idle; this loop was not. The step
itself is Keras' `train_step`, so that both do the same work: gather, dropout, loss, gradients, optimiser, metrics.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dyno.frameworks._even import even, full_batch
from dyno.frameworks.tensorflow_count import counted_flops
from dyno.frameworks.tensorflow_predict import Forward
from dyno.frameworks.tensorflow_step import Graph, StepGraphs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dyno.frameworks.contract import Samples


class TensorFlowTrainer:
    """See `dyno.frameworks.contract.Trainer`. `strategy`: the one under whose scope the model was made."""

    def __init__(
        self,
        tf: Any,
        strategy: Any,
        model: Any,
        samples: Samples,
        batch_size: int,
        seed: int,
        steps_per_execution: int,
    ) -> None:
        self.jit_compile = bool(model.jit_compile)
        self.replicas: int = strategy.num_replicas_in_sync
        self.parts = self.replicas
        self.batch_size = full_batch(batch_size, len(samples), self.replicas)
        self.steps_per_execution = steps_per_execution
        self._tf, self._model, self._count = tf, model, len(samples)
        with strategy.scope():
            # Before any graph: a variable can't be made on several devices from inside one.
            model._symbolic_build(data_batch=_first(samples))
        graphs = StepGraphs(tf, strategy, model, samples)
        self._one, self._several = cache(graphs.one), cache(graphs.several)
        self._forward = Forward(tf, strategy, model)
        self._generator = tf.random.Generator.from_seed(seed)
        self.shuffle()

    def compile(self) -> None:
        self._full()

    def shuffle(self) -> None:
        draw = self._generator.uniform((self._count,))
        self._order = self._tf.argsort(draw)
        self._next = 0

    def next_batch(self) -> NDArray[Any]:
        self._shuffle_where_used_up()
        chosen: NDArray[Any] = self._order[self._next : self._next + self.batch_size].numpy()
        return chosen

    def steps(self, count: int) -> float:
        graph, loss = self._full(), None
        while count > 0:
            self._shuffle_where_used_up()
            left = (self._count - self._next) // self.batch_size
            times = min(count, left, self.steps_per_execution)
            loss = self._call(graph, times)
            count -= times
        return float(loss.numpy()) if loss is not None else float("nan")

    def tail(self) -> float:
        size = even(self._count - self._next, self.replicas)
        if size == 0:
            return self._figures()["loss"]
        loss = self._one(size)(self._order, self._tf.constant(self._next))
        self._next += size
        return float(loss.numpy())

    def finish_epoch(self) -> dict[str, float]:
        figures = self._figures()
        self._model.reset_metrics()
        return figures

    def sync(self) -> None:
        """Nothing: the graph trains the Keras model's own variables."""

    def refresh(self) -> None:
        """Nothing, for the same reason."""

    def counted_flops(self) -> float | None:
        return counted_flops(self._full().graph, self.steps_per_execution)  # type: ignore[attr-defined]

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        return self._forward(inputs, batch_size)

    def _shuffle_where_used_up(self) -> None:
        if self._next + self.batch_size > self._count:
            self.shuffle()

    def _full(self) -> Graph:
        return (self._one if self.steps_per_execution == 1 else self._several)(self.batch_size)

    def _call(self, graph: Graph, times: int) -> Any:
        first = self._tf.constant(self._next)
        self._next += times * self.batch_size
        if self.steps_per_execution == 1:
            return graph(self._order, first)
        return graph(self._order, first, self._tf.constant(times))

    def _figures(self) -> dict[str, float]:
        """Over all replicas. A metric of several values (one a class, say) counts as their mean."""
        return {name: float(np.mean(value)) for name, value in self._model.get_metrics_result().items()}


def _first(samples: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
    """A batch of one sample: what it looks like is all that counts."""
    if samples.window is None:
        return samples.inputs[:1], samples.targets[:1]
    return samples.inputs[np.newaxis, : samples.window], samples.targets[np.newaxis, : samples.window]
