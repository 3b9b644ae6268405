"""Where a pipeline takes images from: ready in memory, or as the bytes of a file for each, decoded when needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.workloads._feed import Fill, Float32, Rows

Source = Literal["memory", "png", "jpeg"]
_JPEG_QUALITY = 90
_WHITE = np.float32(255)


@dataclass(frozen=True)
class Stored:
    """`fill` gives float32 images, 0 to 1; `held_bytes`: of all images, as they are kept."""

    fill: Fill
    held_bytes: int


def stored(
    images: NDArray[np.uint8], source: Source, scale: int = 1, encoding: Callable[[int], None] = lambda done: None
) -> Stored:
    """Images (samples, height, width, 1 or 3), kept in that form.

    `scale`: a file's image is so many times as high and as wide, each pixel a square; it is reduced after decoding.
    `encoding` is told how many files there are, before each: large ones take minutes.
    """
    if source == "memory":
        floats = images.astype(np.float32) / _WHITE
        return Stored(lambda rows, into: _gather(floats, rows, into), floats.nbytes)
    files: list[bytes] = []
    for image in images:
        encoding(len(files))
        files.append(_encoded(image.repeat(scale, axis=0).repeat(scale, axis=1), source))
    return Stored(lambda rows, into: _decode(files, scale, rows, into), sum(map(len, files)))


def _gather(floats: Float32, rows: Rows, into: Float32) -> None:
    np.take(floats, rows, axis=0, out=into, mode="clip")  # any other mode goes through a copy


def _decode(files: Sequence[bytes], scale: int, rows: Rows, into: Float32) -> None:
    from PIL import Image

    for place, row in enumerate(rows):
        with Image.open(BytesIO(files[row])) as image:
            pixels = np.asarray(image.reduce(scale))
        np.divide(pixels.reshape(into.shape[1:]), _WHITE, out=into[place])


def _encoded(image: NDArray[np.uint8], source: Source) -> bytes:
    from PIL import Image

    file = BytesIO()
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    Image.fromarray(pixels).save(file, source.upper(), quality=_JPEG_QUALITY)
    return file.getvalue()
