"""Compile Keras training steps on TensorFlow into graphs, on resident data and on batches from the host.

Plain `model.fit` sometimes ran whole epochs at half speed with an idle processor; this loop never did. Both loops run
Keras' `train_step`, so they do the same work: gather, dropout, loss, gradients, optimiser, metrics. Batches have a
fixed size, so that TensorFlow chooses the kernels for static shapes once. Each replica gathers its share of the batch
on its device; the optimiser sums the gradients, as in Keras' `fit`.

FLOP are TensorFlow's own count of the products in a traced graph, for every iteration of a loop.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import Dataset, divisible_size, full_batch
from dyno.errors import RunFailed

_PRODUCTS = frozenset(
    {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
)
# Products that TensorFlow can't count. The count of a graph with such a product would be too low.
_OPAQUE = ("Cudnn", "Xla", "Conv3D", "DepthwiseConv2dNative", "Quantized", "Uniform", "SparseMatMul")
_CACHE_UPDATE = "XlaDynamicUpdateSlice"  # Keras' `slice_update`, also without XLA
_LOOPS = frozenset({"While", "StatelessWhile"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}


def counted_flops(graph: Any, rounds: int | None = None) -> float | None:
    """FLOP of the products of one execution, multiply-add = 2. None if they can't be counted.

    A loop's number of iterations comes from its condition, which compares a counter with a constant. If it compares
    several counters, the smallest number applies. `rounds`: iterations of outermost loops without such a condition.
    """
    total = 0.0
    for operation in graph.get_operations():
        flops = _of_operation(graph, operation, rounds)
        if flops is None:
            return None
        total += flops
    return total


def _of_operation(graph: Any, operation: Any, rounds: int | None) -> float | None:
    kind = operation.type
    if kind in _PRODUCTS:
        return _of_product(graph, operation)
    if kind == "Einsum":
        return _of_einsum(operation)
    if kind == "DepthwiseConv2dNative":
        return _of_depthwise(operation)
    if kind.startswith(_OPAQUE) and kind != _CACHE_UPDATE:
        return None
    if kind in _CALLS:
        return counted_flops(_inner(graph, operation, "f"), rounds)
    if kind in _LOOPS:
        return _of_loop(graph, operation, rounds)
    if kind in _BRANCHES:
        return _most(counted_flops(_inner(graph, operation, name), rounds) for name in _BRANCHES[kind])
    return 0.0


def _of_product(graph: Any, operation: Any) -> float | None:
    from tensorflow.python.framework import ops
    from tensorflow.python.util import deprecation

    try:
        with deprecation.silence():  # TensorFlow's own call of a deprecated function would appear in each job's log
            value = ops.get_stats_for_node_def(graph, operation.node_def, "flops").value
    except (AssertionError, TypeError, ValueError):  # a shape that is unknown before the graph runs
        return None
    return None if value is None else float(value)


def _of_einsum(operation: Any) -> float | None:
    """A product of two operands has a multiply-add for each combination of their indices."""
    operands = operation.get_attr("equation").decode().split("->")[0].split(",")
    sizes: dict[str, int | None] = {}
    for indices, tensor in zip(operands, operation.inputs, strict=True):
        if "." in indices or tensor.shape.rank is None:
            return None
        sizes |= zip(indices, tensor.shape, strict=True)
    known = [size for size in sizes.values() if size is not None]
    return 2.0 * math.prod(known) if len(operands) == 2 and len(known) == len(sizes) else None


def _of_depthwise(operation: Any) -> float | None:
    """Each output is a sum over the height and width of the filter."""
    sizes = [*operation.inputs[1].shape[:2], *operation.outputs[0].shape]
    return None if None in sizes else 2.0 * math.prod(sizes)


def _of_loop(graph: Any, loop: Any, rounds: int | None) -> float | None:
    body = counted_flops(_inner(graph, loop, "body"))
    if body == 0.0 or body is None:
        return body
    times = _rounds(graph, loop)
    times = rounds if times is None else times
    return None if times is None else times * body


def _rounds(graph: Any, loop: Any) -> int | None:
    """The maximum number of iterations, from the counters in the loop's condition; None if unknown."""
    condition = _inner(graph, loop, "cond")
    positions = {tensor.name: position for position, tensor in enumerate(condition.inputs)}
    bounds = []
    for compared in condition.get_operations():
        if compared.type == "Less":
            first, end = (_value(graph, loop, positions, tensor) for tensor in compared.inputs)
            if first is not None and end is not None:
                bounds.append(max(0, end - first))
    return min(bounds, default=None)


