"""The interface of a framework: what a workload may ask of it, and how replicas share a batch.

One module per framework implements it; each imports its framework inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from dyno.errors import RunFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dyno.frameworks.plain_step import PlainStep


def full_batch(batch_size: int, samples: int, replicas: int) -> int:
    """The largest number of samples up to `batch_size` that `replicas` share evenly.

    Raises RunFailed if a replica would get no sample, or if there are fewer samples than a batch needs.
    """
    if (size := min(batch_size, samples)) < replicas:
        raise RunFailed("benchmark", "too_few_samples", f"{size} samples are too few for {replicas} replicas")
    if samples < batch_size:
        detail = f"a batch of {batch_size} is larger than the {samples} training samples; "
        raise RunFailed("benchmark", "too_few_samples", f"{detail}the largest is {divisible_size(samples, replicas)}")
    return divisible_size(batch_size, replicas)


def divisible_size(size: int, replicas: int) -> int:
    """`size`, or the next multiple of the replicas below it."""
    return size - size % replicas


def _no_number(value: object) -> object:
    """0 and 1 equal False and True, which is all that a Literal looks at."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticKnownError("literal_error", {"expected": "'auto', True or False"})
    return value


# "auto": whichever is measured to be faster here. Makers of clients refuse an enum of several types.
_TOLD_AS: dict[str, Any] = {"anyOf": [{"const": "auto", "type": "string"}, {"type": "boolean"}]}
JitCompile = Annotated[Literal["auto", True, False], BeforeValidator(_no_number), WithJsonSchema(_TOLD_AS)]


@dataclass(frozen=True)
class Dataset:
    """What a training step draws its batches from; it stays on the device.

    Sample i is (inputs[i], targets[i]). With a `window` it is (inputs[s : s + window], targets[s : s + window]) for
    s = starts[i] (int32): overlapping windows over one series, whose rows `inputs` and `targets` are, take no memory
    of their own.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    window: int | None = None
    starts: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if (self.window is None) != (self.starts is None):
            raise ValueError("window and starts go together")

    def __len__(self) -> int:
        return len(self.inputs) if self.starts is None else len(self.starts)

    def batch(self, chosen: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(inputs, targets) of the samples with these numbers."""
        import numpy as np

        rows: Any = chosen
        if self.starts is not None and self.window is not None:
            rows = self.starts[chosen][:, np.newaxis] + np.arange(self.window)
        return self.inputs[rows], self.targets[rows]


class Trainer(Protocol):
    """A training step compiled with its data resident on the device.

    One step: gather a batch, forward, loss, gradients, optimiser and running metrics, as Keras' own `fit` has it.
    """

    jit_compile: bool  # what is done, whatever the model says: always on JAX, never on PyTorch
    batch_size: int  # of all replicas together
    replicas: int
    parts: int  # of a batch that normalisation and dropout take each for itself, in the order of the batch
    steps_per_execution: int  # steps in one call of the compiled function

    def compile(self) -> None:
        """Trace the step on a full batch into a graph; executes nothing.

        On TensorFlow with `jit_compile` XLA compiles that graph when it first runs, in the first of `steps`; on JAX it
        compiles here. PyTorch has no graph.
        """

    def shuffle(self) -> None:
        """Draw a new order of the samples and start at its first one."""

    def next_batch(self) -> NDArray[Any]:
        """The numbers of the samples that the next of `steps` trains on, drawing a new order if that would."""

    def steps(self, count: int) -> float:
        """Train on `count` full batches of the current order; return the running loss, read back from the device.

        Draws a new order whenever the present one has no full batch left.
        """

    def tail(self) -> float:
        """Train on the samples of the current order that make no full batch, as `fit` ends an epoch.

        Over several replicas the last samples beyond a multiple of them are left out.
        """

    def finish_epoch(self) -> dict[str, float]:
        """Keras' figures by name ("loss", "accuracy", …) over the samples seen since the last call; they start anew."""

    def sync(self) -> None:
        """Bring the Keras model up to date with what was trained: before callbacks, saving, reading its weights."""

    def refresh(self) -> None:
        """Take over what others changed in the Keras model: loaded weights, a callback's learning rate."""

    def counted_flops(self) -> float | None:
        """FLOP of the products of one call on full batches, as the framework itself counts them in what it traced.

        None where it can't: before `compile`, without a graph, through a library's own kernel.
        """

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        """The model's outputs in inference mode, as NumPy.

        Any number of inputs over any number of replicas: what doesn't divide is padded, and the padding dropped.
        """


