"""A small convolutional network learns MNIST's digits: 28 x 28 x 1, two convolutions, two dense layers.

FLOP per training sample, multiply-add = 2: forward, and the same again for the gradients of the weights and once
more for those of the inputs. Convolution 2·H·W·k²·C_in·C_out, dense 2·in·out; biases, pooling, activations and the
optimiser (2.6 % together) are left out. Convention counts the gradient with respect to the images too (3 %), which a
framework may skip.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dyno.datasets.mnist import CLASSES, SAMPLE_TEST, SAMPLE_TRAIN, TEST_SAMPLES, TRAIN_SAMPLES, DataKind
from dyno.devices.device import Device
from dyno.measure.warnings import warning
from dyno.result import Reference, ResultWarning
from dyno.workloads._digits import plan
from dyno.workloads._training import ModelTraining, TrainingParams
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload

KERNEL = 2
CONVOLUTIONS = ((28, 1, 64), (14, 64, 32))  # (side of the output, channels in, channels out)
DENSE = ((7 * 7 * 32, 256), (256, CLASSES))

_IMAGE_BYTES = 28 * 28 * 4
_STEP_BYTES_PER_SAMPLE = 1_200_000  # activations and their gradients; measured, see the test of the estimate
_RUNTIME_BYTES = 700_000_000  # TensorFlow and Keras imported, on a CPU host
_REACHED = 0.15  # of the float32 peak: small kernels, much memory traffic; measured 0.19
_ASSUMED_FLOP_PER_S = {"cpu": 1.5e10, "gpu": 5e11, "tpu": 1e12}  # per CPU core, per accelerator


class MnistCnnParams(TrainingParams):
    batch_size: Annotated[int, Field(ge=1, le=TRAIN_SAMPLES)] = 1024
    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="Adam's")
    train_samples: Annotated[int, Field(ge=1, le=TRAIN_SAMPLES)] | None = Field(None, description="null: all there are")
    test_samples: Annotated[int, Field(ge=1, le=TEST_SAMPLES)] | None = Field(None, description="null: all there are")
    data: DataKind = Field("auto", description="auto: the real set if the worker has it, else the sample that ships")


def flops_per_sample() -> float:
    """13.3 MFLOP: three times the forward pass."""
    convolutions = sum(2 * side**2 * KERNEL**2 * into * out for side, into, out in CONVOLUTIONS)
    return 3.0 * (convolutions + sum(2 * into * out for into, out in DENSE))


def flops(params: MnistCnnParams) -> float:
    """Of one execution: one training step on a full batch."""
    return flops_per_sample() * _batch(params)


def estimate(params: MnistCnnParams, device: Device) -> Estimate:
    """Data and one step's activations at once; time from the peak, or from a rate assumed for the kind of device."""
    train, test = _samples(params)
    sample_s = flops_per_sample() / _rate_flop_per_s(device)
    step_s = sample_s * _batch(params)
    sampling_s = min(max(25 * max(step_s, 0.1), 3.0), 60.0 + step_s)
    data_bytes = (TRAIN_SAMPLES + TEST_SAMPLES) * (_IMAGE_BYTES // 4) + 2 * (train + test) * _IMAGE_BYTES
    memory_bytes = data_bytes + _batch(params) * _STEP_BYTES_PER_SAMPLE
    if device.kind == "cpu":
        memory_bytes += _RUNTIME_BYTES
    train_s = sample_s * (params.epochs * train + test / 3)
    return Estimate(3.0 + 2 * step_s + sampling_s, memory_bytes, train_s)


def _batch(params: MnistCnnParams) -> int:
    return min(params.batch_size, _samples(params)[0])


def _samples(params: MnistCnnParams) -> tuple[int, int]:
    """(train, test): as many as can be here; with `auto` the real set may be."""
    train, test = (SAMPLE_TRAIN, SAMPLE_TEST) if params.data == "sample" else (TRAIN_SAMPLES, TEST_SAMPLES)
    return min(train, params.train_samples or train), min(test, params.test_samples or test)


def _rate_flop_per_s(device: Device) -> float:
    peak = device.peak.get("float32")
    if peak is not None and peak.value:
        return _REACHED * peak.value
    return _ASSUMED_FLOP_PER_S[device.kind] * max(1, len(device.cores))


def build(params: MnistCnnParams, context: BuildContext) -> Built:
    return ModelTraining(params, plan(params, context), context)


def lint(params: MnistCnnParams) -> list[ResultWarning]:
    if params.data not in ("sample", "synthetic"):
        return []
    return [warning("SYNTHETIC_DATA", f"{params.data} data was asked for, so accuracy is no reference accuracy.")]


_NOTEBOOK = "Why TPUs? (a notebook)"
_STEPS = "Step-by-Step Use of Google Colab's Free TPU"
_TWICE = "Its epoch times and its times per sample disagree by up to 1.2 x: 60,000 samples at 79 µs are 4.7 s."
_NO_MODEL = "The article doesn't state the model it timed."


def _reference(title: str, hardware: str, metric: str, value: float, doubt: str) -> Reference:
    return Reference(title=title, year="2018-19", hardware=hardware, metric=metric, value=value, unit="s", doubt=doubt)


def _by_batch(hardware: str, metric: str, values: tuple[float, float, float]) -> list[Reference]:
    """The notebook's figures at its three batch sizes."""
    named = zip((256, 512, 1024), values, strict=True)
    return [_reference(_NOTEBOOK, f"{hardware}, batch {batch}", metric, value, _TWICE) for batch, value in named]


WORKLOAD = Workload(
    name="mnist_cnn",
    description="Training a small convolutional network on MNIST's handwritten digits",
    params=MnistCnnParams,
    metrics=(
        MetricSpec("time_per_sample", "s", "lower", "Training time of one sample in steady steps on full batches"),
        MetricSpec("throughput", "samples/s", "higher", "Samples trained on per second"),
        MetricSpec("epoch_time", "s", "lower", "Time of an epoch of such steps, validation apart", amount="epoch"),
        MetricSpec("first_epoch_time", "s", "lower", "The first epoch as it was, compiling included", once=True),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=(
        *_by_batch("GPU (Colab)", "epoch_time", (6.0, 5.0, 4.0)),
        *_by_batch("TPU v2 board (Colab)", "epoch_time", (6.0, 3.0, 2.0)),
        *_by_batch("GPU (Colab)", "time_per_sample", (94e-6, 82e-6, 79e-6)),
        *_by_batch("TPU v2 board (Colab)", "time_per_sample", (97e-6, 58e-6, 37e-6)),
        _reference(_STEPS, "GPU K80 (Colab)", "epoch_time", 11.0, _NO_MODEL),
        _reference(_STEPS, "TPU v2 board (Colab)", "epoch_time", 3.0, _NO_MODEL),
    ),
    datasets=("mnist",),
    replicable=True,
    executions=lambda params: f"one training step on a full batch of {_batch(params)} samples",
)
