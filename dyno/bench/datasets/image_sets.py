"""Shared code of the image data sets: their arrays, the four idx files, and synthetic images.

MNIST and Fashion-MNIST have four gzipped idx files with the same names and shapes; only their SHA-256 differ. The
search skips a folder with none of the four. A folder with some of them, a damaged file, or a file of another data set,
is an error. Synthetic images are deterministic and learnable: one coarse pattern per class, shifted, with noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.bench.datasets import file_formats, loading
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings


@dataclass(frozen=True)
class Images:
    """Images are uint8 (samples, height, width, channels); labels are uint8 (samples,) and index `classes`."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    classes: tuple[str, ...]
    origin: DataOrigin

    @property
    def params(self) -> dict[str, JsonValue]:
        """The values of the params that depend on these images."""
        origin = self.origin
        return {"data": origin.kind, "train_samples": origin.train_samples, "test_samples": origin.test_samples}

    def limited(self, train_samples: int | None, test_samples: int | None) -> Self:
        """The first training and test samples, up to the limits. None means all."""
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


_SHIFTS = range(-2, 3)  # pixels, in both directions
_BLOCK = 4  # side of a pattern's squares, in pixels
_BRIGHT, _NOISE = np.uint8(128), np.uint8(127)  # brightness of a pattern's squares; maximum noise of any pixel
_AT_ONCE = 4096  # images per step, which limits the additional memory


def synthetic_images(name: str, classes: tuple[str, ...], side: int, channels: int, train: int, test: int) -> Images:
    """Make `train` + `test` images of `side` x `side` x `channels`; the seed is `side`."""
    random = np.random.Generator(np.random.SFC64(side))
    patterns = _shifted_patterns(random, len(classes), side, channels)
    shifts = len(_SHIFTS) ** 2
    drawn = random.integers(0, len(classes) * shifts, train + test)
    noise = np.frombuffer(bytearray(random.bytes((train + test) * side * side * channels)), np.uint8)
    images = noise.reshape(train + test, side, side, channels)
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


Bytes = NDArray[np.uint8]

SIDE = 28
TRAIN_SAMPLES = 60_000
TEST_SAMPLES = 10_000
_TEST_EVERY = 5  # every fifth image of the sample is for testing; samples/mnist/SOURCE.md says why
SAMPLE_TEST = TEST_SAMPLES // _TEST_EVERY
SAMPLE_TRAIN = TEST_SAMPLES - SAMPLE_TEST
_TRAIN, _TEST = "train", "t10k"


