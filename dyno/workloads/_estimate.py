"""What a training takes in time and memory, from the work of one sample: for models bound by their products."""

from __future__ import annotations

from dataclasses import dataclass

from dyno.devices.device import Device
from dyno.workloads._holdout import held_out_count
from dyno.workloads._training import TrainingParams
from dyno.workloads.contract import Estimate

_RUNTIME_BYTES = 700_000_000  # a framework and Keras imported, on a CPU host
_BYTES_PER_WEIGHT = 4 * 5  # it, its gradient, Adam's two moments and a copy while it is saved
_REACHED = 0.15  # of the float32 peak: small kernels, much memory traffic; measured 0.19
_ASSUMED_FLOP_PER_S = {"cpu": 1.5e10, "gpu": 5e11, "tpu": 1e12}  # per CPU core, per accelerator
_INFERENCE = 1 / 3  # of a training step: the forward pass alone


@dataclass(frozen=True)
class Work:
    """What is known of a training before its data are loaded. `flops_per_sample`: of a training step.

    `sample_bytes`: one sample with its target, as it lies on the device. `step_bytes_per_sample`: a step's activations
    and their gradients, of one sample.
    """

    train_samples: int
    test_samples: int
    flops_per_sample: float
    sample_bytes: int
    step_bytes_per_sample: int
    weights: int = 0
    reached: float = _REACHED


def trained_samples(params: TrainingParams, work: Work) -> int:
    """Those of an epoch: all but the share held out."""
    return max(1, work.train_samples - held_out_count(work.train_samples, params.validation_share))


def execution_samples(params: TrainingParams, work: Work) -> int:
    """Those of one execution: full batches, never past the end of an epoch."""
    count = trained_samples(params, work)
    batch = min(params.batch_size, count)
    return batch * min(params.steps_per_execution, count // batch)


def estimated(params: TrainingParams, device: Device, work: Work) -> Estimate:
    """Time from the device's peak, or from a rate assumed for its kind; memory from the data and one step."""
    trained = trained_samples(params, work)
    sample_s = work.flops_per_sample / _rate_flop_per_s(device, work.reached)
    execution_s = sample_s * execution_samples(params, work)
    sampling_s = min(max(25 * max(execution_s, 0.1), 3.0), 60.0 + execution_s)
    validated = params.epochs * (work.train_samples - trained)
    of_one_training = params.epochs * trained + _INFERENCE * (validated + work.test_samples)
    return Estimate(
        time_s=3.0 + 2 * execution_s + sampling_s,
        memory_bytes=_memory_bytes(params, device, work),
        train_s=sample_s * params.trials * of_one_training,
    )


def _memory_bytes(params: TrainingParams, device: Device, work: Work) -> int:
    """As loaded and as on the device; once more for a part held out, and for a second trial's trainer."""
    copies = 2 + (params.validation_share > 0) + (params.trials > 1)
    data_bytes = (copies * work.train_samples + 2 * work.test_samples) * work.sample_bytes
    step_bytes = min(params.batch_size, trained_samples(params, work)) * work.step_bytes_per_sample
    runtime_bytes = _RUNTIME_BYTES if device.kind == "cpu" or device.emulated else 0
    return data_bytes + step_bytes + work.weights * _BYTES_PER_WEIGHT + runtime_bytes


def _rate_flop_per_s(device: Device, reached: float) -> float:
    peak = device.peak.get("float32")
    if peak is not None and peak.value:
        return reached * peak.value
    kind = "cpu" if device.emulated else device.kind
    return _ASSUMED_FLOP_PER_S[kind] * max(1, len(device.cores))
