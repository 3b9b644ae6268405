"""A trained Keras model as a TensorFlow Lite file, and executed from it: the one way here to run all of it in int8."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LiteModel:
    """See `dyno.frameworks.contract.ServedModel`. Inputs and outputs stay float32; an int8 model converts them."""

    format = "tflite"

    def __init__(self, tf: Any, model: Any, cores: int, int8_examples: NDArray[np.float32] | None) -> None:
        self.file = _converted(tf, model, int8_examples)
        self._interpreter = tf.lite.Interpreter(model_content=self.file, num_threads=cores)
        self._input = self._interpreter.get_input_details()[0]["index"]
        self._output = self._interpreter.get_output_details()[0]["index"]
        self._shape: tuple[int, ...] = ()

    @property
    def tensors(self) -> dict[str, int]:
        """How many tensors of each dtype the file has: what was really made int8."""
        found: dict[str, int] = {}
        for tensor in self._interpreter.get_tensor_details():
            dtype = tensor["dtype"].__name__
            found[dtype] = found.get(dtype, 0) + 1
        return found

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        interpreter = self._interpreter
        if inputs.shape != self._shape:
            interpreter.resize_tensor_input(self._input, inputs.shape)
            interpreter.allocate_tensors()
            self._shape = inputs.shape
        interpreter.set_tensor(self._input, inputs)
        interpreter.invoke()
        outputs: NDArray[np.float32] = interpreter.get_tensor(self._output)
        return outputs


def _converted(tf: Any, model: Any, int8_examples: NDArray[np.float32] | None) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if int8_examples is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]  # an operation without: an error
        converter.representative_dataset = lambda: _one_by_one(int8_examples)
    with contextlib.redirect_stdout(io.StringIO()):  # Keras prints the model's endpoints
        return bytes(converter.convert())


def _one_by_one(examples: NDArray[np.float32]) -> Iterator[list[NDArray[np.float32]]]:
    for place in range(len(examples)):
        yield [examples[place : place + 1]]
