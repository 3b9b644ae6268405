"""Read CIFAR-10: 32 x 32 colour photographs in ten classes. A. Krizhevsky, 2009; no licence, so Dyno ships no sample.

Dyno searches for the published batches in `<data_dir>/cifar10/`, then in Keras' cache: binary or pickled, as single
files, compressed files or the published archive. Damaged files are an error. Without batches, `auto` is synthetic.

A binary batch is a series of records of 1 label byte and 3,072 bytes: 1,024 each for red, green and blue, row by row.
Pickled batches hold the same data in the same order, so the SHA-256 of the records identifies a batch in any form. Dyno
reads a pickle only if its MD5 equals a published file's. Some training batches and part of the test batch may be
missing; `origin.note` lists the batches that are present.
"""

import hashlib
import lzma
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets import file_formats, image_sets, loading
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings

_PUBLISHED_NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_NAMES = (*_PUBLISHED_NAMES, "test_batch_first1000")
_INSIDE = ("cifar-10-batches-bin", "cifar-10-batches-py")  # folders of the two archives
_ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
_MOST_BYTES = 64 << 20  # twice the size of a batch: a limit, because compressed files are untrusted

FoundBatches = dict[str, tuple[Path, bytes]]


def find_batches(folder: Path) -> FoundBatches:
    """Batch name -> (file, binary records); single files first, then the published archives."""
    for inside in (folder, *(folder / name for name in _INSIDE)):
        loose = _loose(inside)
        if loose:
            return loose
    for name in _ARCHIVES:
        if (folder / name).exists():
            return _archived(folder / name)
    return {}


def _loose(folder: Path) -> FoundBatches:
    batches: FoundBatches = {}
    for name in _NAMES:
        for ending in (".bin", ".bin.xz", ""):
            path = folder / f"{name}{ending}"
            if name not in batches and path.is_file():
                batches[name] = path, _records(path, _content(path))
    return batches


def _content(path: Path) -> bytes:
    try:
        if path.suffix != ".xz":
            return path.read_bytes()
        with lzma.open(path) as stream:
            return stream.read(_MOST_BYTES)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error


def _records(path: Path, content: bytes) -> bytes:
    """Binary records as they are, or converted from a pickled batch, whose file name has no suffix."""
    if ".bin" in path.name:
        return content
    # Anyone can make two files with the same MD5, but no known method makes a file with a given MD5.
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != PUBLISHED_PICKLES.get(path.name):
        raise DatasetDamaged(f"{path}: not CIFAR-10's published {path.name}: md5 {md5}")
    return _from_pickle(file_formats.unpickle_plain(content, path), path)


def _from_pickle(batch: Any, path: Path) -> bytes:
    try:
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"], dtype=np.uint8)
        return np.column_stack([labels, pixels.astype(np.uint8, casting="safe")]).tobytes()
    except (TypeError, KeyError, ValueError, OverflowError, IndexError) as error:
        raise DatasetDamaged(f"{path}: not a batch of labels and data: {error!r}") from error


def _archived(path: Path) -> FoundBatches:
    batches: FoundBatches = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name.removesuffix(".bin") in _NAMES:
                    inside = path / member.name
                    stream = archive.extractfile(member)
                    content = stream.read(_MOST_BYTES) if stream else b""
                    batches[name.removesuffix(".bin")] = inside, _records(inside, content)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    absent = [name for name in _PUBLISHED_NAMES if name not in batches]
    if absent:
        raise DatasetDamaged(f"{path}: incomplete; missing: {', '.join(absent)}")
    return batches


SIDE = 32
CHANNELS = 3
RECORD_BYTES = 1 + CHANNELS * SIDE * SIDE
BATCH = 10_000
FIRST = 1_000  # records in the first part of the test batch
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST, TEST_FIRST = "test_batch", "test_batch_first1000"
# SHA-256 of the records of each published binary file, and of the first 1,000 records of the test batch
PUBLISHED = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    "test_batch_first1000": "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5",
}
# MD5 of the files in cifar-10-python.tar.gz, as torchvision's `datasets.CIFAR10` compares them
PUBLISHED_PICKLES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


