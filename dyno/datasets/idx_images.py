"""What MNIST and Fashion-MNIST share: four gzipped idx files of the same names and shapes, told apart by their sums.

A folder without any of the four is no set; one with some of them, or with a damaged or another set's file, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import idx, npz, patterns
from dyno.datasets.choice import Forms, choose, folders, keras_cache, looked_in
from dyno.datasets.fetch import Remote
from dyno.datasets.images import Images
from dyno.datasets.kinds import DataKind
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings

Bytes = NDArray[np.uint8]

SIDE = 28
TRAIN_SAMPLES = 60_000
TEST_SAMPLES = 10_000
_TEST_EVERY = 5  # of a sample cut from the test files; why not its last part: samples/mnist/SOURCE.md
SAMPLE_TEST = TEST_SAMPLES // _TEST_EVERY
SAMPLE_TRAIN = TEST_SAMPLES - SAMPLE_TEST
_TRAIN, _TEST = "train", "t10k"


def samples(kind: DataKind) -> tuple[int, int]:
    """(train, test) samples at most: with `auto` the real set may be there."""
    return (SAMPLE_TRAIN, SAMPLE_TEST) if kind == "sample" else (TRAIN_SAMPLES, TEST_SAMPLES)


def _names(part: str) -> tuple[str, str]:
    return f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"


FILES = (*_names(_TRAIN), *_names(_TEST))


@dataclass(frozen=True)
class _Part:
    images: Bytes
    labels: Bytes
    sha256: dict[str, str]


@dataclass(frozen=True)
class IdxSet:
    """`published`: sha256 of each file as its authors published it, and of Keras' copy where that is one file;
    `sizes_bytes` of the four FILES, which lie at `address` too."""

    name: str
    title: str
    classes: tuple[str, ...]
    published: Mapping[str, str]
    address: str
    sizes_bytes: tuple[int, int, int, int]

    @property
    def remotes(self) -> list[Remote]:
        """The four files at their official address."""
        sizes = zip(FILES, self.sizes_bytes, strict=True)
        return [Remote(self.address + name, self.published[name], size_bytes) for name, size_bytes in sizes]

    def load(self, settings: Settings, kind: DataKind, shipped: Path) -> Images:
        """Images uint8 (n, 28, 28, 1) of that kind; `auto` is real, else the sample, which lies in `shipped`.

        Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
        """
        of_keras = f", and for {self._kerass_own}" if self._kerass_own else ""
        looked = looked_in(settings, self.name)
        forms = Forms(
            self.name,
            real=lambda: self._real(settings),
            sample=lambda: self.sample(shipped),
            synthetic=lambda: patterns.synthetic(self.name, self.classes, SIDE, 1, TRAIN_SAMPLES, TEST_SAMPLES),
            absent=f"no {self.title} here: looked for its four files in {looked}{of_keras}",
            remotes=self.remotes,
        )
        return choose(settings, kind, forms)

    def _real(self, settings: Settings) -> Images | None:
        found = next(filter(None, map(self.from_folder, folders(settings, self.name))), None)
        return found or (self.from_npz(self._kerass_own) if self._kerass_own else None)

    @property
    def _kerass_own(self) -> Path | None:
        """Where Keras keeps its copy in one file; it has one of what it has published."""
        name = f"{self.name}.npz"
        return keras_cache() / name if name in self.published else None

    def from_folder(self, folder: Path) -> Images | None:
        """The four files, or None where there is not one of them. Raises DatasetDamaged."""
        absent = [name for name in FILES if not (folder / name).exists()]
        if len(absent) == len(FILES):
            return None
        if absent:
            raise DatasetDamaged(f"{folder}: incomplete, without {', '.join(absent)}")
        train, test = self._part(folder, _TRAIN, TRAIN_SAMPLES), self._part(folder, _TEST, TEST_SAMPLES)
        return self._images(train, test, "real", train.sha256 | test.sha256)

    def from_npz(self, path: Path) -> Images | None:
        """Keras' copy in one file, None where it is not; read without Keras, and without unpickling anything."""
        if not path.exists():
            return None
        arrays, found = npz.read(path, ("x_train", "y_train", "x_test", "y_test"), self.published[path.name])
        sha256 = {path.name: found}
        train, test = (_Part(arrays[f"x_{part}"], arrays[f"y_{part}"], sha256) for part in ("train", "test"))
        self._check(train, TRAIN_SAMPLES, f"{path} x_train", f"{path} y_train")
        self._check(test, TEST_SAMPLES, f"{path} x_test", f"{path} y_test")
        return self._images(train, test, "real", sha256)

    def sample(self, folder: Path) -> Images:
        """The two test files alone, every fifth image held out."""
        part = self._part(folder, _TEST, TEST_SAMPLES)
        held_out = np.arange(len(part.labels)) % _TEST_EVERY == _TEST_EVERY - 1
        train, test = (_Part(part.images[these], part.labels[these], {}) for these in (~held_out, held_out))
        return self._images(train, test, "sample", part.sha256)

    def _part(self, folder: Path, part: str, samples: int) -> _Part:
        of_images, of_labels = _names(part)
        images, labels = idx.read(folder / of_images, 3), idx.read(folder / of_labels, 1)
        read = _Part(images.values, labels.values, {of_images: images.sha256, of_labels: labels.sha256})
        self._check(read, samples, str(folder / of_images), str(folder / of_labels))
        self._recognise(folder, read.sha256)
        return read

    def _check(self, part: _Part, samples: int, of_images: str, of_labels: str) -> None:
        images, labels = part.images, part.labels
        if images.shape != (samples, SIDE, SIDE) or images.dtype != np.uint8:
            raise DatasetDamaged(f"{of_images}: {images.dtype} {images.shape}, not uint8 {(samples, SIDE, SIDE)}")
        if labels.shape != (samples,) or labels.dtype != np.uint8:
            raise DatasetDamaged(f"{of_labels}: {labels.dtype} {labels.shape}, not uint8 {(samples,)}")
        if labels.max() >= len(self.classes):
            raise DatasetDamaged(f"{of_labels}: the label {labels.max()} is no class of {self.title}")

    def _recognise(self, folder: Path, sha256: dict[str, str]) -> None:
        """Raises DatasetDamaged for a file of the right name and shape with another content."""
        for name, found in sha256.items():
            if found != self.published[name]:
                expected = self.published[name]
                raise DatasetDamaged(f"{folder / name}: not {self.title} as published: sha256 {found}, not {expected}")

    def _images(self, train: _Part, test: _Part, kind: Literal["real", "sample"], sha256: dict[str, str]) -> Images:
        return Images(
            train.images[..., np.newaxis],
            train.labels,
            test.images[..., np.newaxis],
            test.labels,
            self.classes,
            DataOrigin(
                name=self.name,
                kind=kind,
                sha256=sha256,
                train_samples=len(train.labels),
                test_samples=len(test.labels),
            ),
        )
