"""Run a Keras model forward, batch by batch, and compare the outputs with Keras' own call of the model."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench import contract
from dyno.bench.frameworks.interface import compiled_total
from dyno.bench.measure.result_checks import constant_data, output_nonfinite, result_incorrect
from dyno.bench.measure.warnings import OUTPUT_CODES

_COMPARED = 8  # maximum number of inputs to compare, spread from the first to the last
ALWAYS_COMPILED = {"jax": True, "torch": False}  # JAX compiles every function, PyTorch none
# Tolerated difference between probabilities. Errors of bfloat16 are smaller, differences to another model are larger.
# An untrained model of 1000 classes gives each class about 0.001; bfloat16 changed these probabilities by a thousandth
# of the largest.
_DIFFERENCE, _OF_LARGEST = 0.02, 0.1
_OF_APART = 0.1  # share of the distance between outputs; a larger difference may mean the output of another input
_TOO_ALIKE = "the outputs differ by {:.2g} from Keras' own call, while those of different inputs differ by only {:.2g}"


class Inference:
    """One execution passes one batch through `model` and reads back the sum of the outputs."""

    def __init__(self, model: Any, batch: NDArray[Any], context: contract.BuildContext) -> None:
        self._framework, self._model = context.framework, model
        self.work = float(len(batch))
        self._dtype = batch.dtype
        self._batch = self._framework.array(batch, str(batch.dtype))
        self._outputs: Any = None
        self._forward: Callable[[Any], Any]
        self._total: Callable[[Any], Any]

    def compile(self) -> None:
        self._forward = self._framework.forward(self._model, self._batch)
        self._total = compiled_total(self._framework, len(self._batch), *self._model.output_shape[1:])

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._outputs = self._forward(self._batch)
        self._framework.scalar(self._total(self._outputs))

    def counted_flops(self) -> float | None:
        return self._framework.counted_flops(self._forward)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> contract.Verification:
        """Compare the last timed outputs with Keras' own call of the model, for inputs spread over the batch."""
        outputs = np.asarray(self._framework.numpy(self._outputs), np.float64)
        by_keras = self._by_keras()
        difference = self._difference(outputs, by_keras)
        tolerance = min(_DIFFERENCE, _OF_LARGEST * float(by_keras.max()))
        apart = _apart(by_keras)
        too_alike = difference <= tolerance and difference > _OF_APART * apart
        warnings = (
            constant_data({"batch": self._framework.numpy(self._batch)}),
            output_nonfinite(int(outputs.size - np.isfinite(outputs).sum()), outputs.size),
            result_incorrect(difference, tolerance) if np.isfinite(outputs).all() else None,
        )
        return contract.Verification(
            warnings=[raised for raised in warnings if raised is not None],
            verified=OUTPUT_CODES - {"RESULT_INCORRECT"} if too_alike else OUTPUT_CODES,
            unchecked={"RESULT_INCORRECT": _TOO_ALIKE.format(difference, apart)} if too_alike else {},
            details={
                "execution": f"the outputs for a batch of {int(self.work)} inputs",
                "batch_size": int(self.work),
                "jit_compile": self._jit_compile(),
                "weights": int(self._model.count_params()),
                "difference": difference if np.isfinite(difference) else None,
                "difference_tolerance": tolerance,
            },
            amounts={"step": self.work},
            bytes=float(
                4 * (self._model.count_params() + outputs.size) + self._dtype.itemsize * math.prod(self._batch.shape)
            ),
            params={"jit_compile": self._jit_compile()},
        )

    def _compared(self) -> NDArray[np.intp]:
        """Indices spread over the batch."""
        return np.unique(np.linspace(0, self.work - 1, _COMPARED).astype(np.intp))

    def _difference(self, outputs: NDArray[np.float64], by_keras: NDArray[np.float64]) -> float:
        """The largest difference; infinite if the numbers of outputs and inputs differ."""
        if len(outputs) != self.work:
            return math.inf
        return float(np.abs(outputs[self._compared()] - by_keras).max())

    def _jit_compile(self) -> bool:
        """Whether the forward pass was compiled, regardless of the model's setting; see `Framework.forward`."""
        return ALWAYS_COMPILED.get(self._framework.name, bool(self._model.jit_compile))

    def _by_keras(self) -> NDArray[np.float64]:
        ops = self._framework.keras.ops
        some = self._framework.numpy(self._batch)[self._compared()].astype(self._dtype)
        outputs = self._model(ops.convert_to_tensor(some), training=False)
        return np.asarray(ops.convert_to_numpy(ops.cast(outputs, "float32")), np.float64)


def _apart(outputs: NDArray[np.float64]) -> float:
    """The largest difference between the outputs of two inputs; infinite for a single input."""
    return float(np.ptp(outputs, axis=0).max()) if len(outputs) > 1 else math.inf
