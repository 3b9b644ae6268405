"""The plain Keras model beside each training workload, by the workload's name."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.trainings import plain_images, plain_sequences
from benchmarks.trainings.plain import Plain

WITNESSES: dict[str, Callable[..., Plain]] = {
    "mnist_cnn": plain_images.mnist_cnn,
    "fashion_mnist_cnn": plain_images.fashion_mnist_cnn,
    "cifar10_cnn": plain_images.cifar10_cnn,
    "imdb_lstm": plain_sequences.imdb_lstm,
    "weather_gru": plain_sequences.weather_gru,
    "shakespeare_lstm": plain_sequences.shakespeare_lstm,
    "resnet50": plain_images.resnet50,
}
