"""MNIST, 28 x 28 handwritten digits: the real set if it is here, else the sample that ships.

Looked for in this order: the four original files in `<data_dir>/mnist/`, Keras' cache, the shipped sample. What is
there but damaged, incomplete or another set (Fashion-MNIST has the same names and shapes) is an error and never passed
over. A synthetic twin only when it is asked for.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import idx
from dyno.errors import DatasetDamaged, RunFailed
from dyno.result import DataOrigin
from dyno.settings import Settings

DataKind = Literal["auto", "real", "sample", "synthetic"]
Bytes = NDArray[np.uint8]

CLASSES = 10
TRAIN_SAMPLES = 60_000
TEST_SAMPLES = 10_000
SAMPLE_FOLDER = Path(__file__).parent / "samples" / "mnist"
_SIDE = 28
_TRAIN, _TEST = "train", "t10k"
_TEST_EVERY = 5  # of the sample; why not its last part: samples/mnist/SOURCE.md
SAMPLE_TEST = TEST_SAMPLES // _TEST_EVERY
SAMPLE_TRAIN = TEST_SAMPLES - SAMPLE_TEST
# sha256 of the four files as they were published, and of Keras' copy of them (keras.datasets.mnist verifies the same)
PUBLISHED = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "mnist.npz": "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
}


@dataclass(frozen=True)
class Mnist:
    """Images uint8 (samples, 28, 28), labels uint8 (samples,) from 0 to 9; where they came from."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes
    origin: DataOrigin

    def limited(self, train_samples: int | None, test_samples: int | None) -> Mnist:
        """The first so many of each; None or more than there are: all."""
        train, test = self.train_images[:train_samples], self.test_images[:test_samples]
        counts = {"train_samples": len(train), "test_samples": len(test)}
        return replace(
            self,
            train_images=train,
            train_labels=self.train_labels[:train_samples],
            test_images=test,
            test_labels=self.test_labels[:test_samples],
            origin=self.origin.model_copy(update=counts),
        )


def load(settings: Settings, kind: DataKind = "auto") -> Mnist:
    """The data of that kind; `auto` is real, else the sample.

    Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
    """
    if kind == "synthetic":
        return _synthetic()
    if kind != "sample":
        found = _from_folder(settings.data_dir) or _from_keras_cache()
        if found is not None:
            return found
        if kind == "real":
            where = f"{settings.data_dir}/mnist/" if settings.data_dir else "DYNO_DATA_DIR (unset)"
            detail = f"no MNIST here: looked for its four files in {where} and for {_keras_cache()}"
            raise RunFailed("unsupported", "dataset_missing", detail)
    return _sample()


def _from_folder(data_dir: Path | None) -> Mnist | None:
    """The four files, or None where there is not one of them."""
    if data_dir is None:
        return None
    folder = data_dir / "mnist"
    names = [name for part in (_TRAIN, _TEST) for name in _names(part)]
    absent = [name for name in names if not (folder / name).exists()]
    if len(absent) == len(names):
        return None
    if absent:
        raise DatasetDamaged(f"{folder}: incomplete, without {', '.join(absent)}")
    train, test = _part(folder, _TRAIN, TRAIN_SAMPLES), _part(folder, _TEST, TEST_SAMPLES)
    return _set(*train.arrays, *test.arrays, "real", train.sha256 | test.sha256)


@dataclass(frozen=True)
class _Part:
    arrays: tuple[Bytes, Bytes]
    sha256: dict[str, str]


def _names(part: str) -> tuple[str, str]:
    return f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"


def _part(folder: Path, part: str, samples: int) -> _Part:
    of_images, of_labels = _names(part)
    images, labels = idx.read(folder / of_images, 3), idx.read(folder / of_labels, 1)
    _check(images.values, labels.values, samples, str(folder / of_images), str(folder / of_labels))
    sha256 = {of_images: images.sha256, of_labels: labels.sha256}
    _recognise(folder, sha256)
    return _Part((images.values, labels.values), sha256)


def _recognise(folder: Path, sha256: dict[str, str]) -> None:
    """Raises DatasetDamaged for a file of the right name and shape with another content."""
    for name, found in sha256.items():
        if found != PUBLISHED[name]:
            raise DatasetDamaged(f"{folder / name}: not MNIST as published: sha256 {found}, not {PUBLISHED[name]}")


def _check(images: Bytes, labels: Bytes, samples: int, of_images: str, of_labels: str) -> None:
    if images.shape != (samples, _SIDE, _SIDE) or images.dtype != np.uint8:
        raise DatasetDamaged(f"{of_images}: {images.dtype} {images.shape}, not uint8 {(samples, _SIDE, _SIDE)}")
    if labels.shape != (samples,) or labels.dtype != np.uint8:
        raise DatasetDamaged(f"{of_labels}: {labels.dtype} {labels.shape}, not uint8 {(samples,)}")
    if labels.max() >= CLASSES:
        raise DatasetDamaged(f"{of_labels}: the label {labels.max()} is no digit")


def _keras_cache() -> Path:
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path.home() / ".keras") / "datasets" / "mnist.npz"


def _from_keras_cache() -> Mnist | None:
    """What `keras.datasets.mnist.load_data()` left there; read without Keras, and without unpickling anything."""
    path = _keras_cache()
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            x_train, y_train, x_test, y_test = (arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DatasetDamaged(f"{path}: {error}") from error
    _check(x_train, y_train, TRAIN_SAMPLES, f"{path} x_train", f"{path} y_train")
    _check(x_test, y_test, TEST_SAMPLES, f"{path} x_test", f"{path} y_test")
    sha256 = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    _recognise(path.parent, sha256)
    return _set(x_train, y_train, x_test, y_test, "real", sha256)


def _sample() -> Mnist:
    part = _part(SAMPLE_FOLDER, _TEST, TEST_SAMPLES)
    images, labels = part.arrays
    test = np.arange(len(labels)) % _TEST_EVERY == _TEST_EVERY - 1
    return _set(images[~test], labels[~test], images[test], labels[test], "sample", part.sha256)


def _synthetic() -> Mnist:
    """Ten blurred random patterns, shifted by up to two pixels, with noise: as large as MNIST, and learnable."""
    random = np.random.Generator(np.random.SFC64(28))
    coarse = random.random((CLASSES, 7, 7)) < 0.35
    patterns = np.kron(coarse, np.ones((4, 4))).astype(np.uint8) * np.uint8(160)
    labels = random.integers(0, CLASSES, TRAIN_SAMPLES + TEST_SAMPLES, dtype=np.uint8)
    images = random.integers(0, 96, (len(labels), _SIDE, _SIDE), dtype=np.uint8)
    shifts = random.integers(-2, 3, (len(labels), 2))
    for down in range(-2, 3):
        for right in range(-2, 3):
            these = (shifts == (down, right)).all(axis=1)
            images[these] += np.roll(patterns, (down, right), axis=(1, 2))[labels[these]]
    train = slice(None, TRAIN_SAMPLES), slice(TRAIN_SAMPLES, None)
    return _set(images[train[0]], labels[train[0]], images[train[1]], labels[train[1]], "synthetic", {})


def _set(
    train_images: Bytes,
    train_labels: Bytes,
    test_images: Bytes,
    test_labels: Bytes,
    kind: Literal["real", "sample", "synthetic"],
    sha256: dict[str, str],
) -> Mnist:
    origin = DataOrigin(
        name="mnist", kind=kind, sha256=sha256, train_samples=len(train_labels), test_samples=len(test_labels)
    )
    return Mnist(train_images, train_labels, test_images, test_labels, origin)
