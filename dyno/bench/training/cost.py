"""Estimate the sample counts, time and memory of a training before its data is loaded.

The estimates suit models in which products dominate the time. `training.recurrent` estimates recurrent models.
"""

from dataclasses import dataclass

from dyno.bench.contract import Estimate
from dyno.bench.estimates import StepCost, held_bytes, rate_flop_per_s, replicas_s, speed_up
from dyno.bench.training.evaluation import held_out_count
from dyno.bench.training.workload import TrainingParams
from dyno.models.device import Device

_FORWARD = 1 / 3  # the forward pass as a share of a training step


@dataclass(frozen=True)
class SampleCounts:
    """One execution makes `steps` steps of `batch` samples. `trained`, `validated`: samples per epoch."""

    batch: int
    steps: int
    trained: int
    validated: int
    tested: int  # after the last epoch

    @property
    def execution(self) -> int:
        """Samples per execution."""
        return self.batch * self.steps

    def in_all(self, params: TrainingParams) -> float:
        """Samples of all trainings of a job. An evaluated sample counts as a third of a trained sample."""
        tested_per_epoch = self.tested if getattr(params, "target_accuracy", None) is not None else 0
        of_epochs = params.epochs * (self.trained + _FORWARD * (self.validated + tested_per_epoch))
        return params.trials * (of_epochs + _FORWARD * self.tested)


def counts_of_epochs(params: TrainingParams, samples: int, tested: int) -> SampleCounts:
    """The counts if an epoch trains once on each sample that isn't held out. No execution spans two epochs."""
    held_out = held_out_count(samples, params.validation_share)
    trained = max(1, samples - held_out)
    batch = min(params.batch_size, trained)
    return SampleCounts(batch, min(params.steps_per_execution, trained // batch), trained, held_out, tested)


def counts_of_steps(params: TrainingParams, steps_per_epoch: int, validated: int, tested: int) -> SampleCounts:
    """The counts if epochs have `steps_per_epoch` steps on samples drawn from a larger set."""
    steps = min(params.steps_per_execution, steps_per_epoch)
    return SampleCounts(params.batch_size, steps, steps_per_epoch * params.batch_size, validated, tested)


_BUILD_S = 3.0
_BYTES_PER_WEIGHT = 4 * 5  # the weight, its gradient, Adam's two moments and a copy during saving
_REACHED = 0.15  # share of the float32 peak, low because of small kernels and memory traffic; measured 0.19
_ASSUMED_FLOP_PER_S = {"cpu": 1.5e10, "gpu": 5e11, "tpu": 1e12}  # per CPU core, per accelerator
# Time to start a step's operations and update the weights. CPU: `mnist_cnn` at batch 1 took up to 10 ms on busy cores.
# Accelerators: about fifty kernels of 5 µs.
_STEP_S = {"cpu": 3e-3, "gpu": 3e-4, "tpu": 3e-4}


@dataclass(frozen=True)
class Work:
    """Facts about a training before its data is loaded. `flops_per_sample`: FLOP of a training step per sample.

    `sample_bytes`: the size of one sample with its target on the device. `step_bytes_per_sample`: the size of a step's
    activations and their gradients per sample.
    """

    train_samples: int
    test_samples: int
    flops_per_sample: float
    sample_bytes: int
    step_bytes_per_sample: int
    weights: int = 0
    reached: float = _REACHED


def counts_of(params: TrainingParams, work: Work) -> SampleCounts:
    return counts_of_epochs(params, work.train_samples, work.test_samples)


def estimate_step(params: TrainingParams, device: Device, work: Work, replicas: int) -> StepCost:
    """The cost of a step at a share of the device's peak, or at a rate assumed for this kind of device."""
    batch = counts_of(params, work).batch
    rate = rate_flop_per_s(device, "float32", work.reached, _ASSUMED_FLOP_PER_S) * speed_up(device, replicas)
    touched = work.train_samples * work.sample_bytes + batch * work.step_bytes_per_sample
    return StepCost(
        products_s=batch * work.flops_per_sample / rate,
        own_s=_STEP_S[device.driven_as],
        touched_bytes=touched + work.weights * _BYTES_PER_WEIGHT,
    )


def estimate_training(params: TrainingParams, device: Device, work: Work, replicas: int = 1) -> Estimate:
    """Time from `estimate_step`; memory of the data, the weights and one step."""
    planned, step = counts_of(params, work), estimate_step(params, device, work, replicas)
    execution_s = planned.steps * step.time_s
    return Estimate(
        start_s=_BUILD_S + replicas_s(device, replicas) + 2 * execution_s,
        memory_bytes=_memory_bytes(params, device, work, replicas),
        train_s=planned.in_all(params) / planned.batch * step.time_s if params.train == "full" else 0.0,
        executions_s=(execution_s,),
    )


def _memory_bytes(params: TrainingParams, device: Device, work: Work, replicas: int) -> int:
    """The memory of the data and one step. Held-out samples and further trials each need another host copy."""
    copies = 1 + (params.validation_share > 0) + (params.trials > 1)
    return held_bytes(
        device,
        replicas,
        once=(copies * work.train_samples + 2 * work.test_samples) * work.sample_bytes,
        per_replica=work.train_samples * work.sample_bytes + work.weights * _BYTES_PER_WEIGHT,
        shared=counts_of(params, work).batch * work.step_bytes_per_sample,
    )