class FedStep(Protocol):
    """A compiled training step on batches that the host hands it one by one: Keras' own `train_step`."""

    jit_compile: bool  # as a `Trainer`'s

    def compile(self) -> None:
        """Trace the step into a graph; executes nothing. What is left to the first step: as with a `Trainer`."""

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        """A batch on the device: it lies there when this returns. The arrays may not be written to afterwards."""

    def train(self, batch: Any) -> float:
        """One step on a batch that was `placed`; the running loss, read back from the device."""

    def sync(self) -> None:
        """As a `Trainer`'s."""

    def counted_flops(self) -> float | None:
        """FLOP of the products of one step, as a `Trainer` counts them."""


class ServedModel(Protocol):
    """A trained model as one file, executed from that file on the host's CPU."""

    file: bytes
    format: str

    @property
    def tensors(self) -> dict[str, int]:
        """How many tensors of each dtype the file has."""

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The outputs for all `inputs` as one batch. A batch of another size than the last one is prepared first."""


class Framework(Protocol):
    name: str

    def load(self) -> None:
        """Import it (the import_s phase). Touches no device, so a zygote may do it before a fork."""

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        """Start the device with `cores` threads, finish one tiny operation on it and read its result back.

        `replicas`: how many of the host's devices of that kind a model will be copied to; on a CPU these are virtual
        devices made for it. Raises DeviceUnavailable where there are fewer.
        """

    def scope(self) -> AbstractContextManager[object]:
        """Models and optimisers that are to be trained over replicas are made inside."""

    def versions(self) -> dict[str, str]:
        """Package name -> version."""

    @property
    def keras(self) -> Any:
        """The keras module on this framework's backend."""

    def seed(self, seed: int) -> None:
        """Seed every generator that the framework and Keras draw from."""

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """Trace `function` for arguments shaped like `examples` into a graph; executes nothing.

        Whatever the framework prepares only when the graph first runs (its optimiser's passes, kernels, XLA) is left to
        the first call.
        """

    def counted_flops(self, compiled: Callable[..., Any]) -> float | None:
        """FLOP of the products in what `compile` or `forward` gave, as the framework counts them; None if it can't."""

    def traced(self) -> Sequence[str] | None:
        """What it traced or compiled in this process so far, by name, once for each time, in order; it only grows.

        Cheap enough to be asked between samples. None where the framework doesn't tell.
        """

    def drain(self) -> None:
        """Wait until the device has done all that was asked of it, whoever may read the results or nobody."""

    def array(self, value: Any, dtype: str) -> Any:
        """A device tensor of a NumPy array, cast to `dtype`."""

    def numpy(self, value: Any) -> Any:
        """A NumPy array (float32 or wider) of a device tensor."""

    def scalar(self, value: Any) -> float:
        """Read a scalar back: the synchronisation that can't lie."""

    def matmul(self, a: Any, b: Any) -> Any:
        """The matrix product of two device tensors, in their dtype."""

    def integer_matmul(self, a: Any, b: Any) -> Any:
        """The matrix product of two int8 tensors, summed in int32, on whatever this framework does that fastest with.

        What is compiled for it is compiled at the first call with each shape.
        """

    def allow_tf32(self, allowed: bool) -> None:
        """Whether float32 products may be computed in TF32 from now on. Changes nothing where the device has none."""

    def total(self, value: Any) -> Any:
        """The sum of all elements, as a float32 scalar on the device."""

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        """`body` applied `count` times, each to what the last one gave. Only inside a compiled function."""

    def trainer(
        self, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        """A step loop of its own over a compiled Keras model (`model.compile` was called, with its `jit_compile`).

        A `batch_size` above the number of samples is that number, rounded down to a multiple of the replicas.
        """

    def plain_step(self, model: Any, *, exact: bool) -> PlainStep:
        """A step of a compiled Keras model to hold a `Trainer`'s against, on one device.

        With the model's `jit_compile` its dropout draws as XLA does. `exact`: see `PlainStep`.
        """

    def fed_step(self, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> FedStep:
        """A step of a compiled Keras model, on one device, for batches of just the shapes and dtypes of these."""

    def forward(self, model: Any, example: Any) -> Callable[[Any], Any]:
        """A Keras model in inference mode as one compiled function of device tensors shaped like `example`."""

    def served(self, model: Any, cores: int, int8_examples: NDArray[np.float32] | None = None) -> ServedModel | None:
        """A Keras model in this framework's format for serving; None where it has none that this host can execute.

        In float32, or, with inputs to calibrate by, in int8: weights, activations and arithmetic of all layers.
        """

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` is the framework's way of saying that device memory ran out."""

    def seen(self) -> list[dict[str, Any]]:
        """Every device that it would compute on, in its own words: `name` and `kind`, and more where it tells more."""

    def device_peak_bytes(self, kind: str) -> int | None:
        """The most device memory held so far in this process; None where the framework doesn't count it."""