def _value(graph: Any, loop: Any, positions: dict[str, int], tensor: Any) -> int | None:
    """The value of an integer in a loop's condition when the loop starts; None if unknown."""
    from tensorflow.python.framework import tensor_util

    outside = loop.inputs[positions[tensor.name]] if tensor.name in positions else tensor
    if outside.op.type in _LOOPS and outside.value_index == 0:  # the count of a forward loop, in its gradients' loop
        return _rounds(graph, outside.op)
    value = tensor_util.constant_value(outside) if outside.dtype.is_integer else None
    return None if value is None else int(value)


def _inner(graph: Any, operation: Any, attribute: str) -> Any:
    return graph._get_function(operation.get_attr(attribute).name).graph


def _most(counts: Iterator[float | None]) -> float | None:
    values = list(counts)
    return None if None in values else max(count for count in values if count is not None)


Graph = Callable[..., Any]


class ResidentDataset:
    """The samples in the memory of every device in use. Virtual CPU devices share one copy."""

    def __init__(self, tf: Any, strategy: Any, samples: Dataset) -> None:
        self._tf, self._window = tf, samples.window
        starts = np.zeros(0, np.int32) if samples.starts is None else samples.starts
        replicas, accelerated = strategy.num_replicas_in_sync, bool(tf.config.list_logical_devices("GPU"))
        kept = [kept_as(array, accelerated=accelerated) for array in (samples.inputs, samples.targets, starts)]
        self.tensors = tuple(per_replica(tf, strategy, [array] * replicas) for array in kept)

    def batch(self, chosen: Any, inputs: Any, targets: Any, starts: Any) -> tuple[Any, Any]:
        """The rows (size, …) or windows (size, window, …) of the samples with the indices `chosen`."""
        tf = self._tf
        if self._window is not None:
            chosen = tf.gather(starts, chosen)[:, tf.newaxis] + tf.range(self._window, dtype=starts.dtype)
        return tf.gather(inputs, chosen), tf.gather(targets, chosen)


def kept_as(values: NDArray[Any], *, accelerated: bool) -> NDArray[Any]:
    """Convert int32 to int64 if there is a GPU: TensorFlow keeps int32 in host memory and would copy it every step."""
    return values.astype(np.int64) if accelerated and values.dtype == np.int32 else values


def per_replica(tf: Any, strategy: Any, values: Sequence[Any]) -> Any:
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

    def __init__(self, tf: Any, strategy: Any, model: Any, samples: Dataset) -> None:
        if strategy.num_replicas_in_sync > 1 and model.jit_compile:
            detail = "TensorFlow's XLA can't compile a step over several replicas: set jit_compile to false or auto"
            raise RunFailed("unsupported", "jit_over_replicas", detail)
        self._tf, self._strategy, self._count = tf, strategy, len(samples)
        self._data = ResidentDataset(tf, strategy, samples)
        self._train_step = model.train_step
        if strategy.num_replicas_in_sync == 1:  # replicas synchronise in the optimiser, which fails in a nested graph
            # A nested graph helps without XLA too: in the outer graph, recurrent layers sometimes took 25 % longer.
            self._train_step = tf.function(model.train_step, jit_compile=bool(model.jit_compile), autograph=False)

    def one(self, size: int) -> Graph:
        """`step(order, first)` trains on the samples order[first : first + size] and returns the running loss."""
        return self._traced(lambda order, first: self._step(size, order, first), numbers=1)

    def several(self, size: int) -> Graph:
        """`steps(order, first, times)` makes `times` consecutive steps in one call."""
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
        # The signature fixes the number of arguments; their names don't matter.
        traced: Graph = tf.function(function, input_signature=signature, autograph=False).get_concrete_function()
        return traced

    def _step(self, size: int, order: Any, first: Any) -> Any:
        tf, strategy = self._tf, self._strategy
        replicas = strategy.num_replicas_in_sync
        share = size // replicas
        shares = [tf.slice(order, [first + share * replica], [share]) for replica in range(replicas)]
        losses = strategy.run(self._on_replica, (per_replica(tf, strategy, shares), *self._data.tensors))
        return tf.cast(strategy.reduce("MEAN", losses, axis=None), tf.float32)

    def _on_replica(self, chosen: Any, *data: Any) -> Any:
        return self._train_step(self._data.batch(chosen, *data))["loss"]


