"""Define the framework interface that workloads use, and how replicas share a batch.

One module per framework implements the interface, and imports its framework inside functions only.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from dyno.bench.frameworks.plain_step import PlainStep
from dyno.errors import RunFailed


def full_batch(batch_size: int, samples: int, replicas: int) -> int:
    """`batch_size`, rounded down to a size that `replicas` share evenly.

    Raises RunFailed if a replica would get no sample, or if a batch is larger than the data set.
    """
    if (size := min(batch_size, samples)) < replicas:
        raise RunFailed("benchmark", "too_few_samples", f"{size} samples are too few for {replicas} replicas")
    if samples < batch_size:
        detail = f"a batch of {batch_size} is larger than the {samples} training samples; "
        raise RunFailed("benchmark", "too_few_samples", f"{detail}the largest is {divisible_size(samples, replicas)}")
    return divisible_size(batch_size, replicas)


def divisible_size(size: int, replicas: int) -> int:
    """`size` rounded down to a multiple of `replicas`."""
    return size - size % replicas


def _reject_number(value: object) -> object:
    """Reject numbers: a Literal compares by equality, so it would accept 0 and 1 as False and True."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticKnownError("literal_error", {"expected": "'auto', True or False"})
    return value


# "auto": the setting that a measurement finds faster. Client generators reject an enum of several types.
_JSON_SCHEMA: dict[str, Any] = {"anyOf": [{"const": "auto", "type": "string"}, {"type": "boolean"}]}
JitCompile = Annotated[Literal["auto", True, False], BeforeValidator(_reject_number), WithJsonSchema(_JSON_SCHEMA)]


@dataclass(frozen=True)
class Dataset:
    """Samples of a training, which stay on the device.

    Sample i is (inputs[i], targets[i]). With a `window` it is (inputs[s : s + window], targets[s : s + window]) for
    s = starts[i] (int32): `inputs` and `targets` are the rows of one series, and overlapping windows take no additional
    memory.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    window: int | None = None
    starts: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if (self.window is None) != (self.starts is None):
            raise ValueError("give window and starts together")

    def __len__(self) -> int:
        return len(self.inputs) if self.starts is None else len(self.starts)

    def batch(self, chosen: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(inputs, targets) of the samples with these indices."""
        rows: Any = chosen
        if self.starts is not None and self.window is not None:
            rows = self.starts[chosen][:, np.newaxis] + np.arange(self.window)
        return self.inputs[rows], self.targets[rows]


class Trainer(Protocol):
    """A compiled training step whose data stays on the device.

    Like Keras' `fit`, one step gathers a batch and computes forward pass, loss, gradients, optimiser and metrics.
    """

    jit_compile: bool  # the actual setting, regardless of the model's setting: always True on JAX, False on PyTorch
    batch_size: int  # total over all replicas
    replicas: int
    parts: int  # consecutive parts of a batch that normalisation and dropout treat separately
    steps_per_execution: int  # steps in one call of the compiled function

    def compile(self) -> None:
        """Trace the step on a full batch into a graph and, with XLA, compile it. No weight changes.

        On TensorFlow, XLA needs one execution, whose effects are undone. PyTorch has no graph.
        """

    def shuffle(self) -> None:
        """Draw a new order of the samples and start at its first sample."""

    def next_batch(self) -> NDArray[Any]:
        """The indices of the samples in the next step's batch. Draws a new order if the next step would do so."""

    def steps(self, count: int) -> float:
        """Train on `count` full batches of the current order; return the running loss, read back from the device.

        Draws a new order whenever the current order has no full batch left.
        """

    def tail(self) -> float:
        """Train on the rest of the current order, which doesn't fill a batch, like `fit` at the end of an epoch.

        It omits the last samples if the rest isn't a multiple of the replicas.
        """

    def finish_epoch(self) -> dict[str, float]:
        """Return and reset Keras' metrics ("loss", "accuracy", …) over the samples since the last call."""

    def sync(self) -> None:
        """Write the trained weights to the Keras model. Call it before callbacks, saving and reading weights."""

    def refresh(self) -> None:
        """Load changes from the Keras model: loaded weights, a callback's learning rate."""

    def counted_flops(self) -> float | None:
        """FLOP of the products of one call on full batches, as the framework counts them in its trace.

        None before `compile`, on PyTorch before the first step, or if a library's kernel hides products.
        """

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        """The model's outputs in inference mode, as NumPy.

        Accepts any number of inputs for any number of replicas: pads batches as needed and drops the padding.
        """


