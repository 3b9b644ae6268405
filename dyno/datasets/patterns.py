"""Synthetic twins of the image sets: one coarse pattern a class, shifted, under noise. Learnable, always the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.images import Images
from dyno.result import DataOrigin

_SHIFT = 2  # pixels, each way
_BLOCK = 4  # pixels of a pattern's squares


def synthetic(name: str, classes: tuple[str, ...], side: int, channels: int, train: int, test: int) -> Images:
    """`train` + `test` images of `side` x `side` x `channels`; the seed is `side`."""
    random = np.random.Generator(np.random.SFC64(side))
    coarse = random.random((len(classes), side // _BLOCK, side // _BLOCK, channels)) < 0.35
    patterns = np.kron(coarse, np.ones((1, _BLOCK, _BLOCK, 1))).astype(np.uint8) * np.uint8(160)
    labels = random.integers(0, len(classes), train + test, dtype=np.uint8)
    images = random.integers(0, 96, (len(labels), side, side, channels), dtype=np.uint8)
    _add_shifted(images, patterns, labels, random)
    return Images(
        images[:train],
        labels[:train],
        images[train:],
        labels[train:],
        classes,
        DataOrigin(name=name, kind="synthetic", train_samples=train, test_samples=test),
    )


def _add_shifted(
    images: NDArray[np.uint8], patterns: NDArray[np.uint8], labels: NDArray[np.uint8], random: np.random.Generator
) -> None:
    shifts = random.integers(-_SHIFT, _SHIFT + 1, (len(labels), 2))
    for down in range(-_SHIFT, _SHIFT + 1):
        for right in range(-_SHIFT, _SHIFT + 1):
            these = (shifts == (down, right)).all(axis=1)
            images[these] += np.roll(patterns, (down, right), axis=(1, 2))[labels[these]]
