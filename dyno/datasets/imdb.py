"""IMDB film reviews, good or bad: 25,000 + 25,000, as word ranks. Maas et al., ACL 2011; no licence, so none ships.

Looked for in `<data_dir>/imdb/`, then in Keras' cache; `imdb_files.py` says in which forms. What is there but damaged
or incomplete is an error. Without real files `auto` is a synthetic twin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import imdb_files
from dyno.datasets.choice import Forms, choose, folders, keras_cache, looked_in
from dyno.datasets.fetch import Remote
from dyno.datasets.imdb_ranks import Part, Ranks
from dyno.datasets.imdb_twin import synthetic
from dyno.datasets.kinds import DataKind
from dyno.models.result import DataOrigin
from dyno.settings import Settings

NAME = "imdb"
WORDS, LENGTH = 15_000, 250
REMOTE = Remote(  # Keras' own, which needs no tokenizer
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz", imdb_files.KERAS_PUBLISHED, 17_464_789
)
# Keras' numbering: what `keras.datasets.imdb.load_data` makes of its arguments' defaults
_PADDING, _START, _RARE, _FROM = 0, 1, 2, 3


@dataclass(frozen=True)
class Reviews:
    """Word numbers int32 (reviews, length), below `words`; labels uint8 (reviews,), 1 for a good one."""

    train: NDArray[np.int32]
    train_labels: NDArray[np.uint8]
    test: NDArray[np.int32]
    test_labels: NDArray[np.uint8]
    origin: DataOrigin


def load(settings: Settings, kind: DataKind = "auto", words: int = WORDS, length: int = LENGTH) -> Reviews:
    """The reviews of that kind; `auto` is real, else the synthetic twin.

    As Keras numbers and pads them: 1 starts a review, a word is its rank + 3, or 2 from `words` on; the last `length`
    are kept, and shorter reviews have 0 in front. `words` at least 4, `length` at least 1.

    Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
    """
    forms = Forms(
        NAME,
        real=lambda: _real(settings, words, length),
        sample=None,
        synthetic=lambda: _reviews(synthetic(), words, length),
        absent=f"no IMDB reviews here: looked for imdb_sequences.npz, imdb.npz and the folders train/ and test/ in "
        f"{looked_in(settings, NAME)}, and for {keras_cache() / 'imdb.npz'}",
        remotes=[REMOTE],
    )
    return choose(settings, kind, forms)


def _real(settings: Settings, words: int, length: int) -> Reviews | None:
    for folder in folders(settings, NAME):
        found = imdb_files.from_folder(folder)
        if found is not None:
            return _reviews(found, words, length)
    found = imdb_files.from_keras(keras_cache() / "imdb.npz")
    return None if found is None else _reviews(found, words, length)


def _reviews(ranks: Ranks, words: int, length: int) -> Reviews:
    train, test = ranks.train, ranks.test
    origin = DataOrigin(
        name=NAME,
        kind=ranks.kind,
        sha256=ranks.sha256,
        train_samples=len(train.labels),
        test_samples=len(test.labels),
        note=ranks.note,
    )
    return Reviews(padded(train, words, length), train.labels, padded(test, words, length), test.labels, origin)


def padded(part: Part, words: int, length: int) -> NDArray[np.int32]:
    """Every review as one row, all at once: place by place the rank that belongs there, or the start, or padding."""
    starts, ends = part.offsets[:-1, np.newaxis], part.offsets[1:, np.newaxis]
    places = ends - np.arange(length, 0, -1)
    numbers = part.ranks.astype(np.int32) + _FROM
    numbers[numbers >= words] = _RARE
    rows = numbers.take(places, mode="clip") if len(numbers) else np.zeros(places.shape, np.int32)
    rows[places < starts] = _PADDING
    rows[places == starts - 1] = _START
    return rows