class FedStep(Protocol):
    """A compiled training step on batches that the host passes one by one: Keras' own `train_step`."""

    jit_compile: bool  # see `Trainer`

    def compile(self) -> None:
        """Like `Trainer.compile`."""

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        """Copy a batch to the device and wait for the copy. Callers must not write to the arrays afterwards."""

    def train(self, batch: Any) -> float:
        """Make one step on a `placed` batch; return the running loss, read back from the device."""

    def sync(self) -> None:
        """See `Trainer.sync`."""

    def counted_flops(self) -> float | None:
        """FLOP of the products of one step; see `Trainer.counted_flops`."""


class ServedModel(Protocol):
    """A trained model in one file, executed from that file on the host's CPU."""

    file: bytes
    format: str

    @property
    def tensors(self) -> dict[str, int]:
        """The number of tensors of each dtype in the file."""

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The outputs for all `inputs` as one batch. The first call with a new batch size also prepares for it."""


Step = Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], list[Any]]]  # (inputs, state) to (outputs, new state)


def split_state(outputs: Sequence[Any], states: int) -> tuple[list[Any], list[Any]]:
    """A model's outputs: all but the last `states`, and the last `states`."""
    first = len(outputs) - states
    return list(outputs[:first]), list(outputs[first:])


StreamKernel = Literal["copy", "scale", "add", "triad"]
StreamCall = Callable[[Any], Any]

# y from x, z and a scalar, for frameworks that compile: they would remove a copy, and would add x and z only once in a
# loop, so both are multiplied by a scalar of 1 that the compiler doesn't know.
STREAM: dict[StreamKernel, Callable[[Any, Any, Any], Any]] = {
    "copy": lambda x, z, scale: scale * x,
    "scale": lambda x, z, scale: scale * x,
    "add": lambda x, z, scale: x + scale * z,
    "triad": lambda x, z, scale: z + scale * x,
}


class StreamOperands(NamedTuple):
    """Arrays `x` and `z`, and two scalars: the first kernel has the scale `scale`, each further one `step` more."""

    x: Any
    z: Any
    scale: Any
    step: Any


Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_receive", "all_to_all"]


class CompiledCollective(Protocol):
    """A compiled collective operation over all units, each of which holds one row."""

    @property
    def bytes(self) -> int:
        """Of all rows and all last outputs, as the framework holds them."""

    def execute(self, count: int) -> None:
        """Execute `count` times and read a value of every unit's output back."""

    def outputs(self) -> NDArray[np.float32]:
        """The last outputs, one row for each unit."""


@runtime_checkable
class HasCollectives(Protocol):
    """A framework with collective operations over the units that `Framework.start` started."""

    def collective(self, name: Collective, rows: NDArray[np.float32]) -> CompiledCollective:
        """Unit r gets rows[r]. No compilation is left for the first execution."""


class Transfer(Protocol):
    """A copy of one array between the memory of the host and that of the device."""

    @property
    def bytes(self) -> int:
        """Of the array, as the framework holds it."""

    @property
    def route(self) -> str:
        """The memories of source and target as the framework reports them, such as "pinned cpu to cuda"."""

    def execute(self, count: int) -> None:
        """Copy `count` times, and wait for the end of each copy."""

    def arrived(self) -> NDArray[np.float32]:
        """The values that the last copy wrote."""


@runtime_checkable
class HasTransfers(Protocol):
    """A framework that copies on each call, to memory that already exists."""

    def transfer(self, values: NDArray[np.float32], *, to_host: bool, pinned: bool) -> Transfer:
        """`pinned`: whether the host's memory is page-locked, so that the device reads and writes it itself."""


