"""A trained Keras model made ready for inference twice: in float32 and in int8, by one of two engines.

`litert`: the framework's own format for serving. All layers are int8, weights, activations and arithmetic, calibrated
on training images; only the inputs and outputs stay float32. `keras`: Keras' own quantisation, which every framework
runs: dense layers alone, their weights int8 and their inputs made int8 anew in every call; all else stays float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.errors import RunFailed
from dyno.workloads.contract import BuildContext

Engine = Literal["litert", "keras"]
Float32 = NDArray[np.float32]
LITERT_ON = "tensorflow"
LITERT_NEEDS = "the engine litert runs on a CPU, with TensorFlow"
_WEIGHTS_ONLY = "{}.weights.h5"


@dataclass
class Ready:
    """One of the two. `timed(batch)` prepares a batch, and gives what executes it so many times and drains the device.

    `file`: (name, content) of what would be shipped. `in_int8`: whether any of it is.
    """

    file: tuple[str, bytes]
    predict: Callable[[Float32], Float32]
    timed: Callable[[Float32], Callable[[int], None]]
    details: dict[str, JsonValue] = field(default_factory=dict)
    in_int8: bool = False


def engine_for(asked: Engine | None, context: BuildContext) -> Engine:
    """LiteRT where the framework has it and the device is the processor it runs on.

    Raises RunFailed (unsupported, engine_unsupported) where it was asked for and can't be had.
    """
    on_cpu = context.device is None or context.device.driven_as == "cpu"
    there = on_cpu and context.framework.name == LITERT_ON
    if asked == "litert" and not there:
        raise RunFailed("unsupported", "engine_unsupported", LITERT_NEEDS)
    return asked or ("litert" if there else "keras")


def ready(model: Any, engine: Engine, calibration: Float32, context: BuildContext) -> tuple[Ready, Ready]:
    """(float32, int8) of a model of float32 inputs."""
    if engine == "litert":
        return _served(model, None, context), _served(model, calibration, context)
    return _kept(model, context), _kept(_quantised(model, context), context)


def _served(model: Any, calibration: Float32 | None, context: BuildContext) -> Ready:
    served = context.framework.served(model, context.cores, calibration)
    if served is None:
        raise RunFailed("unsupported", "engine_unsupported", "this TensorFlow comes without LiteRT")

    def timed(batch: Float32) -> Callable[[int], None]:
        def execute(count: int) -> None:
            for _ in range(count):
                served.predict(batch)  # returns when it is done

        return execute

    name = f"model.{'float32' if calibration is None else 'int8'}.{served.format}"
    tensors: dict[str, JsonValue] = dict(served.tensors)
    return Ready((name, served.file), served.predict, timed, {"tensors": tensors}, "int8" in tensors)


def _kept(model: Any, context: BuildContext) -> Ready:
    framework = context.framework
    compiled: dict[tuple[int, ...], Callable[[Any], Any]] = {}

    def outputs_of(batch: Float32) -> tuple[Callable[[Any], Any], Any]:
        on_device = framework.array(batch, "float32")
        if batch.shape not in compiled:
            compiled[batch.shape] = framework.forward(model, on_device)
        return compiled[batch.shape], on_device

    def predict(batch: Float32) -> Float32:
        forward, on_device = outputs_of(batch)
        return np.asarray(framework.numpy(forward(on_device)), np.float32)

    def timed(batch: Float32) -> Callable[[int], None]:
        forward, on_device = outputs_of(batch)

        def execute(count: int) -> None:
            outputs = None
            for _ in range(count):
                outputs = forward(on_device)
            framework.scalar(framework.total(outputs))

        return execute

    int8 = [layer.name for layer in model.layers if getattr(layer, "quantization_mode", None) == "int8"]
    plain = [layer.name for layer in model.layers if layer.weights and layer.name not in int8]
    details: dict[str, JsonValue] = {"int8_layers": list[JsonValue](int8), "float32_layers": list[JsonValue](plain)}
    return Ready(_saved(model, "int8" if int8 else "float32"), predict, timed, details, bool(int8))


def _quantised(model: Any, context: BuildContext) -> Any:
    keras = context.framework.keras
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    for layer in copy.layers:
        if isinstance(layer, keras.layers.Dense):  # convolutions have no int8 in Keras
            layer.quantize("int8")
    return copy


def _saved(model: Any, name: str) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="dyno-size-") as folder:
        path = Path(folder) / _WEIGHTS_ONLY.format(name)
        model.save_weights(path)
        return path.name, path.read_bytes()
