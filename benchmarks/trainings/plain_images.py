"""The convolutional networks, written by hand as in the articles: float32 images of 0 to 1, one-hot labels."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from benchmarks.trainings.plain import Data, Plain
from dyno.datasets import cifar10, fashion_mnist, mnist
from dyno.datasets.image_sets import Images
from dyno.settings import Settings

layers = keras.layers


def mnist_cnn() -> Plain:
    return Plain(_digit_model, lambda samples: _images(mnist.load(Settings()), samples))


def fashion_mnist_cnn() -> Plain:
    return Plain(_clothes_model, lambda samples: _images(fashion_mnist.load(Settings()), samples))


def cifar10_cnn() -> Plain:
    return Plain(_photograph_model, lambda samples: _images(cifar10.load(Settings()), samples))


def resnet50(image_size: int) -> Plain:
    return Plain(lambda jit: _residual_model(image_size, jit), lambda samples: _random(samples, image_size))


def _digit_model(jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(64, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.3),
            layers.Conv2D(32, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    return _compiled(model, jit_compile)


def _clothes_model(jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.BatchNormalization(),
            layers.Conv2D(64, 5, padding="same", activation="elu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.BatchNormalization(),
            layers.Conv2D(128, 5, padding="same", activation="elu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.BatchNormalization(),
            layers.Conv2D(256, 5, padding="same", activation="elu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(256, activation="elu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    return _compiled(model, jit_compile)


def _photograph_model(jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.BatchNormalization(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    return _compiled(model, jit_compile)


def _residual_model(image_size: int, jit_compile: bool) -> keras.Model:
    model = keras.applications.ResNet50(weights=None, input_shape=(image_size, image_size, 3), classes=1000)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", jit_compile=jit_compile)
    return model


def _compiled(model: Any, jit_compile: bool) -> keras.Model:
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"], jit_compile=jit_compile)
    return model


def _images(data: Images, samples: int) -> Data:
    images = data.train_images[:samples].astype(np.float32) / np.float32(255)
    return Data(images, np.eye(10, dtype=np.float32)[data.train_labels[:samples]], data.origin.kind)


def _random(samples: int, image_size: int) -> Data:
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (samples, image_size, image_size, 3)).astype(np.float32)
    return Data(images, random.integers(0, 1000, samples, dtype=np.int32), "synthetic")
