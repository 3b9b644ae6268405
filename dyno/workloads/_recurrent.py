"""What the recurrent workloads share: their FLOP, which kernel computes them, and what they cost.

FLOP of one step in time of one sample, forward, multiply-add = 2: four gates of an LSTM 8·units·(inputs + units),
three of a GRU 6·units·(inputs + units). A training step takes three times the forward pass: once more for the
gradients of the weights, and once more for those of the inputs and states. Biases, gates and activations are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from dyno.datasets.kinds import DataKind
from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.measure.warnings import warning
from dyno.result import ResultWarning
from dyno.workloads._training import TrainingParams
from dyno.workloads.contract import BuildContext, Estimate

Recurrence = Literal["auto", "loop", "unrolled"]
MAX_UNROLLED = 256  # steps; a graph grows with them, and so does the time to build it

_REACHED = (
    0.35  # of the float32 peak by the products alone, apart from what each step in time costs; measured 0.3 to 0.45
)
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 2e12, "tpu": 4e12}  # per CPU core, per accelerator
# A step in time costs so much whatever the batch, forward and back: the loop itself, and reading its weights and adding
# up their gradients. CPU: fitted to 4 to 256 samples of the three workloads on two Zen 4 cores.
_STEP_S = {"cpu": 3e-4, "gpu": 1e-4, "tpu": 5e-5}
_STEP_S_PER_WEIGHT = {"cpu": 2e-9, "gpu": 2e-11, "tpu": 2e-11}
_STATE_BYTES = 75  # kept for the way back, for each sample, step in time and unit; measured 36 (TensorFlow) to 76 (JAX)
_WEIGHT_BYTES = 4 * 6  # a weight, its gradient, the optimiser's one or two, and copies while they are made
_RUNTIME_BYTES = 700_000_000  # a framework and Keras imported, on a CPU host
_UNROLLED_STEP_S = 0.1  # to build one step of an unrolled loop


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


def jit_unmeasured(recurrence: Recurrence) -> str | None:
    """Why TensorFlow's XLA isn't tried on a loop: on a CPU a try alone could take all memory.

    Measured on 2 cores, a step's time and memory with XLA by that without: 1.2 and 4 (`imdb_lstm`), over 7 and 10
    (`shakespeare_lstm`, 32 windows); eight windows of `weather_gru` took more than 18e9 bytes.
    """
    if recurrence == "unrolled":
        return None
    return "XLA on a CPU makes recurrent loops slower and several times as large; fused kernels it can't compile"


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


@dataclass(frozen=True)
class Cost:
    """What an estimate goes by. `steps` are those in time of one sample, over all its recurrent layers."""

    batch: int
    batches: int  # in one execution
    flops_per_sample: float
    steps: int
    units: int
    weights: int  # of one recurrent layer
    all_weights: int
    data_bytes: int
    trained: int  # samples, over all epochs
    evaluated: int
    batch_bytes: int = 0  # of one sample, apart from the layers' states: its inputs and outputs
    unrolled: bool = False


def estimate(cost: Cost, device: Device) -> Estimate:
    """The products at a share of the peak (or an assumed rate), and each step in time for its own sake."""
    kind = "cpu" if device.emulated else device.kind
    rate = _rate_flop_per_s(device, kind)
    loop_s = cost.steps * (_STEP_S[kind] + cost.weights * _STEP_S_PER_WEIGHT[kind])
    step_s = cost.batch * cost.flops_per_sample / rate + loop_s
    execution_s = step_s * cost.batches
    sampling_s = min(max(25 * max(execution_s, 0.1), 3.0), 60.0 + execution_s)
    build_s = 4.0 + (_UNROLLED_STEP_S * cost.steps if cost.unrolled else 0.0)
    states_bytes = cost.batch * (cost.steps * cost.units * _STATE_BYTES + cost.batch_bytes)
    memory_bytes = cost.data_bytes + states_bytes + cost.all_weights * _WEIGHT_BYTES
    if kind == "cpu":
        memory_bytes += _RUNTIME_BYTES
    train_s = step_s / cost.batch * (cost.trained + cost.evaluated / 3)
    return Estimate(build_s + 2 * execution_s + sampling_s, memory_bytes, train_s)


def _rate_flop_per_s(device: Device, kind: str) -> float:
    peak = device.peak.get("float32")
    if peak is not None and peak.value:
        return _REACHED * peak.value
    return _ASSUMED_FLOP_PER_S[kind] * max(1, len(device.cores))


def lint(params: RecurrentParams) -> list[ResultWarning]:
    """What the params alone tell."""
    if params.data not in ("sample", "synthetic"):
        return []
    return [warning("SYNTHETIC_DATA", f"{params.data} data was asked for, so no figure of quality is the reference's.")]


Size = Annotated[int, Field(ge=1, le=65536)]
