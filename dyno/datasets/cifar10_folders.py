"""CIFAR-10 as folders of pictures, `train/<class>/*.jpg` and `test/<class>/*.jpg` (or .png).

Copies in JPEG have lost some of the published pixels and have no published sums; `origin.note` says so, and how many
there are where some are missing, and the sha256
is of all names and files of a part in order of their names. Pictures are taken class by class in turn, so that the
first so many hold each class alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.images import Images
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin

_SHAPE = (32, 32, 3)
_PUBLISHED_SAMPLES = (50_000, 10_000)  # for training, to test
_ENDINGS = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class _Part:
    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    sha256: str


def from_folder(folder: Path, classes: tuple[str, ...]) -> Images | None:
    """The pictures under `folder`, or None without its two parts' folders. Raises DatasetDamaged."""
    parts = [folder / "train", folder / "test"]
    if not any(part.is_dir() for part in parts):
        return None
    train, test = (_part(part, classes) for part in parts)
    origin = DataOrigin(
        name="cifar10",
        kind="real",
        sha256={"train/": train.sha256, "test/": test.sha256},
        train_samples=len(train.labels),
        test_samples=len(test.labels),
        note=_note(len(train.labels), len(test.labels)),
    )
    return Images(train.images, train.labels, test.images, test.labels, classes, origin)


def _note(train: int, test: int) -> str:
    note = "pictures in folders: not proven to be the published pixels (JPEG loses some)"
    if (train, test) == _PUBLISHED_SAMPLES:
        return note
    return f"{note}; {train:,} of {_PUBLISHED_SAMPLES[0]:,} for training, {test:,} of {_PUBLISHED_SAMPLES[1]:,} to test"


def _part(folder: Path, classes: tuple[str, ...]) -> _Part:
    files = [_files(folder / name) for name in classes]
    order = sorted((place, label) for label, of_class in enumerate(files) for place in range(len(of_class)))
    digest = hashlib.sha256()
    images = np.empty((len(order), *_SHAPE), np.uint8)
    for index, (place, label) in enumerate(order):
        path = files[label][place]
        images[index] = _pixels(path, digest)
    return _Part(images, np.array([label for _, label in order], np.uint8), digest.hexdigest())


def _files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.glob("*") if path.suffix.lower() in _ENDINGS)
    if not found:
        raise DatasetDamaged(f"{folder}: incomplete, without any picture ({', '.join(_ENDINGS)})")
    return found


def _pixels(path: Path, digest: hashlib._Hash) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name}\0{len(content)}\0".encode() + content)
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetDamaged(f"{path}: can't be read as a picture: {error}") from error
    if pixels.shape != _SHAPE:
        raise DatasetDamaged(f"{path}: {pixels.shape}, not {_SHAPE}")
    return pixels
