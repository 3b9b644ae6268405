"""Shared parts of the recurrent workloads: params, FLOP count, kernel, estimate and the `Workload`'s functions.

FLOP of one time step of one sample, forward, multiply-add = 2: the four gates of an LSTM take 8·units·(inputs + units),
the three gates of a GRU take 6·units·(inputs + units). A training step takes three times the forward pass: once more
for the gradients of the weights, and once more for the gradients of the inputs and states. The count omits biases,
element-wise operations and activations. The time estimate adds a fixed cost per time step to the products' cost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from dyno.bench import contract, estimates
from dyno.bench.datasets.loading import SAMPLED, DataKind
from dyno.bench.training.cost import SampleCounts
from dyno.bench.training.model_training import ModelTraining, Plan
from dyno.bench.training.workload import TrainingParams
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName

Recurrence = Literal["auto", "loop", "unrolled"]
MAX_UNROLLED = 256  # steps; the graph and its build time grow with their number

Width = Annotated[int, Field(ge=1, le=65536)]  # of an embedding
Units = Annotated[int, Field(ge=1, le=8192)]  # of a recurrent layer


class RecurrentParams(TrainingParams):
    recurrence: Recurrence = Field(
        "auto", description="auto: the fused kernel if available; loop: never fused; unrolled: all steps written out"
    )
    data: DataKind = Field("auto", description=SAMPLED)

    def unrolled_too_far(self, steps: int, pointer: str) -> list[FieldError]:
        """A field error if `steps` are too many to unroll."""
        if self.recurrence != "unrolled" or steps <= MAX_UNROLLED:
            return []
        return [FieldError(pointer, "too-long-to-unroll", f"an unrolled loop has at most {MAX_UNROLLED} steps")]


def lstm_flops(inputs: int, units: int) -> float:
    """FLOP of the forward pass for one time step of one sample."""
    return 8.0 * units * (inputs + units)


def gru_flops(inputs: int, units: int) -> float:
    """FLOP of the forward pass for one time step of one sample."""
    return 6.0 * units * (inputs + units)


def layer_options(recurrence: Recurrence) -> dict[str, Any]:
    """Arguments for Keras' LSTM and GRU."""
    return {"unroll": recurrence == "unrolled", "use_cudnn": "auto" if recurrence == "auto" else False}


def jit_unmeasured(recurrence: Recurrence, device: Device | None) -> str | None:
    """The reason not to try TensorFlow's XLA: on a CPU, even one attempt with a loop could exhaust the memory.

    Measured on 2 cores, XLA multiplied a step's time by 1.2 and its memory by 4 (`imdb_lstm`), or its time by over 7
    and its memory by over 10 (`shakespeare_lstm`, 32 windows). Eight windows of `weather_gru` took over 18e9 bytes.
    """
    if recurrence == "unrolled":
        return None
    if device is None or device.driven_as == "cpu":
        return "on a CPU, XLA slows recurrent loops down and multiplies their memory"
    return "XLA can't compile the fused kernel" if recurrence == "auto" else None


def rnn_kernel(context: contract.BuildContext, recurrence: Recurrence, layer: Literal["lstm", "gru"]) -> JsonValue:
    """The kernel that Keras' rule selects for the `layer`. A run doesn't reveal the kernel that it used."""
    device = context.device
    kind = "cpu" if device is None or device.emulated else device.kind
    name = context.framework.name
    if recurrence == "unrolled" and name != "torch":  # on PyTorch, Keras has only a loop in Python
        kernel = "unrolled loop"
    elif recurrence == "auto" and kind == "gpu" and (name, layer) != ("jax", "gru"):
        kernel = "fused (cuDNN)"
    else:
        kernel = {"tensorflow": "while loop", "jax": "scan"}.get(name, "loop in Python")
    return {"kernel": kernel, "basis": f"Keras' rule for {layer.upper()} layers of {name} on a {kind}, not observed"}


_BUILD_S = 4.0
_UNROLLED_STEP_S = 0.1  # to build one step of an unrolled loop
# Share of the float32 peak that the products reach, without the fixed cost per time step; measured 0.3 to 0.45.
_REACHED = 0.35
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 2e12, "tpu": 4e12}  # per CPU core, per accelerator
# Fixed cost of a time step for any batch, forward and backward: the loop itself, reading the weights and summing their
# gradients. CPU values are fitted to batches of 4 to 256 samples of the three workloads on two Zen 4 cores.
_STEP_S = {"cpu": 3e-4, "gpu": 1e-4, "tpu": 5e-5}
_STEP_S_PER_WEIGHT = {"cpu": 2e-9, "gpu": 2e-11, "tpu": 2e-11}
# Bytes kept for the backward pass per sample, time step and unit. Measured on a CPU; PyTorch wasn't measured.
_STATE_BYTES: dict[FrameworkName, int] = {"tensorflow": 36, "jax": 76, "torch": 76}
_WEIGHT_BYTES = 4 * 6  # the weight, its gradient, the optimiser's one or two values, and temporary copies


