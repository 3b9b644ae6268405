"""A convolutional network learns the clothes of Fashion-MNIST: 28 x 28 x 1, three convolutions, two dense layers.

Three blocks of batch normalisation, convolution (5 x 5, ELU; 64, 128, 256 channels), pooling and dropout, then Dense
256 (ELU), dropout and Dense 10. The article names no optimiser; here it is Adam with Keras' own rate.

FLOP per training sample, multiply-add = 2: forward, and the same again for the gradients of the weights and once
more for those of the inputs: 493 MFLOP. Convolution 2·H·W·k²·C_in·C_out, dense 2·in·out; biases, normalisation,
pooling, activations and the optimiser are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from dyno.datasets import fashion_mnist, idx_images
from dyno.workloads._articles import CPU, GPU, STEPS, TPU
from dyno.workloads._images import METRICS, Convolution, ImageParams, Network
from dyno.workloads._training_workload import training_workload


class FashionMnistCnnParams(ImageParams):
    batch_size: Annotated[int, Field(ge=1, le=fashion_mnist.TRAIN_SAMPLES)] = Field(
        1024, description="Of all replicas together"
    )
    epochs: Annotated[int, Field(ge=1, le=1000)] = 15


def _layers(keras: Any) -> Sequence[Any]:
    layers = keras.layers
    made = []
    for channels in (64, 128, 256):
        made += [
            layers.BatchNormalization(),
            layers.Conv2D(channels, 5, padding="same", activation="elu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
        ]
    return [
        *made,
        layers.Flatten(),
        layers.Dense(256, activation="elu"),
        layers.Dropout(0.5),
        layers.Dense(fashion_mnist.CLASSES, activation="softmax"),
    ]


CLOTHES = Network(
    load=fashion_mnist.load,
    shape=(28, 28, 1),
    samples=idx_images.samples,
    make=_layers,
    convolutions=(Convolution(28, 5, (1, 64)), Convolution(14, 5, (64, 128)), Convolution(7, 5, (128, 256))),
    dense=((3 * 3 * 256, 256), (256, fashion_mnist.CLASSES)),
    step_bytes_per_sample=1_000_000,  # measured: 0.9 MB on a CPU from batch 128 to 512
)

_DOUBT = (
    "Neither the model nor whether the time takes in compiling and validation is stated; the article's 7 s an epoch "
    "would be 105 s."
)


WORKLOAD = training_workload(
    CLOTHES,
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
    METRICS,
)
