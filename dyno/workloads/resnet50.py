"""ResNet-50, the yardstick of image models, on synthetic images: trained, or run forward.

FLOP per image: see `_resnet.forward_flops`; a training step is three times that, the gradients of weights and of
inputs each costing as much as the forward pass. What is compared with a peak goes by those, in the precision asked for.
The images are random and stay on the device: no accuracy, and no input pipeline, is part of this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.frameworks.contract import Samples
from dyno.measure.warnings import warning
from dyno.models.result import DataOrigin, ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads._articles import ELSEWHERE, LABORATORY
from dyno.workloads._estimate import Work, estimated, schedule, step_of
from dyno.workloads._inference import Inference
from dyno.workloads._lint import of_batch, of_step
from dyno.workloads._optimizers import DESCRIPTION as OPTIMIZERS
from dyno.workloads._optimizers import Optimizer, made
from dyno.workloads._resnet import CHANNELS, DtypePolicy, forward_flops, make
from dyno.workloads._training import ModelTraining, Outcome, Plan
from dyno.workloads._training_params import TrainingParams
from dyno.workloads._weights import load_weights
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload

_WEIGHTS = 25_600_000
_STEP_BYTES_PER_PIXEL = (
    2_900  # activations and their gradients in a training step; 2.2 GB in all were measured at a batch of 8
)
_COMPILING_S = 60.0  # measured on two busy cores: 19 s on TensorFlow, 75 s on JAX
_REACHED = 0.35  # of the float32 peak on a CPU


class Resnet50Params(TrainingParams):
    batch_size: Annotated[int, Field(ge=1, le=4096)] = Field(32, description="Of all replicas together")
    optimizer: Optimizer = Field("sgd", description=OPTIMIZERS)
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(0.01, description="The optimiser's")
    mode: Literal["train", "inference"] = "train"
    precision: DtypePolicy = Field("float32", description="Keras' dtype policy; in the mixed ones weights stay float32")
    image_size: Annotated[int, Field(ge=32, le=1024, description="Pixels on a side")] = 224
    classes: Annotated[int, Field(ge=2, le=100_000)] = 1000
    images: Annotated[int, Field(ge=1, le=65536)] | None = Field(
        None, description="How many random images there are; null: two batches"
    )

    def conflicts(self) -> list[FieldError]:
        return super().conflicts() if self.mode == "train" else self.only_training("mode is inference")

    @property
    def replicable(self) -> bool:
        return self.mode == "train"

    @property
    def dtype(self) -> str:
        """What products are computed in."""
        return self.precision.removeprefix("mixed_")

    @property
    def samples_asked_for(self) -> tuple[str, int]:
        return "images", self.count

    @property
    def count(self) -> int:
        return self.images or 2 * self.batch_size


def _work(params: Resnet50Params) -> Work:
    half = 1.0 if params.precision == "float32" else 0.5
    pixels = params.image_size**2
    return Work(
        train_samples=params.count,
        test_samples=0,
        flops_per_sample=3 * forward_flops(params.image_size, params.classes),
        sample_bytes=pixels * CHANNELS + 4,
        step_bytes_per_sample=int(pixels * _STEP_BYTES_PER_PIXEL * half),
        weights=_WEIGHTS,
        reached=_REACHED,
    )


def flops(params: Resnet50Params) -> float:
    """Of one execution: training steps on full batches, or one batch forward."""
    if params.mode == "inference":
        return forward_flops(params.image_size, params.classes) * params.batch_size
    return 3 * forward_flops(params.image_size, params.classes) * schedule(params, _work(params)).execution


def estimate(
    params: Resnet50Params, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Estimate:
    """As a training, with the time that so many layers take to build, trace and compile; inference trains nothing."""
    full = estimated(params, device, _work(params), replicas)
    return replace(full, time_s=full.time_s + _COMPILING_S, train_s=full.train_s if params.mode == "train" else 0.0)


def build(params: Resnet50Params, context: BuildContext) -> Built:
    with context.phase("data"):
        random = np.random.default_rng(context.seed)
        shape = (params.count, params.image_size, params.image_size, CHANNELS)
        images = random.integers(0, 256, shape, dtype=np.uint8)
        labels = random.integers(0, params.classes, params.count, dtype=np.int32)
    keras = context.framework.keras
    plan = Plan(
        make=lambda jit: make(
            keras,
            params.image_size,
            params.classes,
            params.precision,
            made(keras, params.optimizer, params.learning_rate),
            jit,
        ),
        train=Samples(images, labels),
        data=DataOrigin(
            name="random images",
            kind="synthetic",
            train_samples=params.count,
            test_samples=0,
            note="random labels too: nothing to be learned, so no accuracy",
        ),
        judge=lambda model, trainer: Outcome(),
        flops_per_sample=3 * forward_flops(params.image_size, params.classes),
    )
    if params.mode == "train":
        return ModelTraining(params, plan, context)
    with context.phase("build"):
        model = plan.make(params.jit_compile is True)
        if context.weights is not None:
            load_weights(model, context.weights)
        return Inference(model, images[: params.batch_size], context)


def lint(params: Resnet50Params, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    random = warning("SYNTHETIC_DATA", "The images are random: this is about speed alone.")
    work = _work(params)
    found = [random, *of_batch(schedule(params, work).batch, replicas)]
    if device is None or params.mode == "inference":
        return found
    return [*found, *of_step(step_of(params, device, work, replicas), device)]


_AMP = "In mixed precision. Batch and input pipeline aren't those here."
_BOARD = "The article repeats it from another one, without a throughput, a batch size or a precision."

WORKLOAD = Workload(
    name="resnet50",
    description="ResNet-50 trained or run forward on random images: images per second",
    params=Resnet50Params,
    metrics=(
        MetricSpec("throughput", "images/s", "higher", "Images trained on, or recognised, per second"),
        MetricSpec("time_per_sample", "s", "lower", "Time of one image in steady steps on full batches"),
        MetricSpec("step_time", "s", "lower", "Time of one batch", amount="step"),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=(
        ELSEWHERE.figure("A100", "throughput", 2470.0, "images/s", _AMP),
        ELSEWHERE.figure("V100", "throughput", 1200.0, "images/s", _AMP),
        ELSEWHERE.figure("TPU v2 board", "throughput", 3186.0, "images/s", "Batch and precision aren't said."),
        LABORATORY.figure("TPU v2 board against a V100", "speed_up", 4.0, "times", _BOARD),
    ),
    replicable=True,
)