@dataclass(frozen=True)
class RecurrentCost:
    """Inputs of an estimate. `steps`: the time steps of one sample, summed over its recurrent layers."""

    counts: SampleCounts
    flops_per_sample: float
    steps: int
    units: int
    weights: int  # of one recurrent layer
    all_weights: int
    host_bytes: int  # of the data while it is read
    data_bytes: int  # of the data on each device
    sample_bytes: int  # inputs and outputs of one sample in a step, without the layers' states


def estimate_recurrent_step(cost: RecurrentCost, device: Device, replicas: int) -> estimates.StepCost:
    """The time of the products at a share of the peak (or an assumed rate), plus the fixed cost of each time step.

    Every replica has its own loop; the loops of virtual devices share the cores. `touched_bytes` assumes the framework
    that keeps the most bytes, so only data that surely fits in a cache raises CACHE_RESIDENT.
    """
    kind = device.driven_as
    rate = estimates.rate_flop_per_s(device, "float32", _REACHED, _ASSUMED_FLOP_PER_S) * estimates.speed_up(
        device, replicas
    )
    loops = math.ceil(replicas / max(1, len(device.cores))) if kind == "cpu" else 1
    return estimates.StepCost(
        products_s=cost.counts.batch * cost.flops_per_sample / rate,
        own_s=loops * cost.steps * (_STEP_S[kind] + cost.weights * _STEP_S_PER_WEIGHT[kind]),
        touched_bytes=cost.data_bytes
        + _states_bytes(cost, max(_STATE_BYTES.values()))
        + cost.all_weights * _WEIGHT_BYTES,
    )


def _states_bytes(cost: RecurrentCost, state_bytes: int) -> int:
    return cost.counts.batch * (cost.steps * cost.units * state_bytes + cost.sample_bytes)


def memory_bytes(cost: RecurrentCost, device: Device, replicas: int, framework: FrameworkName) -> int:
    """Memory of the data, the weights and one step's states."""
    return estimates.held_bytes(
        device,
        replicas,
        once=cost.host_bytes,
        per_replica=cost.data_bytes + cost.all_weights * _WEIGHT_BYTES,
        shared=_states_bytes(cost, _STATE_BYTES[framework]),
    )


def build_s(cost: RecurrentCost, device: Device, replicas: int, recurrence: Recurrence) -> float:
    """Time to build the model; an unrolled loop is built step by step."""
    unrolled_s = _UNROLLED_STEP_S * cost.steps if recurrence == "unrolled" else 0.0
    return _BUILD_S + estimates.replicas_s(device, replicas) + unrolled_s


_WIDTHS = ("units", "embedding")
_NO_QUALITY = "quality figures aren't comparable with the reference"


@dataclass(frozen=True)
class RecurrentTraining:
    """`after_s(params, device)`: additional time of one training after its epochs and evaluation."""

    plan: Callable[[Any, contract.BuildContext], Plan]
    cost: Callable[[Any], RecurrentCost]
    after_s: Callable[[Any, Device], float] = lambda params, device: 0.0

    def flops(self, params: RecurrentParams) -> float:
        """FLOP of one execution: training steps on full batches, never past the end of an epoch."""
        cost = self.cost(params)
        return cost.flops_per_sample * cost.counts.execution

    def estimate(
        self, params: RecurrentParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
    ) -> contract.Estimate:
        cost = self.cost(params)
        step_s = estimate_recurrent_step(cost, device, replicas).time_s
        execution_s = cost.counts.steps * step_s
        steps = cost.counts.in_all(params) / cost.counts.batch
        train_s = steps * step_s + params.trials * self.after_s(params, device)
        return contract.Estimate(
            start_s=build_s(cost, device, replicas, params.recurrence) + 2 * execution_s,
            memory_bytes=memory_bytes(cost, device, replicas, framework),
            train_s=train_s if params.train == "full" else 0.0,
            executions_s=(execution_s,),
        )

    def lint(self, params: RecurrentParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
        cost = self.cost(params)
        kind: DataKind = "real" if params.data == "sample" else params.data  # the shipped sets are complete
        widths = {name: getattr(params, name) for name in _WIDTHS if hasattr(params, name)}
        of_device = (
            []
            if device is None
            else estimates.step_warnings(estimate_recurrent_step(cost, device, replicas), device, widths)
        )
        return [
            *estimates.data_warnings(kind, _NO_QUALITY),
            *estimates.batch_warnings(cost.counts.batch, replicas),
            *of_device,
        ]

    def build(self, params: RecurrentParams, context: contract.BuildContext) -> contract.Built:
        """FLOP are counted per sample, because a framework may make fewer steps per execution than requested."""
        plan = replace(self.plan(params, context), flops_per_sample=self.cost(params).flops_per_sample)
        return ModelTraining(params, plan, context)
