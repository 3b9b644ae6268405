"""What the recurrent workloads share: their params, their FLOP, and which kernel computes them.

FLOP of one step in time of one sample, forward, multiply-add = 2: four gates of an LSTM 8·units·(inputs + units),
three of a GRU 6·units·(inputs + units). A training step takes three times the forward pass: once more for the
gradients of the weights, and once more for those of the inputs and states. Biases, gates and activations are left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from dyno.datasets.kinds import DataKind
from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.workloads._training_params import TrainingParams
from dyno.workloads.contract import BuildContext

Recurrence = Literal["auto", "loop", "unrolled"]
MAX_UNROLLED = 256  # steps; a graph grows with them, and so does the time to build it

Width = Annotated[int, Field(ge=1, le=65536)]  # of an embedding


class RecurrentParams(TrainingParams):
    recurrence: Recurrence = Field(
        "auto",
        description="auto: the fused kernel where there is one; loop: never fused; unrolled: the loop written out",
    )
    data: DataKind = Field("auto", description="auto: the real set if the worker has it, else what ships or is made")

    def unrolled_too_far(self, steps: int, pointer: str) -> list[FieldError]:
        """A field error where `steps` of them are too many to be written out."""
        if self.recurrence != "unrolled" or steps <= MAX_UNROLLED:
            return []
        return [FieldError(pointer, "too-long-to-unroll", f"an unrolled loop has at most {MAX_UNROLLED} steps")]


def lstm_flops(inputs: int, units: int) -> float:
    """Forward, one step in time of one sample."""
    return 8.0 * units * (inputs + units)


def gru_flops(inputs: int, units: int) -> float:
    """Forward, one step in time of one sample."""
    return 6.0 * units * (inputs + units)


def layer_options(recurrence: Recurrence) -> dict[str, Any]:
    """What Keras' LSTM and GRU are told."""
    return {"unroll": recurrence == "unrolled", "use_cudnn": "auto" if recurrence == "auto" else False}


def jit_unmeasured(recurrence: Recurrence, device: Device | None) -> str | None:
    """Why TensorFlow's XLA isn't tried: on a CPU a try of a loop alone could take all memory.

    Measured on 2 cores, a step's time and memory with XLA by that without: 1.2 and 4 (`imdb_lstm`), over 7 and 10
    (`shakespeare_lstm`, 32 windows); eight windows of `weather_gru` took more than 18e9 bytes.
    """
    if recurrence == "unrolled":
        return None
    if device is None or device.driven_as == "cpu":
        return "XLA on a CPU makes recurrent loops slower and several times as large"
    return "XLA can't compile the fused kernel" if recurrence == "auto" else None


def rnn_kernel(context: BuildContext, recurrence: Recurrence, layer: Literal["lstm", "gru"]) -> JsonValue:
    """Which kernel Keras chooses for such a layer, by its own rule: nothing in a run tells which one it was."""
    device = context.device
    kind = "cpu" if device is None or device.emulated else device.kind
    name = context.framework.name
    if recurrence == "unrolled" and name != "torch":  # there, Keras has one loop, and it is Python's
        kernel = "unrolled loop"
    elif recurrence == "auto" and kind == "gpu" and (name, layer) != ("jax", "gru"):
        kernel = "fused (cuDNN)"
    else:
        kernel = {"tensorflow": "while loop", "jax": "scan"}.get(name, "loop in Python")
    return {"kernel": kernel, "basis": f"Keras' rule for {layer.upper()} layers of {name} on a {kind}, not observed"}
