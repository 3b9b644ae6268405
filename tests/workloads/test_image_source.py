"""Images come back from memory and from files as they were, between 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest

from dyno.datasets import mnist
from dyno.settings import Settings
from dyno.workloads._image_source import Source, stored

ROWS = np.array([3, 0, 4, 3])


@pytest.fixture(scope="module", params=[1, 3])
def images(request: pytest.FixtureRequest) -> np.ndarray:
    """Smooth ones, as no JPEG keeps noise: brighter to one side, and from image to image."""
    values = np.add.outer(np.add.outer(10 * np.arange(5), 5 * np.arange(32)), np.zeros(16))[..., np.newaxis]
    smooth: np.ndarray = (values + 10 * np.arange(request.param)).astype(np.uint8)
    return smooth


def _filled(images: np.ndarray, source: Source, scale: int = 1) -> np.ndarray:
    into = np.full((len(ROWS), *images.shape[1:]), np.nan, np.float32)
    stored(images, source, scale).fill(ROWS, into)
    return into


@pytest.mark.parametrize(("source", "scale"), [("memory", 1), ("png", 1), ("png", 3)])
def test_they_are_exact_where_nothing_is_lossy(images: np.ndarray, source: Source, scale: int) -> None:
    np.testing.assert_allclose(_filled(images, source, scale), images[ROWS] / 255, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 4])
def test_a_jpeg_is_the_image_about(images: np.ndarray, scale: int) -> None:
    difference = np.abs(_filled(images, "jpeg", scale) - images[ROWS] / 255)
    assert 0 < difference.mean() < 0.05


def test_larger_files_take_more_and_what_is_held_is_told() -> None:
    digits = mnist.load(Settings(), "sample").train_images[:20]
    memory, png = stored(digits, "memory"), stored(digits, "png")
    assert memory.held_bytes == 4 * digits.size
    assert 0 < png.held_bytes < digits.size
    assert stored(digits, "png", 8).held_bytes > png.held_bytes


def test_the_caller_hears_of_each_file_that_is_made() -> None:
    heard: list[int] = []
    stored(np.zeros((3, 4, 4, 1), np.uint8), "png", 2, heard.append)
    assert heard == [0, 1, 2]
