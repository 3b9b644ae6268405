"""Train a small convolutional network on MNIST: 28 x 28 x 1, two convolutions, two dense layers.

A training sample takes three times the FLOP of the forward pass (2 for a multiply-add), for the outputs, the gradients
of the weights and the gradients of the inputs. Forward, a convolution takes 2·H·W·k²·C_in·C_out, a dense layer
2·in·out. The count omits biases, pooling, activations and the optimiser (2.6 % together). By convention it includes the
gradient with respect to the images (3 %), although a framework may skip it.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from dyno.bench.datasets import image_sets, mnist
from dyno.bench.references import GPU, NOTEBOOK, STEPS, TPU
from dyno.bench.training import images, workload
from dyno.models.result import Reference

_FILTERS, _DENSE_UNITS, _DROPOUT_RATES = (64, 32), 256, (0.3, 0.3, 0.5)  # the reference article's


def _layers(keras: Any, filters: Sequence[int], dense_units: int, dropout_rates: Sequence[float]) -> Sequence[Any]:
    layers = keras.layers
    return [
        layers.Conv2D(filters[0], 2, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout_rates[0]),
        layers.Conv2D(filters[1], 2, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout_rates[1]),
        layers.Flatten(),
        layers.Dense(dense_units, activation="relu"),
        layers.Dropout(dropout_rates[2]),
        layers.Dense(mnist.CLASSES, activation="softmax"),
    ]


def digits(
    filters: Sequence[int] = _FILTERS, dense_units: int = _DENSE_UNITS, dropout_rates: Sequence[float] = _DROPOUT_RATES
) -> images.Network:
    first, second = filters
    return images.Network(
        load=mnist.load,
        shape=(28, 28, 1),
        samples=image_sets.samples,
        make=lambda keras: _layers(keras, filters, dense_units, dropout_rates),
        convolutions=(images.Convolution(28, 2, (1, first)), images.Convolution(14, 2, (first, second))),
        dense=((7 * 7 * second, dense_units), (dense_units, mnist.CLASSES)),
        step_bytes_per_value=21,  # 1.2 MB per sample; measured on a CPU at batch 128 to 512: 0.8 MB
        noun="digits",
    )


DIGITS = digits()


class MnistCnnParams(images.ClassifierParams):
    batch_size: Annotated[int, Field(ge=1, le=image_sets.TRAIN_SAMPLES)] = Field(1024, description=images.BATCH_SIZE)
    epochs: workload.EpochCount = 10
    filters: list[images.Channels] = Field([*_FILTERS], min_length=2, max_length=2, description=images.FILTERS)
    dense_units: images.Units = Field(_DENSE_UNITS, description=images.DENSE_UNITS)
    dropout_rates: list[images.Rate] = Field(
        [*_DROPOUT_RATES], min_length=3, max_length=3, description=images.DROPOUT_RATES
    )


_TWICE = "The epoch times and the times per sample disagree by up to 1.2 x: 60,000 samples at 79 µs take 4.7 s."
_NO_MODEL = "The article doesn't state the model it timed."
_WRONG = "The article states neither the model nor the length of the training."


def _by_batch(hardware: str, metric: str, values: tuple[float, float, float]) -> list[Reference]:
    """The notebook's figures at its three batch sizes."""
    by_batch = zip((256, 512, 1024), values, strict=True)
    return [NOTEBOOK.figure(f"{hardware}, batch {batch}", metric, value, "s", _TWICE) for batch, value in by_batch]


WORKLOAD = workload.training_workload(
    images.ImageTraining(lambda params: digits(params.filters, params.dense_units, params.dropout_rates)),
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
    images.IMAGE_METRICS,
    smoke=workload.training_smoke(
        {"batch_size": 128, "train_samples": 256, "test_samples": 128, "data": "sample"},
        {"wrong_digits"},
        {"wrong.png"},
    ),
    bench={"train_samples": 8192, "epochs": 3, "batch_size": 256},
    options=images.IMAGE_OPTIONS,
)