class Framework(Protocol):
    name: str

    def load(self) -> None:
        """Import the framework (the import_s phase). It touches no device, so a zygote may load it before a fork."""

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        """Start the device with `cores` threads, finish one tiny operation on it and read its result back.

        `replicas`: the number of the host's devices of that kind to use; on a CPU, the framework creates virtual
        devices. Raises DeviceUnavailable if there are fewer devices.
        """

    def scope(self) -> AbstractContextManager[object]:
        """The context in which to create models and optimisers for training over replicas."""

    def versions(self) -> dict[str, str]:
        """Package name -> version."""

    @property
    def keras(self) -> Any:
        """The keras module on this framework's backend."""

    def seed(self, seed: int) -> None:
        """Seed every random generator of the framework and Keras."""

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """Trace `function` for arguments shaped like `examples` into a graph without executing it.

        The first call does whatever the framework postpones until then (optimiser passes, kernels, XLA).
        """

    def counted_flops(self, compiled: Callable[..., Any]) -> float | None:
        """FLOP of the products in a result of `compile`, `forward` or `step`, as the framework counts them.

        None if unknown.
        """

    def traced(self) -> Sequence[str] | None:
        """The names of all functions traced or compiled in this process, in order, one entry per trace.

        The list only grows. The call is cheap between samples. None if the framework doesn't report traces.
        """

    def drain(self) -> None:
        """Wait until the device has finished all submitted work, even work whose results are never read."""

    def array(self, value: Any, dtype: str) -> Any:
        """A device tensor of a NumPy array, cast to `dtype`."""

    def numpy(self, value: Any) -> Any:
        """A NumPy array (float32 or wider) of a device tensor."""

    def scalar(self, value: Any) -> float:
        """Read a scalar back, which reliably waits for the device."""

    def matmul(self, a: Any, b: Any) -> Any:
        """The matrix product of two device tensors, in their dtype."""

    def integer_matmul(self, a: Any, b: Any) -> Any:
        """The matrix product of two int8 tensors, summed in int32, by the framework's fastest method.

        The first call with each shape may compile.
        """

    def allow_tf32(self, allowed: bool) -> None:
        """Allow or forbid TF32 for float32 products from now on. No effect on devices without TF32."""

    def total(self, value: Any) -> Any:
        """The sum of all elements, as a float32 scalar on the device."""

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        """Apply `body` `count` times, each time to the previous result. Only inside a compiled function."""

    def stream(self, kernel: StreamKernel, times: int, operands: StreamOperands) -> StreamCall:
        """A function that executes the kernel `times` times and returns the last y. Each reads and writes whole arrays.

        It takes an array of y's shape, such as an earlier y, which can't be used afterwards. PyTorch and JAX write to
        this array. On a CPU, frameworks that compile make a single loop of all kernels.
        """

    def trainer(
        self, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        """A training loop for a compiled Keras model (after `model.compile`, with its `jit_compile`).

        The batch size is rounded down to a multiple of the replicas.
        """

    def plain_step(self, model: Any, *, exact: bool) -> PlainStep:
        """A plain step of a compiled Keras model on one device, for comparison with a `Trainer`'s step.

        With the model's `jit_compile`, dropout uses XLA's random numbers. `exact`: see `PlainStep`.
        """

    def fed_step(self, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> FedStep:
        """A step of a compiled Keras model on one device, for batches with exactly these shapes and dtypes."""

    def forward(self, model: Any, example: Any) -> Callable[[Any], Any]:
        """A Keras model in inference mode as one compiled function of device tensors shaped like `example`.

        With XLA, no compilation is left for its first call.
        """

    def step(self, model: Any, inputs: Sequence[Any], state: Sequence[Any]) -> Step:
        """A Keras model of [*inputs, *state] in inference mode as one compiled function, for tensors of these shapes.

        The model's last outputs are the new state. On JAX, a call donates the old state: don't use it afterwards. With
        XLA, no compilation is left for the first call.
        """

    def served(self, model: Any, cores: int, int8_examples: NDArray[np.float32] | None = None) -> ServedModel | None:
        """A Keras model in the framework's serving format; None if it has no format that this host can execute.

        The model is float32. With `int8_examples` for calibration, weights, activations and arithmetic of all layers
        are int8.
        """

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` means that device memory ran out."""

    def visible_devices(self) -> list[dict[str, Any]]:
        """Every device that the framework sees, as it describes it: `name`, `kind` and further fields if available."""

    def device_peak_bytes(self, kind: str) -> int | None:
        """Peak device memory in this process; None if the framework doesn't track it."""


def compiled_total(framework: Framework, *shape: int) -> Callable[[Any], Any]:
    """A compiled sum of float32 values of this shape. On JAX, its first call compiles nothing."""
    outputs = framework.array(np.zeros(shape), "float32")
    return framework.compile(lambda values: framework.total(values), outputs)
