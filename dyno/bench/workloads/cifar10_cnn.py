"""Train a convolutional network on CIFAR-10: 32 x 32 x 3, four convolutions, two dense layers.

Two blocks of batch normalisation, two convolutions (3 x 3, ReLU; 32, then 64 channels; the last without padding),
pooling and dropout, then Dense 512 (ReLU), dropout and Dense 10. The article names no optimiser; Dyno uses Adam with
Keras' default learning rate. The article's labels are integers, Dyno's are one-hot; loss and accuracy are the same.

A training sample takes 143 MFLOP (2 for a multiply-add). This is three times the forward pass, for the outputs, the
gradients of the weights and the gradients of the inputs. Forward, a convolution takes 2·H·W·k²·C_in·C_out, a dense
layer 2·in·out. The count omits biases, normalisation, pooling, activations and the optimiser.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from dyno.bench.datasets import cifar10, loading
from dyno.bench.references import LABORATORY, TPU_V2
from dyno.bench.training import images, workload

_FILTERS, _DENSE_UNITS, _DROPOUT_RATES = (32, 32, 64, 64), 512, (0.25, 0.25, 0.5)  # the reference article's
_AIRPLANE = 3  # index of the first airplane in the test set


class Cifar10CnnParams(images.ClassifierParams):
    batch_size: Annotated[int, Field(ge=1, le=cifar10.TRAIN_SAMPLES)] = Field(
        128, description="Total over all replicas; default: 128 per replica, as in the reference with 8 replicas"
    )
    epochs: workload.EpochCount = 50
    filters: list[images.Channels] = Field([*_FILTERS], min_length=4, max_length=4, description=images.FILTERS)
    dense_units: images.Units = Field(_DENSE_UNITS, description=images.DENSE_UNITS)
    dropout_rates: list[images.Rate] = Field(
        [*_DROPOUT_RATES], min_length=3, max_length=3, description=images.DROPOUT_RATES
    )
    train_samples: Annotated[int, Field(ge=1, le=cifar10.TRAIN_SAMPLES)] | None = Field(
        None, description="Maximum training samples; null: all"
    )
    data: loading.UnsampledKind = Field("auto", description=loading.UNSAMPLED)
    recognise: Annotated[int, Field(ge=0, lt=cifar10.TEST_SAMPLES)] | None = Field(
        _AIRPLANE, description=images.RECOGNISE
    )

    @property
    def available(self) -> tuple[int, int]:
        return _samples(self.data)

    @classmethod
    def defaults_over(cls, replicas: int) -> dict[str, object]:
        return {"batch_size": 128 * replicas}


def _layers(keras: Any, filters: Sequence[int], dense_units: int, dropout_rates: Sequence[float]) -> Sequence[Any]:
    layers = keras.layers
    return [
        layers.BatchNormalization(),
        layers.Conv2D(filters[0], 3, padding="same", activation="relu"),
        layers.Conv2D(filters[1], 3, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout_rates[0]),
        layers.BatchNormalization(),
        layers.Conv2D(filters[2], 3, padding="same", activation="relu"),
        layers.Conv2D(filters[3], 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout_rates[1]),
        layers.Flatten(),
        layers.Dense(dense_units, activation="relu"),
        layers.Dropout(dropout_rates[2]),
        layers.Dense(cifar10.CLASSES, activation="softmax"),
    ]


def _samples(kind: loading.DataKind) -> tuple[int, int]:
    return cifar10.TRAIN_SAMPLES, cifar10.TEST_SAMPLES


def photographs(
    filters: Sequence[int] = _FILTERS, dense_units: int = _DENSE_UNITS, dropout_rates: Sequence[float] = _DROPOUT_RATES
) -> images.Network:
    channels = zip((cifar10.CHANNELS, *filters[:-1]), filters, strict=True)
    return images.Network(
        load=cifar10.load,
        shape=(cifar10.SIDE, cifar10.SIDE, cifar10.CHANNELS),
        samples=_samples,
        make=lambda keras: _layers(keras, filters, dense_units, dropout_rates),
        convolutions=[
            images.Convolution(side, 3, of_layer) for side, of_layer in zip((32, 32, 16, 14), channels, strict=True)
        ],
        dense=((7 * 7 * filters[-1], dense_units), (dense_units, cifar10.CLASSES)),
        step_bytes_per_value=8.5,  # 0.8 MB per sample; measured on a CPU at batch 128 to 512: 0.7 MB
        ships_sample=False,
    )


PHOTOGRAPHS = photographs()

_SLOW = (
    "50,000 samples of 143 MFLOP in 6 s are 1.2 TFLOP/s, under 1 % of the board's peak: the input was too slow. The "
    "article itself calls the data set too small for the board."
)
_RUNNING = "Running mean over the last epoch with dropout, from one training with one seed."
_ONE = "One training with one seed; no interval."
_IMAGE = "One test image; the article doesn't say which."


WORKLOAD = workload.training_workload(
    images.ImageTraining(lambda params: photographs(params.filters, params.dense_units, params.dropout_rates)),
    "cifar10_cnn",
    "Training a convolutional network on CIFAR-10's photographs",
    Cifar10CnnParams,
    "cifar10",
    (
        LABORATORY.figure(TPU_V2, "epoch_time", 6.0, "s", _SLOW),
        LABORATORY.figure(TPU_V2, "train_accuracy", 0.9006, "1", _RUNNING),
        LABORATORY.figure(TPU_V2, "accuracy", 0.8079, "1", _ONE),
        LABORATORY.figure("CPU (Colab), weights from the TPU", "recognised_probability", 0.9817, "1", _IMAGE),
    ),
    images.IMAGE_METRICS,
    smoke=workload.training_smoke(
        {"batch_size": 32, "train_samples": 64, "test_samples": 32, "data": "synthetic"},
        {"wrong_images", "recognised"},
        {"wrong.png"},
    ),
    bench={"train_samples": 4096, "test_samples": 1000, "epochs": 3, "batch_size": 128},
    options=images.IMAGE_OPTIONS,
)
