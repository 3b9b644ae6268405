"""A model in inference mode, timed on a batch that stays on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.measure.result_checks import constant_data, output_nonfinite, result_incorrect
from dyno.measure.warnings import OUTPUT_CODES
from dyno.workloads.contract import BuildContext, Verification

_COMPARED = 8  # inputs at most, from the first to the last
_ALWAYS = {"jax": True, "torch": False}  # JAX compiles every function, PyTorch none
# Between probabilities: bfloat16 is good for less, another model's differ by more. Of a thousand classes that nothing
# was learned of all are about 0.001; there bfloat16 was seen to change them by a thousandth of the largest.
_DIFFERENCE, _OF_LARGEST = 0.02, 0.1
_OF_APART = 0.1  # of how far the outputs of different inputs lie apart: more may be those of another input
_TOO_ALIKE = "the outputs are {:.2g} from those of Keras' own call, and those of different inputs only {:.2g} apart"


class Inference:
    """One execution is one batch through `model`; a sum over the outputs is read back."""

    def __init__(self, model: Any, batch: NDArray[Any], context: BuildContext) -> None:
        self._framework, self._model = context.framework, model
        self.work = float(len(batch))
        self._dtype = batch.dtype
        self._batch = self._framework.array(batch, str(batch.dtype))
        self._outputs: Any = None
        self._forward: Callable[[Any], Any]

    def compile(self) -> None:
        self._forward = self._framework.forward(self._model, self._batch)

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._outputs = self._forward(self._batch)
        self._framework.scalar(self._framework.total(self._outputs))

    def counted_flops(self) -> float | None:
        return self._framework.counted_flops(self._forward)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        """What was timed last gives what Keras' own call of the model gives for inputs from the first to the last."""
        outputs = np.asarray(self._framework.numpy(self._outputs), np.float64)
        by_keras = self._by_keras()
        difference = self._difference(outputs, by_keras)
        tolerance = min(_DIFFERENCE, _OF_LARGEST * float(by_keras.max()))
        apart = _apart(by_keras)
        too_alike = difference <= tolerance and difference > _OF_APART * apart
        raised = (
            constant_data({"batch": self._framework.numpy(self._batch)}),
            output_nonfinite(int(outputs.size - np.isfinite(outputs).sum()), outputs.size),
            result_incorrect(difference, tolerance) if np.isfinite(outputs).all() else None,
        )
        return Verification(
            warnings=[each for each in raised if each is not None],
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
        )

    def _compared(self) -> NDArray[np.intp]:
        """Places in the batch, far apart."""
        return np.unique(np.linspace(0, self.work - 1, _COMPARED).astype(np.intp))

    def _difference(self, outputs: NDArray[np.float64], by_keras: NDArray[np.float64]) -> float:
        """Infinite where there aren't as many outputs as inputs."""
        if len(outputs) != self.work:
            return math.inf
        return float(np.abs(outputs[self._compared()] - by_keras).max())

    def _jit_compile(self) -> bool:
        """What was done, whatever the model says; see `Framework.forward`."""
        return _ALWAYS.get(self._framework.name, bool(self._model.jit_compile))

    def _by_keras(self) -> NDArray[np.float64]:
        ops = self._framework.keras.ops
        some = self._framework.numpy(self._batch)[self._compared()].astype(self._dtype)
        outputs = self._model(ops.convert_to_tensor(some), training=False)
        return np.asarray(ops.convert_to_numpy(ops.cast(outputs, "float32")), np.float64)


def _apart(outputs: NDArray[np.float64]) -> float:
    """How far those of one input are from another's at most; infinite where there is but one."""
    return float(np.ptp(outputs, axis=0).max()) if len(outputs) > 1 else math.inf
