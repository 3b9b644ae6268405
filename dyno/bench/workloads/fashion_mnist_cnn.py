"""Train a convolutional network on Fashion-MNIST: 28 x 28 x 1, three convolutions, two dense layers.

Three blocks of batch normalisation, convolution (5 x 5, ELU; 64, 128, 256 channels), pooling and dropout, then Dense
256 (ELU), dropout and Dense 10. The article names no optimiser; Dyno uses Adam with Keras' default learning rate.

A training sample takes 493 MFLOP (2 for a multiply-add). This is three times the forward pass, for the outputs, the
gradients of the weights and the gradients of the inputs. Forward, a convolution takes 2·H·W·k²·C_in·C_out, a dense
layer 2·in·out. The count omits biases, normalisation, pooling, activations and the optimiser.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from dyno.bench.datasets import fashion_mnist, image_sets
from dyno.bench.references import CPU, GPU, STEPS, TPU
from dyno.bench.training import images, workload

_FILTERS, _DENSE_UNITS, _DROPOUT_RATES = (64, 128, 256), 256, (0.25, 0.25, 0.25, 0.5)  # the reference article's


class FashionMnistCnnParams(images.ClassifierParams):
    batch_size: Annotated[int, Field(ge=1, le=image_sets.TRAIN_SAMPLES)] = Field(1024, description=images.BATCH_SIZE)
    epochs: workload.EpochCount = 15
    filters: list[images.Channels] = Field([*_FILTERS], min_length=3, max_length=3, description=images.FILTERS)
    dense_units: images.Units = Field(_DENSE_UNITS, description=images.DENSE_UNITS)
    dropout_rates: list[images.Rate] = Field(
        [*_DROPOUT_RATES], min_length=4, max_length=4, description=images.DROPOUT_RATES
    )


def _layers(keras: Any, filters: Sequence[int], dense_units: int, dropout_rates: Sequence[float]) -> Sequence[Any]:
    layers = keras.layers
    made = []
    for channels, rate in zip(filters, dropout_rates[:-1], strict=True):
        made += [
            layers.BatchNormalization(),
            layers.Conv2D(channels, 5, padding="same", activation="elu"),
            layers.MaxPooling2D(2),
            layers.Dropout(rate),
        ]
    return [
        *made,
        layers.Flatten(),
        layers.Dense(dense_units, activation="elu"),
        layers.Dropout(dropout_rates[-1]),
        layers.Dense(fashion_mnist.CLASSES, activation="softmax"),
    ]


def clothes(
    filters: Sequence[int] = _FILTERS, dense_units: int = _DENSE_UNITS, dropout_rates: Sequence[float] = _DROPOUT_RATES
) -> images.Network:
    first, second, third = filters
    return images.Network(
        load=fashion_mnist.load,
        shape=(28, 28, 1),
        samples=image_sets.samples,
        make=lambda keras: _layers(keras, filters, dense_units, dropout_rates),
        convolutions=(
            *(
                images.Convolution(28, 5, (1, first)),
                images.Convolution(14, 5, (first, second)),
                images.Convolution(7, 5, (second, third)),
            ),
        ),
        dense=((3 * 3 * third, dense_units), (dense_units, fashion_mnist.CLASSES)),
        step_bytes_per_value=11.5,  # 1 MB per sample; measured on a CPU at batch 128 to 512: 0.9 MB
    )


CLOTHES = clothes()

_DOUBT = (
    "The article states neither the model nor whether the time includes compiling and validation; its 7 s per epoch "
    "would add up to 105 s."
)


WORKLOAD = workload.training_workload(
    images.ImageTraining(lambda params: clothes(params.filters, params.dense_units, params.dropout_rates)),
    "fashion_mnist_cnn",
    "Training a convolutional network on Fashion-MNIST's pictures of clothes",
    FashionMnistCnnParams,
    "fashion_mnist",
    (
        STEPS.figure(TPU, "training_time", 102.0, "s", _DOUBT),
        STEPS.figure(GPU, "training_time", 196.0, "s", _DOUBT),
        STEPS.figure(CPU, "training_time", 11_164.0, "s", _DOUBT),
        STEPS.figure(TPU, "epoch_time", 7.0, "s", _DOUBT),
    ),
    images.IMAGE_METRICS,
    smoke=workload.training_smoke(
        {"batch_size": 32, "train_samples": 64, "test_samples": 32, "data": "sample"}, {"wrong_images"}, {"wrong.png"}
    ),
    bench={"train_samples": 4096, "test_samples": 2000, "epochs": 2, "batch_size": 128},
    options=images.IMAGE_OPTIONS,
)