def samples(kind: loading.DataKind) -> tuple[int, int]:
    """The maximum numbers of (training, test) samples. `auto` has the real data set's, since it may find that set."""
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
    """`published`: SHA-256 of each file as its authors published it, and of Keras' copy if Keras has a single file.

    `sizes_bytes`: the sizes of the four FILES, which are also available at `address`.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    published: Mapping[str, str]
    address: str
    sizes_bytes: tuple[int, int, int, int]

    @property
    def remotes(self) -> list[loading.Remote]:
        """The four files at their official address."""
        sizes = zip(FILES, self.sizes_bytes, strict=True)
        return [loading.Remote(self.address + name, self.published[name], size_bytes) for name, size_bytes in sizes]

    def load(self, settings: Settings, kind: loading.DataKind, shipped: Path) -> Images:
        """Load images, uint8 (n, 28, 28, 1), of that kind; `auto` is real, else the sample in `shipped`.

        Raises DatasetDamaged with the file's name, and RunFailed (unsupported, dataset_missing) if the kind is missing.
        """
        of_keras = f", and for {self._kerass_own}" if self._kerass_own else ""
        looked = loading.searched_folders(settings, self.name)
        forms = loading.Forms(
            self.name,
            real=lambda: self._real(settings),
            sample=lambda: self.sample(shipped),
            synthetic=lambda: synthetic_images(self.name, self.classes, SIDE, 1, TRAIN_SAMPLES, TEST_SAMPLES),
            absent=f"{self.title} not found: looked for its four files in {looked}{of_keras}",
            remotes=self.remotes,
        )
        return loading.choose_form(settings, kind, forms)

    def _real(self, settings: Settings) -> Images | None:
        images = next(filter(None, map(self.from_folder, loading.folders(settings, self.name))), None)
        return images or (self.from_npz(self._kerass_own) if self._kerass_own else None)

    @property
    def _kerass_own(self) -> Path | None:
        """Keras' copy in a single file, if Keras publishes one."""
        name = f"{self.name}.npz"
        return loading.keras_cache() / name if name in self.published else None

    def from_folder(self, folder: Path) -> Images | None:
        """Read the four files; None if the folder has none of them. Raises DatasetDamaged."""
        absent = [name for name in FILES if not (folder / name).exists()]
        if len(absent) == len(FILES):
            return None
        if absent:
            raise DatasetDamaged(f"{folder}: incomplete; missing: {', '.join(absent)}")
        train, test = self._part(folder, _TRAIN, TRAIN_SAMPLES), self._part(folder, _TEST, TEST_SAMPLES)
        return self._images(train, test, "real", train.sha256 | test.sha256)

    def from_npz(self, path: Path) -> Images | None:
        """Read Keras' single-file copy without Keras and without unpickling; None if it doesn't exist."""
        if not path.exists():
            return None
        arrays, digest = file_formats.read_npz(
            path, ("x_train", "y_train", "x_test", "y_test"), self.published[path.name]
        )
        sha256 = {path.name: digest}
        train, test = (_Part(arrays[f"x_{part}"], arrays[f"y_{part}"], sha256) for part in ("train", "test"))
        self._check(train, TRAIN_SAMPLES, f"{path} x_train", f"{path} y_train")
        self._check(test, TEST_SAMPLES, f"{path} x_test", f"{path} y_test")
        return self._images(train, test, "real", sha256)

    def sample(self, folder: Path) -> Images:
        """Read the shipped test files; every fifth image is held out."""
        part = self._part(folder, _TEST, TEST_SAMPLES)
        held_out = np.arange(len(part.labels)) % _TEST_EVERY == _TEST_EVERY - 1
        train, test = (_Part(part.images[chosen], part.labels[chosen], {}) for chosen in (~held_out, held_out))
        return self._images(train, test, "sample", part.sha256)

    def _part(self, folder: Path, part: str, samples: int) -> _Part:
        of_images, of_labels = _names(part)
        images, labels = file_formats.read_idx(folder / of_images, 3), file_formats.read_idx(folder / of_labels, 1)
        read = _Part(images.values, labels.values, {of_images: images.sha256, of_labels: labels.sha256})
        self._check(read, samples, str(folder / of_images), str(folder / of_labels))
        self._recognise(folder, read.sha256)
        return read

    def _check(self, part: _Part, samples: int, of_images: str, of_labels: str) -> None:
        images, labels = part.images, part.labels
        if images.shape != (samples, SIDE, SIDE) or images.dtype != np.uint8:
            raise DatasetDamaged(f"{of_images}: {images.dtype} {images.shape}, expected uint8 {(samples, SIDE, SIDE)}")
        if labels.shape != (samples,) or labels.dtype != np.uint8:
            raise DatasetDamaged(f"{of_labels}: {labels.dtype} {labels.shape}, expected uint8 {(samples,)}")
        if labels.max() >= len(self.classes):
            raise DatasetDamaged(f"{of_labels}: {self.title} has no class {labels.max()}")

    def _recognise(self, folder: Path, sha256: dict[str, str]) -> None:
        """Raises DatasetDamaged if a file has the right name and shape but other content."""
        for name, digest in sha256.items():
            if digest != self.published[name]:
                expected = self.published[name]
                raise DatasetDamaged(
                    f"{folder / name}: not the published {self.title} file: sha256 {digest}, expected {expected}"
                )

    def _images(self, train: _Part, test: _Part, kind: Literal["real", "sample"], sha256: dict[str, str]) -> Images:
        return Images(
            train.images[..., np.newaxis],
            train.labels,
            test.images[..., np.newaxis],
            test.labels,
            self.classes,
            DataOrigin(
                name=self.name, kind=kind, sha256=sha256, train_samples=len(train.labels), test_samples=len(test.labels)
            ),
        )