class Forward:
    """Inference with one graph per batch shape, reused across calls."""

    def __init__(self, tf: Any, strategy: Any, model: Any) -> None:
        self._tf, self._strategy, self._model = tf, strategy, model
        self._on_replica = self._inferred
        if model.jit_compile:
            self._on_replica = tf.function(self._inferred, jit_compile=True, autograph=False)
        self._graph = tf.function(self._all_replicas, autograph=False)

    def __call__(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        """Predict in batches of one shape. Pads the last batch with its last input and drops the padding's outputs."""
        replicas = self._strategy.num_replicas_in_sync
        size = -(-min(batch_size, len(inputs)) // replicas) * replicas
        batches = (_padded(inputs[first : first + size], size) for first in range(0, len(inputs), size))
        outputs = [self._graph(self._tf.convert_to_tensor(batch)).numpy() for batch in batches]
        return np.concatenate(outputs)[: len(inputs)].astype(np.float32, copy=False)

    def _all_replicas(self, batch: Any) -> Any:
        tf, strategy = self._tf, self._strategy
        shares = tf.split(batch, strategy.num_replicas_in_sync)
        outputs = strategy.run(self._on_replica, (per_replica(tf, strategy, shares),))
        return tf.concat(strategy.experimental_local_results(outputs), axis=0)

    def _inferred(self, batch: Any) -> Any:
        return self._model(batch, training=False)


def _padded(batch: NDArray[Any], size: int) -> NDArray[Any]:
    missing = size - len(batch)
    return np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)]) if missing else batch


class TensorFlowTrainer:
    """See `dyno.bench.frameworks.interface.Trainer`. `strategy`: the strategy in whose scope the model was made."""

    def __init__(
        self, tf: Any, strategy: Any, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int
    ) -> None:
        self.jit_compile = bool(model.jit_compile)
        self.replicas: int = strategy.num_replicas_in_sync
        self.parts = self.replicas
        self.batch_size = full_batch(batch_size, len(samples), self.replicas)
        self.steps_per_execution = steps_per_execution
        self._tf, self._model, self._count = tf, model, len(samples)
        with strategy.scope():
            # Before any graph, because a graph can't create variables on several devices.
            model._symbolic_build(data_batch=_first(samples))
        graphs = StepGraphs(tf, strategy, model, samples)
        self._one, self._several = cache(graphs.one), cache(graphs.several)
        self._forward = Forward(tf, strategy, model)
        self._generator = tf.random.Generator.from_seed(seed)
        self._next = 0
        self.shuffle()

    def compile(self) -> None:
        graph, first = self._full(), self._next
        if self.jit_compile:
            with without_effect(self._model):
                self._call(graph, 1).numpy()
            self._next = first

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
            batches_left = (self._count - self._next) // self.batch_size
            times = min(count, batches_left, self.steps_per_execution)
            loss = self._call(graph, times)
            count -= times
        return float(loss.numpy()) if loss is not None else float("nan")

    def tail(self) -> float:
        size = divisible_size(self._count - self._next, self.replicas)
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
        """Do nothing: the graph trains the Keras model's own variables."""

    def refresh(self) -> None:
        """Do nothing, for the reason in `sync`."""

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
        """Metrics over all replicas. A metric with several values (for example one per class) counts as their mean."""
        return {name: float(np.mean(value)) for name, value in self._model.get_metrics_result().items()}


@contextmanager
def without_effect(model: Any) -> Iterator[None]:
    """Undo the changes that the block makes to the variables of the model, its optimiser and its metrics.

    TensorFlow's XLA compiles a function only when it runs, so compiling it in advance means executing it. The values
    are kept in host memory, because copies on the device would raise its memory peak.
    """
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    before = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def _first(samples: Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """A batch of one sample, which defines shapes and dtypes."""
    if samples.window is None:
        return samples.inputs[:1], samples.targets[:1]
    return samples.inputs[np.newaxis, : samples.window], samples.targets[np.newaxis, : samples.window]


class TensorFlowFedStep:
    """See `dyno.bench.frameworks.interface.FedStep`."""

    def __init__(self, tf: Any, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = bool(model.jit_compile)
        self._tf, self._model = tf, model
        self._signature = [tf.TensorSpec(array.shape, array.dtype) for array in (inputs, targets)]
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
        if self.jit_compile:
            with without_effect(self._model):
                self._graph(*[tf.zeros(spec.shape, spec.dtype) for spec in self._signature]).numpy()

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return self._tf.convert_to_tensor(inputs), self._tf.convert_to_tensor(targets)

    def train(self, batch: Any) -> float:
        self.compile()
        assert self._graph is not None
        return float(self._graph(*batch).numpy())

    def sync(self) -> None:
        """Do nothing: the graph trains the Keras model's own variables."""

    def counted_flops(self) -> float | None:
        return None if self._graph is None else counted_flops(self._graph.graph)  # type: ignore[attr-defined]
