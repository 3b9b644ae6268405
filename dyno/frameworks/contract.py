"""What a workload may ask of a framework. One file per framework; each imports it inside functions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

JitCompile = Literal["auto", True, False]  # auto: as Keras decides for the device


class Trainer(Protocol):
    """A training step compiled with its data resident on the device.

    One step: gather a batch, forward, loss, gradients, optimiser and running metrics, as Keras' own `fit` has it.
    """

    jit_compile: bool
    batch_size: int

    def compile(self) -> None:
        """Trace the step on a full batch into a graph; executes nothing.

        With `jit_compile`, XLA compiles that graph when it first runs: in the first of `steps`.
        """

    def shuffle(self) -> None:
        """Draw a new order of the samples and start at its first one."""

    def steps(self, count: int) -> float:
        """Train on `count` full batches of the current order; return the running loss, read back from the device.

        Draws a new order whenever the present one has no full batch left.
        """

    def tail(self) -> float:
        """Train on the samples of the current order that make no full batch, as `fit` ends an epoch."""

    def finish_epoch(self) -> tuple[float, float]:
        """(mean loss, accuracy) over the samples seen since the last call, then start both anew."""

    def predict(self, inputs: NDArray[np.float32], batch_size: int) -> NDArray[np.float32]:
        """The model's outputs in inference mode, as NumPy."""


class Framework(Protocol):
    name: str

    def load(self) -> None:
        """Import it (the import_s phase). Touches no device, so a zygote may do it before a fork."""

    def start(self, kind: str, cores: int) -> None:
        """Start the device with `cores` threads, finish one tiny operation on it and read its result back."""

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

    def array(self, value: Any, dtype: str) -> Any:
        """A device tensor of a NumPy array, cast to `dtype`."""

    def numpy(self, value: Any) -> Any:
        """A NumPy array (float32 or wider) of a device tensor."""

    def scalar(self, value: Any) -> float:
        """Read a scalar back: the synchronisation that can't lie."""

    def matmul(self, a: Any, b: Any) -> Any:
        """The matrix product of two device tensors, in their dtype."""

    def total(self, value: Any) -> Any:
        """The sum of all elements, as a float32 scalar on the device."""

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        """`body` applied `count` times, each to what the last one gave. Only inside a compiled function."""

    def trainer(
        self, model: Any, inputs: NDArray[np.float32], targets: NDArray[np.float32], batch_size: int, seed: int
    ) -> Trainer:
        """A step loop of its own over a compiled Keras model (`model.compile` was called, with its `jit_compile`)."""

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` is the framework's way of saying that device memory ran out."""

    def device_peak_bytes(self, kind: str) -> int | None:
        """The most device memory held so far in this process; None where the framework doesn't count it."""
