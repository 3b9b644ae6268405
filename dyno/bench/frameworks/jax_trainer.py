"""Compile Keras training steps on JAX, on resident data and on batches from the host.

Both kinds run Keras' stateless `train_step` and do the same work: gather, dropout, loss, gradients, optimiser, metrics.
XLA always compiles the step, regardless of the model's `jit_compile`.

With replicas, each device holds all samples and all weights, and each step splits its batch evenly. XLA inserts the
sums over devices. A batch normalisation therefore sees the whole batch, not one replica's part.

A step takes the values of a model's variables and returns new ones. Each call reuses the buffers of the previous state,
so the Keras model's variables refer to deleted buffers. Reading a variable before `write_back` raises an error and
never returns an old value.

FLOP are counted in the traced jaxpr, for every iteration of a loop. XLA's own `cost_analysis` counts the body of a loop
once and omits products that it passes to a library.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import Dataset, divisible_size, full_batch

State = tuple[list[Any], list[Any], list[Any], list[Any]]  # trainable, not trainable, of the optimiser, of the metrics


def variables_of(model: Any) -> State:
    """The Keras variables themselves."""
    optimizer = model.optimizer.variables
    return model.trainable_variables, model.non_trainable_variables, optimizer, model.metrics_variables


def values_of(model: Any) -> State:
    """The current values of the variables."""
    trainable, fixed, optimizer, metrics = ([variable.value for variable in group] for group in variables_of(model))
    return trainable, fixed, optimizer, metrics


def write_back(model: Any, state: State) -> None:
    """Assign the trained values to the model's variables."""
    for variables, values in zip(variables_of(model), state, strict=True):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


# Kernels that hide products. The count of a graph with such a kernel would be too low.
_OPAQUE = ("custom_call", "ffi_call", "pallas_call", "rnn", "cudnn", "ragged_dot", "scaled_matmul", "dot_product_att")


def counted_flops(jaxpr: Any, rounds: int | None = None) -> float | None:
    """FLOP of one execution, multiply-add = 2. None if they can't be counted.

    `rounds`: iterations of outermost loops whose number of iterations is unknown.
    """
    total = 0.0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        flops = _of_equation(equation, rounds)
        if flops is None:
            return None
        total += flops
    return total


def _of_equation(equation: Any, rounds: int | None) -> float | None:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _of_dot(equation)
    if name == "conv_general_dilated":
        return _of_convolution(equation)
    if name.startswith(_OPAQUE):
        return None
    if name == "while":
        return _times(rounds, counted_flops(params["body_jaxpr"]))
    if name == "cond":
        branches = [counted_flops(branch, rounds) for branch in params["branches"]]
        return None if None in branches else max(count for count in branches if count is not None)
    inner = [counted_flops(jaxpr, None if name == "scan" else rounds) for jaxpr in _jaxprs(params)]
    if None in inner:
        return None
    return float(params.get("length", 1)) * math.fsum(count for count in inner if count is not None)


