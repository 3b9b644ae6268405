"""The forms in which the IMDB reviews are read.

- `imdb_sequences.npz`: flat word ranks and the offsets of the reviews, nothing pickled.
- `imdb.npz`, Keras' own: arrays of lists, which NumPy pickles; recognised by its sum, and read by the restricted
  unpickler all the same. Shuffled as Keras does it.
- the texts as published, `train/{pos,neg}/*.txt` and `test/…` (also inside `aclImdb/`), with `imdb_word_index.json`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from dyno.datasets import imdb_texts, npz
from dyno.datasets.imdb_ranks import SHUFFLE_SEED, Part, Ranks
from dyno.datasets.npz import checksum
from dyno.datasets.unpickle import object_array
from dyno.errors import DatasetDamaged

KERAS_PUBLISHED = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"
_PARTS = ("train", "test")
_ARRAYS = (("x", "_tokens"), ("x", "_offsets"), ("y", ""))


def from_folder(folder: Path) -> Ranks | None:
    """The first of the three forms in `folder`, None where there is none. Raises DatasetDamaged."""
    return (
        from_sequences(folder / "imdb_sequences.npz")
        or from_keras(folder / "imdb.npz")
        or imdb_texts.from_folder(folder)
        or imdb_texts.from_folder(folder / "aclImdb")
    )


def from_sequences(path: Path) -> Ranks | None:
    """The flat archive, None where it is not."""
    if not path.exists():
        return None
    names = [f"{array}_{part}{what}" for part in _PARTS for array, what in _ARRAYS]
    arrays, found = npz.read(path, names)
    parts = [[arrays[f"{array}_{part}{what}"] for array, what in _ARRAYS] for part in _PARTS]
    for name, of_part in zip(_PARTS, parts, strict=True):
        if any(array.ndim != 1 or array.dtype.kind != "u" for array in of_part):
            raise DatasetDamaged(f"{path}: in {name}, arrays that aren't rows of unsigned numbers")
    train, test = (Part(ranks, offsets.astype(np.int64), labels) for ranks, offsets, labels in parts)
    return _checked(path, train, test, {path.name: found})


def from_keras(path: Path) -> Ranks | None:
    """Keras' `imdb.npz`, in the order in which Keras hands it out; None where it is not."""
    if not path.exists():
        return None
    sha256 = checksum(path)
    if sha256 != KERAS_PUBLISHED:
        raise DatasetDamaged(f"{path}: not Keras' imdb.npz as published: sha256 {sha256}, not {KERAS_PUBLISHED}")
    random = np.random.RandomState(SHUFFLE_SEED)
    try:
        with zipfile.ZipFile(path) as archive:
            train, test = (_shuffled(archive, part, path, random) for part in _PARTS)
    except (OSError, KeyError, TypeError, ValueError, OverflowError, zipfile.BadZipFile) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error
    return _checked(path, train, test, {path.name: sha256})


def _shuffled(archive: zipfile.ZipFile, part: str, path: Path, random: np.random.RandomState) -> Part:
    reviews, labels = (object_array(archive.read(f"{axis}_{part}.npy"), path) for axis in "xy")
    order = np.arange(len(reviews))
    random.shuffle(order)
    return Part.of([np.asarray(reviews[index], np.uint32) for index in order], labels[order].astype(np.uint8))


def _checked(path: Path, train: Part, test: Part, sha256: dict[str, str]) -> Ranks:
    for name, part in (("train", train), ("test", test)):
        complaint = part.complaint()
        if complaint:
            raise DatasetDamaged(f"{path}: in {name}, {complaint}")
    return Ranks(train, test, "real", sha256)
