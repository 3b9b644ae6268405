"""What the training of a recurrent model takes in time and memory: its products, and a price for each step in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dyno.devices.device import Device
from dyno.models.spec import FrameworkName
from dyno.workloads._cost import Step, held_bytes, rate_flop_per_s, replicas_s, speed_up
from dyno.workloads._recurrent import Recurrence
from dyno.workloads._schedule import Schedule

_BUILD_S = 4.0
_UNROLLED_STEP_S = 0.1  # to build one step of an unrolled loop
# Of the float32 peak by the products alone, apart from what each step in time costs; measured 0.3 to 0.45.
_REACHED = 0.35
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 2e12, "tpu": 4e12}  # per CPU core, per accelerator
# A step in time costs so much whatever the batch, forward and back: the loop itself, and reading its weights and adding
# up their gradients. CPU: fitted to 4 to 256 samples of the three workloads on two Zen 4 cores.
_STEP_S = {"cpu": 3e-4, "gpu": 1e-4, "tpu": 5e-5}
_STEP_S_PER_WEIGHT = {"cpu": 2e-9, "gpu": 2e-11, "tpu": 2e-11}
# Kept for the way back, for each sample, step in time and unit: measured on a CPU. Of PyTorch nothing is known.
_STATE_BYTES: dict[FrameworkName, int] = {"tensorflow": 36, "jax": 76, "torch": 76}
_WEIGHT_BYTES = 4 * 6  # a weight, its gradient, the optimiser's one or two, and copies while they are made


@dataclass(frozen=True)
class Cost:
    """What an estimate goes by. `steps` are those in time of one sample, over all its recurrent layers."""

    schedule: Schedule
    flops_per_sample: float
    steps: int
    units: int
    weights: int  # of one recurrent layer
    all_weights: int
    host_bytes: int  # of the data, while they are read
    data_bytes: int  # … and as they lie on each device
    sample_bytes: int  # of one sample in a step, apart from the layers' states: its inputs and outputs


def step_of(cost: Cost, device: Device, replicas: int) -> Step:
    """The products at a share of the peak (or an assumed rate), and each step in time for its own sake.

    Every replica has a loop of its own; those of virtual devices share the cores. What is touched is the most that any
    framework would keep: only what surely fits into a cache is to be doubted.
    """
    kind = device.driven_as
    rate = rate_flop_per_s(device, "float32", _REACHED, _ASSUMED_FLOP_PER_S) * speed_up(device, replicas)
    loops = math.ceil(replicas / max(1, len(device.cores))) if kind == "cpu" else 1
    return Step(
        products_s=cost.schedule.batch * cost.flops_per_sample / rate,
        own_s=loops * cost.steps * (_STEP_S[kind] + cost.weights * _STEP_S_PER_WEIGHT[kind]),
        touched_bytes=cost.data_bytes
        + _states_bytes(cost, max(_STATE_BYTES.values()))
        + cost.all_weights * _WEIGHT_BYTES,
    )


def _states_bytes(cost: Cost, state_bytes: int) -> int:
    return cost.schedule.batch * (cost.steps * cost.units * state_bytes + cost.sample_bytes)


def memory_bytes(cost: Cost, device: Device, replicas: int, framework: FrameworkName) -> int:
    """The data, the weights and one step's states."""
    each = cost.data_bytes + cost.all_weights * _WEIGHT_BYTES
    return held_bytes(
        device, replicas, once=cost.host_bytes, each=each, shared=_states_bytes(cost, _STATE_BYTES[framework])
    )


def build_s(cost: Cost, device: Device, replicas: int, recurrence: Recurrence) -> float:
    """An unrolled loop is built step by step."""
    unrolled_s = _UNROLLED_STEP_S * cost.steps if recurrence == "unrolled" else 0.0
    return _BUILD_S + replicas_s(device, replicas) + unrolled_s
