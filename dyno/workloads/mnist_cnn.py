"""A small convolutional network learns MNIST's digits: 28 x 28 x 1, two convolutions, two dense layers.

FLOP per training sample, multiply-add = 2: forward, and the same again for the gradients of the weights and once
more for those of the inputs. Convolution 2·H·W·k²·C_in·C_out, dense 2·in·out; biases, pooling, activations and the
optimiser (2.6 % together) are left out. Convention counts the gradient with respect to the images too (3 %), which a
framework may skip.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from dyno.datasets.idx_images import SAMPLE_TRAIN
from dyno.datasets.mnist import TRAIN_SAMPLES
from dyno.models.result import Reference
from dyno.workloads import _digits
from dyno.workloads._articles import GPU, NOTEBOOK, STEPS, TPU
from dyno.workloads._images import (
    DENSE_UNITS,
    DROPOUT_RATES,
    FILTERS,
    METRICS,
    Channels,
    ImageParams,
    Rate,
    Sized,
    Units,
)
from dyno.workloads._training_workload import training_workload


class MnistCnnParams(ImageParams):
    shipped: ClassVar[int | None] = SAMPLE_TRAIN

    batch_size: Annotated[int, Field(ge=1, le=TRAIN_SAMPLES)] = Field(1024, description="Of all replicas together")
    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    filters: list[Channels] = Field([*_digits.FILTERS], min_length=2, max_length=2, description=FILTERS)
    dense_units: Units = Field(_digits.DENSE_UNITS, description=DENSE_UNITS)
    dropout_rates: list[Rate] = Field([*_digits.DROPOUT_RATES], min_length=3, max_length=3, description=DROPOUT_RATES)


_TWICE = "Its epoch times and its times per sample disagree by up to 1.2 x: 60,000 samples at 79 µs are 4.7 s."
_NO_MODEL = "The article doesn't state the model it timed."
_WRONG = "Neither the model nor how long it was trained is stated."


def _by_batch(hardware: str, metric: str, values: tuple[float, float, float]) -> list[Reference]:
    """The notebook's figures at its three batch sizes."""
    named = zip((256, 512, 1024), values, strict=True)
    return [NOTEBOOK.figure(f"{hardware}, batch {batch}", metric, value, "s", _TWICE) for batch, value in named]


WORKLOAD = training_workload(
    Sized(lambda params: _digits.digits(params.filters, params.dense_units, params.dropout_rates)),
    "mnist_cnn",
    "Training a small convolutional network on MNIST's handwritten digits",
    MnistCnnParams,
    "mnist",
    (
        *_by_batch(GPU, "epoch_time", (6.0, 5.0, 4.0)),
        *_by_batch(TPU, "epoch_time", (6.0, 3.0, 2.0)),
        *_by_batch(GPU, "time_per_sample", (94e-6, 82e-6, 79e-6)),
        *_by_batch(TPU, "time_per_sample", (97e-6, 58e-6, 37e-6)),
        STEPS.figure("GPU K80 (Colab)", "epoch_time", 11.0, "s", _NO_MODEL),
        STEPS.figure(TPU, "epoch_time", 3.0, "s", _NO_MODEL),
        STEPS.figure(TPU, "wrong", 168.0, "digits of 10,000", _WRONG),
    ),
    METRICS,
)