@dataclass(frozen=True)
class _Batch:
    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    sha256: str


def read_batches(folder: Path, classes: tuple[str, ...]) -> image_sets.Images | None:
    """Read the batches in `folder`; None if it has none. Raises DatasetDamaged with the file's name."""
    files = find_batches(folder)
    train = [_batch(name, *files[name]) for name in TRAIN if name in files]
    tests = [_batch(name, *files[name]) for name in (TEST, TEST_FIRST) if name in files][:1]
    if not train and not tests:
        return None
    if not train or not tests:
        raise DatasetDamaged(f"{folder}: incomplete; no {'test' if train else 'training'} batch of CIFAR-10")
    test = tests[0]
    train_labels = np.concatenate([batch.labels for batch in train])
    origin = DataOrigin(
        name="cifar10",
        kind="real",
        sha256={f"{batch.name}.bin": batch.sha256 for batch in (*train, test)},
        train_samples=len(train_labels),
        test_samples=len(test.labels),
        note=_batches_note(len(train), test),
    )
    return image_sets.Images(
        np.concatenate([batch.images for batch in train]), train_labels, test.images, test.labels, classes, origin
    )


def _batch(name: str, path: Path, records: bytes) -> _Batch:
    """Parse the records. Raises DatasetDamaged unless they are batch `name`."""
    samples = FIRST if name == TEST_FIRST else BATCH
    if len(records) != samples * RECORD_BYTES:
        raise DatasetDamaged(f"{path}: {len(records)} bytes, expected {samples} records of {RECORD_BYTES}")
    sha256 = hashlib.sha256(records).hexdigest()
    if sha256 != PUBLISHED[name]:
        expected = PUBLISHED[name]
        raise DatasetDamaged(f"{path}: not CIFAR-10's published {name}: sha256 {sha256}, expected {expected}")
    table = np.frombuffer(records, np.uint8).reshape(samples, RECORD_BYTES)
    planes = table[:, 1:].reshape(samples, CHANNELS, SIDE, SIDE)
    return _Batch(name, np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), table[:, 0].copy(), sha256)


def _batches_note(batches: int, test: _Batch) -> str | None:
    parts = [f"{batches} of {len(TRAIN)} training batches"] if batches < len(TRAIN) else []
    if test.name == TEST_FIRST:
        parts.append(f"first {len(test.labels):,} test images")
    return "; ".join(parts) or None


CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES = len(CLASS_NAMES)
TRAIN_SAMPLES = 50_000
TEST_SAMPLES = 10_000
NAME = "cifar10"
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVE = loading.Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170_052_171,
)


def load(settings: Settings, kind: loading.DataKind = "auto") -> image_sets.Images:
    """Load RGB images, uint8 (n, 32, 32, 3), of that kind; `auto` is real, else synthetic.

    Raises DatasetDamaged with the file's name, and RunFailed (unsupported, dataset_missing) if that kind is missing.
    """
    forms = loading.Forms(
        NAME,
        real=lambda: _real(settings),
        sample=None,
        synthetic=lambda: image_sets.synthetic_images(NAME, CLASS_NAMES, SIDE, CHANNELS, TRAIN_SAMPLES, TEST_SAMPLES),
        absent=f"CIFAR-10 not found: looked for its batches and for {' and '.join(_ARCHIVES)}, which "
        f"{PAGE} offers, in {loading.searched_folders(settings, NAME)}",
        remotes=[ARCHIVE],
    )
    return loading.choose_form(settings, kind, forms)


def _real(settings: Settings) -> image_sets.Images | None:
    """Read the first folder that has batches; Keras 3 and older versions unpack the archive in different folders."""
    of_keras = loading.keras_cache() / "cifar-10-batches-py-target", loading.keras_cache()
    folders = (*loading.folders(settings, NAME), *of_keras)
    return next((images for folder in folders if (images := read_batches(folder, CLASS_NAMES)) is not None), None)
