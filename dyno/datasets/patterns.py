"""Synthetic twins of the image sets: one coarse pattern a class, shifted, under noise. Learnable, always the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.images import Images
from dyno.models.result import DataOrigin

_SHIFTS = range(-2, 3)  # pixels, each way
_BLOCK = 4  # pixels of a pattern's squares
_BRIGHT, _NOISE = np.uint8(128), np.uint8(127)  # of a pattern's set squares; at most, on every pixel
_AT_ONCE = 4096  # images, so that little memory is needed beside theirs


def synthetic(name: str, classes: tuple[str, ...], side: int, channels: int, train: int, test: int) -> Images:
    """`train` + `test` images of `side` x `side` x `channels`; the seed is `side`."""
    random = np.random.Generator(np.random.SFC64(side))
    patterns = _shifted_patterns(random, len(classes), side, channels)
    shifts = len(_SHIFTS) ** 2
    drawn = random.integers(0, len(classes) * shifts, train + test)
    images = np.frombuffer(bytearray(random.bytes((train + test) * side * side * channels)), np.uint8)
    images = images.reshape(train + test, side, side, channels)
    images &= _NOISE
    for start in range(0, len(images), _AT_ONCE):
        images[start : start + _AT_ONCE] += patterns[drawn[start : start + _AT_ONCE]]
    labels = (drawn // shifts).astype(np.uint8)
    return Images(
        images[:train],
        labels[:train],
        images[train:],
        labels[train:],
        classes,
        DataOrigin(name=name, kind="synthetic", train_samples=train, test_samples=test),
    )


def _shifted_patterns(random: np.random.Generator, classes: int, side: int, channels: int) -> NDArray[np.uint8]:
    """(classes x shifts, side, side, channels): each class's pattern in every shift."""
    coarse = random.random((classes, side // _BLOCK, side // _BLOCK, channels)) < 0.35
    patterns = np.kron(coarse, np.ones((1, _BLOCK, _BLOCK, 1))).astype(np.uint8) * _BRIGHT
    shifted = [np.roll(patterns, (down, right), axis=(1, 2)) for down in _SHIFTS for right in _SHIFTS]
    return np.stack(shifted, axis=1).reshape(-1, side, side, channels)
