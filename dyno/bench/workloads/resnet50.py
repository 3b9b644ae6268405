"""Train ResNet-50, the standard image model, or run it forward, on synthetic images.

Version 1 is Keras' network (He et al. 2015, with the stride in each stage's first 1 x 1 convolution). Version 1.5, to
which most published throughputs refer, has the stride in the 3 x 3 convolution (torchvision, MLPerf, NVIDIA's Deep
Learning Examples), and no biases before a normalisation. FLOP per image: see `forward_flops`. A training step takes
three times as many, because the gradients of weights and of inputs each cost as much as the forward pass. The
comparison with a peak uses these FLOP and the peak of the requested precision. The images are random and stay on the
device, so the workload measures neither accuracy nor an input pipeline.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dyno.bench import contract, estimates, references
from dyno.bench.frameworks.interface import Dataset, JitCompile
from dyno.bench.frameworks.keras import dtype_policy
from dyno.bench.measure.warnings import warning
from dyno.bench.training.checkpoints import load_weights
from dyno.bench.training.cost import Work, counts_of, estimate_step, estimate_training
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.workload import LearningRate, OptimizerName, TrainingParams, new_optimizer
from dyno.bench.workloads._forward import Inference
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.result import DataOrigin, ResultWarning
from dyno.models.spec import FrameworkName

DtypePolicy = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Version = Literal["v1", "v1.5"]
CHANNELS = 3
_STEM = (7, 64)  # kernel, channels
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # channels of the narrow convolutions, number of blocks
_WIDENING = 4


def convolutions(image_size: int, version: Version = "v1") -> Iterator[tuple[int, int, int, int]]:
    """(side of the output, kernel, channels in, channels out) of all 53 convolutions."""
    kernel, channels = _STEM
    side = (image_size + 6 - kernel) // 2 + 1
    yield side, kernel, CHANNELS, channels
    side = (side + 2 - 3) // 2 + 1  # pooling 3 x 3, stride 2
    for stage, (narrow, blocks) in enumerate(_STAGES):
        for block in range(blocks):
            before = side
            if block == 0:
                side = side if stage == 0 else (side - 1) // 2 + 1
                yield side, 1, channels, narrow * _WIDENING
            yield before if version == "v1.5" else side, 1, channels, narrow
            yield side, 3, narrow, narrow
            yield side, 1, narrow, narrow * _WIDENING
            channels = narrow * _WIDENING


def forward_flops(image_size: int, classes: int, version: Version = "v1") -> float:
    """FLOP of the forward pass of one image, multiply-add = 2: 7.7 GFLOP at 224 x 224 x 3 and 1000 classes.

    Convolution 2·H·W·k²·C_in·C_out, dense 2·in·out. The count omits normalisation, activations, pooling and additions.
    Version 1.5 takes 8.2 GFLOP, the often quoted 4.1 G multiply-adds.
    """
    products = sum(side**2 * kernel**2 * into * out for side, kernel, into, out in convolutions(image_size, version))
    return 2.0 * (products + _STAGES[-1][0] * _WIDENING * classes)


def _version_1_5(keras: Any, image_size: int, classes: int) -> Any:
    """The network without its softmax."""
    layers = keras.layers

    def normalised(values: Any, channels: int, kernel: int, stride: int = 1) -> Any:
        convolved = layers.Conv2D(channels, kernel, strides=stride, padding="same", use_bias=False)(values)
        return layers.BatchNormalization(epsilon=1e-5)(convolved)

    def block(values: Any, narrow: int, stride: int, *, widens: bool) -> Any:
        wide = narrow * _WIDENING
        inner = layers.ReLU()(normalised(values, narrow, 1))
        inner = layers.ReLU()(normalised(inner, narrow, 3, stride))
        beside = normalised(values, wide, 1, stride) if widens else values
        return layers.ReLU()(layers.Add()([normalised(inner, wide, 1), beside]))

    kernel, channels = _STEM
    images = keras.Input((image_size, image_size, CHANNELS))
    values = layers.ReLU()(normalised(images, channels, kernel, 2))
    values = layers.MaxPooling2D(3, 2, padding="same")(values)
    for stage, (narrow, blocks) in enumerate(_STAGES):
        for number in range(blocks):
            values = block(values, narrow, 2 if stage > 0 and number == 0 else 1, widens=number == 0)
    return keras.Model(images, layers.Dense(classes)(layers.GlobalAveragePooling2D()(values)))


def resnet50_model(
    keras: Any,
    image_size: int,
    classes: int,
    policy: DtypePolicy,
    optimizer: Any,
    jit_compile: JitCompile,
    version: Version = "v1",
) -> Any:
    """A model with new weights, compiled for training on uint8 images and class numbers. The softmax is float32."""
    with dtype_policy(keras, policy):
        body = (
            _version_1_5(keras, image_size, classes)
            if version == "v1.5"
            else keras.applications.ResNet50(
                weights=None,
                input_shape=(image_size, image_size, CHANNELS),
                classes=classes,
                classifier_activation=None,
            )
        )
        images = keras.Input((image_size, image_size, CHANNELS), dtype="uint8")
        logits = body(keras.layers.Rescaling(1 / 127.5, offset=-1)(images))
        model = keras.Model(images, keras.layers.Activation("softmax", dtype="float32")(logits))
        model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", jit_compile=jit_compile)
    return model


_WEIGHTS = 25_600_000
_STEP_BYTES_PER_PIXEL = (
    2_900  # activations and their gradients in a training step; measured at batch 8: 2.2 GB in total
)
_COMPILING_S = 60.0  # measured on two busy cores: 19 s on TensorFlow, 75 s on JAX
_REACHED = 0.35  # share of the float32 peak on a CPU


class Resnet50Params(TrainingParams):
    batch_size: Annotated[int, Field(ge=1, le=4096)] = Field(32, description="Total over all replicas")
    optimizer: OptimizerName = "sgd"
    learning_rate: LearningRate = 0.01
    mode: Literal["train", "inference"] = "train"
    version: Version = Field(
        "v1", description="v1: Keras' network; v1.5: stride in the 3 x 3 convolutions, as in most published figures"
    )
    precision: DtypePolicy = Field("float32", description="Keras' dtype policy; mixed policies keep float32 weights")
    image_size: Annotated[int, Field(ge=32, le=1024, description="Height and width in pixels")] = 224
    classes: Annotated[int, Field(ge=2, le=100_000)] = 1000
    images: Annotated[int, Field(ge=1, le=65536)] | None = Field(
        None, description="Number of random images; null: two batches"
    )
    rate_per_s: contract.RatePerS | None = Field(None, description=f"{contract.RATE}. For inference")
    untimed: ClassVar[frozenset[str]] = TrainingParams.untimed | {"rate_per_s"}

    def conflicts(self) -> list[FieldError]:
        if self.mode == "inference":
            return self.only_training('mode is "inference"')
        detail = 'with the mode "train", no calls are timed: leave this field out'
        wrong = [] if self.rate_per_s is None else [FieldError("/rate_per_s", "no-calls", detail)]
        return [*wrong, *super().conflicts()]

    @property
    def replicable(self) -> bool:
        return self.mode == "train"

    @property
    def dtype(self) -> str:
        """The dtype of the products."""
        return self.precision.removeprefix("mixed_")

    @property
    def samples_asked_for(self) -> tuple[str, int]:
        return "images", self.count

    @property
    def count(self) -> int:
        return self.images or 2 * self.batch_size

    @property
    def forward_flops(self) -> float:
        """FLOP of the forward pass of one image."""
        return forward_flops(self.image_size, self.classes, self.version)


def _work(params: Resnet50Params) -> Work:
    half = 1.0 if params.precision == "float32" else 0.5
    pixels = params.image_size**2
    return Work(
        train_samples=params.count,
        test_samples=0,
        flops_per_sample=3 * params.forward_flops,
        sample_bytes=pixels * CHANNELS + 4,
        step_bytes_per_sample=int(pixels * _STEP_BYTES_PER_PIXEL * half),
        weights=_WEIGHTS,
        reached=_REACHED,
    )


def flops(params: Resnet50Params) -> float:
    """FLOP of one execution: training steps on full batches, or one forward pass of a batch."""
    if params.mode == "inference":
        return params.forward_flops * params.batch_size
    return 3 * params.forward_flops * counts_of(params, _work(params)).execution


def estimate(
    params: Resnet50Params, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    """A training's estimate, plus the time to build, trace and compile so many layers. Inference doesn't train."""
    full = estimate_training(params, device, _work(params), replicas)
    return replace(full, start_s=full.start_s + _COMPILING_S, train_s=full.train_s if params.mode == "train" else 0.0)


def build(params: Resnet50Params, context: contract.BuildContext) -> contract.Built:
    with context.phase("data"):
        random = np.random.default_rng(context.seed)
        shape = (params.count, params.image_size, params.image_size, CHANNELS)
        images = random.integers(0, 256, shape, dtype=np.uint8)
        labels = random.integers(0, params.classes, params.count, dtype=np.int32)
    keras = context.framework.keras
    plan = Plan(
        make=lambda jit: resnet50_model(
            keras,
            params.image_size,
            params.classes,
            params.precision,
            new_optimizer(keras, params.optimizer, params.learning_rate),
            jit,
            params.version,
        ),
        train=Dataset(images, labels),
        data=DataOrigin(
            name="random images",
            kind="synthetic",
            train_samples=params.count,
            test_samples=0,
            note="labels are random too, so accuracy is meaningless",
        ),
        judge=lambda model, trainer: TrainingOutcome(),
        params={"images": params.count},
        flops_per_sample=3 * params.forward_flops,
    )
    if params.mode == "train":
        return ModelTraining(params, plan, context)
    with context.phase("build"):
        model = plan.make(params.jit_compile is True)
        if context.weights is not None:
            load_weights(model, context.weights)
        return Inference(model, images[: params.batch_size], context)


def lint(params: Resnet50Params, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    random = warning("SYNTHETIC_DATA", "The images are random: only the speed is meaningful.")
    work = _work(params)
    warnings = [random, *estimates.batch_warnings(counts_of(params, work).batch, replicas)]
    if device is None or params.mode == "inference":
        return warnings
    return [*warnings, *estimates.step_warnings(estimate_step(params, device, work, replicas), device)]


_AMP = "Of version 1.5 (`version`), in mixed precision, with a different batch size and input pipeline."
_BOARD = "The article quotes another one, without a throughput, a batch size or a precision."

_METRICS = (
    contract.MetricSpec("throughput", "samples/s", "higher", "Images trained on or recognised per second"),
    contract.MetricSpec("time_per_sample", "s", "lower", "Time of one image in steady steps on full batches"),
    contract.MetricSpec("step_time", "s", "lower", "Time of one batch", amount="step"),
)

WORKLOAD = contract.Workload(
    name="resnet50",
    description="ResNet-50 trained or run forward on random images: images per second",
    params=Resnet50Params,
    metrics=(*_METRICS, *contract.LATENCIES),
    metrics_of=lambda params: (*_METRICS, *contract.LATENCIES) if params.mode == "inference" else _METRICS,
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=(
        references.ELSEWHERE.figure("A100", "throughput", 2470.0, "samples/s", _AMP),
        references.ELSEWHERE.figure("V100", "throughput", 1200.0, "samples/s", _AMP),
        references.ELSEWHERE.figure(
            "TPU v2 board", "throughput", 3186.0, "samples/s", "Batch size and precision aren't stated."
        ),
        references.LABORATORY.figure("TPU v2 board against a V100", "speed_up", 4.0, "times", _BOARD),
    ),
    replicable=True,
    smoke=contract.Smoke(
        {
            "epochs": 1,
            "jit_compile": False,
            "batch_size": 2,
            "image_size": 32,
            "classes": 10,
            "images": 4,
            "mode": "train",
        },
        on_jax={"mode": "inference"},  # XLA compiles its training for half a minute
    ),
    bench={"image_size": 128, "batch_size": 16},
    options="training or inference, in single or mixed precision; version 1 or 1.5 of the network",
)