def _times(rounds: int | None, body: float | None) -> float | None:
    if body == 0.0 or body is None:
        return body
    return None if rounds is None else rounds * body


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs of a call, a scan or a function with a custom derivative, without the thunks of derivatives."""
    for value in params.values():
        if hasattr(getattr(value, "jaxpr", value), "eqns"):
            yield value


def _of_dot(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, product = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    return 2.0 * float(math.prod(product) * math.prod(left[axis] for axis in contracted))


def _of_convolution(equation: Any) -> float:
    """By convention, counts products with padding, but no products with zeros that a stride inserts between inputs."""
    params, kernel = equation.params, equation.invars[1].aval.shape
    output_channels = params["dimension_numbers"].rhs_spec[0]
    per_output = math.prod(kernel) / kernel[output_channels]
    between = math.prod(params["lhs_dilation"])
    return 2.0 * float(math.prod(equation.outvars[0].aval.shape) * per_output / between)


class JaxTrainer:
    """See `dyno.bench.frameworks.interface.Trainer`. Between calls of `sync`, only its `State` has the weights."""

    def __init__(
        self,
        jax: Any,
        devices: Sequence[Any],
        model: Any,
        samples: Dataset,
        batch_size: int,
        seed: int,
        steps_per_execution: int,
    ) -> None:
        self.jit_compile = True
        self.replicas, self.parts = len(devices), 1
        self.batch_size = full_batch(batch_size, len(samples), self.replicas)
        self.steps_per_execution = steps_per_execution
        self._jax = jax
        self._model = model
        # Virtual devices share one thread pool, in which each device waits for the others' sums. Two concurrent steps
        # have deadlocked.
        self._one_at_a_time = len(devices) > 1 and devices[0].platform == "cpu"
        self._window = samples.window
        self._count = len(samples)
        mesh = jax.sharding.Mesh(np.asarray(devices), ("batch",))
        self._everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self._split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        self._data = self._put((samples.inputs, samples.targets, samples.starts))
        self._random = np.random.default_rng(seed)
        self._compiled: dict[int, Callable[..., Any]] = {}
        self._jaxprs: dict[int, Any] = {}
        self._loss: Any = float("nan")
        self._build()
        self._state = self._put(values_of(model))
        self._forward = jax.jit(self._outputs)
        self.shuffle()

    def compile(self) -> None:
        self._steps_of(self.batch_size)

    def shuffle(self) -> None:
        self._order = self._put(self._random.permutation(self._count).astype("int32"))
        self._next = 0

    def next_batch(self) -> NDArray[Any]:
        self._shuffle_where_used_up()
        return np.asarray(self._order)[self._next : self._next + self.batch_size]

    def steps(self, count: int) -> float:
        steps = self._steps_of(self.batch_size)
        while count > 0:
            self._shuffle_where_used_up()
            batches_left = (self._count - self._next) // self.batch_size
            now = min(count, batches_left, self.steps_per_execution)
            self._advance(steps, self.batch_size, now)
            count -= now
        return float(self._loss)

    def tail(self) -> float:
        size = divisible_size(self._count - self._next, self.replicas)
        if size > 0:
            self._advance(self._steps_of(size), size, 1)
        return float(self._loss)

    def finish_epoch(self) -> dict[str, float]:
        self.sync()
        # A metric with several values (for example one per class) counts as their mean.
        figures = {name: float(self._jax.numpy.mean(value)) for name, value in self._model.get_metrics_result().items()}
        self._model.reset_metrics()
        self._state = (*self._state[:3], self._put([variable.value for variable in self._model.metrics_variables]))
        return figures

    def sync(self) -> None:
        write_back(self._model, self._state)

    def refresh(self) -> None:
        """Load assigned variables. The other variables, whose buffers the last step deleted, keep their values."""
        self._state = self._put(
            tuple(
                [mine if other.is_deleted() else other for other, mine in zip(theirs, ours, strict=True)]
                for theirs, ours in zip(values_of(self._model), self._state, strict=True)
            )
        )

    def counted_flops(self) -> float | None:
        if self.batch_size not in self._jaxprs:
            return None
        return counted_flops(self._jaxprs[self.batch_size], self.steps_per_execution)

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        size = -(-min(batch_size, len(inputs)) // self.replicas) * self.replicas  # rounded up
        outputs = []
        for start in range(0, len(inputs), size):
            batch = inputs[start : start + size]
            padded = np.concatenate([batch, np.repeat(batch[-1:], size - len(batch), axis=0)])
            predicted = self._forward(*self._state[:2], self._jax.device_put(padded, self._split))
            outputs.append(np.asarray(predicted, np.float32)[: len(batch)])
        return np.concatenate(outputs)

    def _shuffle_where_used_up(self) -> None:
        if self._next + self.batch_size > self._count:
            self.shuffle()

    def _put(self, values: Any) -> Any:
        """Copy the values to every device in full."""
        return self._jax.device_put(values, self._everywhere)

    def _build(self) -> None:
        """Create the variables of optimiser and metrics, as `fit` does before its first step."""
        rows = self._jax.numpy.zeros(self.batch_size, "int32")
        self._model._symbolic_build(data_batch=self._jax.eval_shape(self._batch, self._data, rows))
        self._model.reset_metrics()

    def _outputs(self, trainable: list[Any], fixed: list[Any], batch: Any) -> Any:
        return self._model.stateless_call(trainable, fixed, batch, training=False)[0]

    def _batch(self, data: tuple[Any, Any, Any], chosen: Any) -> tuple[Any, Any]:
        """Gather the chosen samples; each device gathers its part from its own copy."""
        inputs, targets, starts = data
        rows = chosen
        if starts is not None:
            rows = starts.at[chosen].get(mode="promise_in_bounds")[:, None] + self._jax.numpy.arange(self._window)
        return inputs.at[rows].get(mode="promise_in_bounds"), targets.at[rows].get(mode="promise_in_bounds")

    def _advance(self, steps: Callable[..., Any], size: int, count: int) -> None:
        """Make `count` steps on batches of `size`; may return before the device has finished."""
        self._loss, self._state = steps(self._state, self._data, self._order, self._next, count)
        self._next += size * count
        if self._one_at_a_time:
            self._jax.block_until_ready(self._loss)

    def _steps_of(self, size: int) -> Callable[..., Any]:
        if size not in self._compiled:
            self._compiled[size] = self._traced(size)
        return self._compiled[size]

    def _traced(self, size: int) -> Callable[..., Any]:
        """Compile steps on batches of a fixed size. Each call sets the number of steps, unless it is always one."""
        jax, lax = self._jax, self._jax.lax
        several = self.steps_per_execution > 1 and size == self.batch_size

        def step(state: State, data: Any, order: Any, first: Any) -> tuple[Any, State]:
            chosen = lax.dynamic_slice(order, (first,), (size,))
            chosen = lax.with_sharding_constraint(chosen, self._split)
            logs, after = self._model.train_step(state, self._batch(data, chosen))
            return logs["loss"], after

        def steps(state: State, data: Any, order: Any, first: Any, count: Any) -> tuple[Any, State]:
            if not several:
                return step(state, data, order, first)
            start = (jax.numpy.zeros((), "float32"), state)
            looped: tuple[Any, State] = lax.fori_loop(
                0, count, lambda index, now: step(now[1], data, order, first + index * size), start
            )
            return looped

        jitted = jax.jit(steps, donate_argnums=0, out_shardings=self._everywhere)
        traced = jitted.trace(self._state, self._data, self._order, 0, 1)
        self._jaxprs[size] = traced.jaxpr
        compiled: Callable[..., Any] = traced.lower().compile()
        return compiled


class JaxFedStep:
    """See `FedStep`. XLA always compiles it, regardless of the model's `jit_compile`."""

    def __init__(self, jax: Any, device: Any, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = True
        self._jax, self._device, self._model = jax, device, model
        self._examples = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (inputs, targets))
        self._compiled: Callable[..., Any] | None = None
        self._jaxpr: Any = None
        model._symbolic_build(data_batch=self._examples)
        model.reset_metrics()
        self._state = jax.device_put(values_of(model), device)

    def compile(self) -> None:
        if self._compiled is not None:
            return

        def fed(state: State, inputs: Any, targets: Any) -> tuple[Any, State]:
            logs, after = self._model.train_step(state, (inputs, targets))
            return logs["loss"], after

        traced = self._jax.jit(fed, donate_argnums=0).trace(self._state, *self._examples)
        self._jaxpr = traced.jaxpr
        self._compiled = traced.lower().compile()

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return self._jax.block_until_ready(self._jax.device_put((inputs, targets), self._device))

    def train(self, batch: Any) -> float:
        self.compile()
        assert self._compiled is not None
        loss, self._state = self._compiled(self._state, *batch)
        return float(loss)

    def sync(self) -> None:
        write_back(self._model, self._state)

    def counted_flops(self) -> float | None:
        return None if self._jaxpr is None else counted_flops(self._jaxpr)
