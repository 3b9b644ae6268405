"""Read IMDB film reviews, positive or negative: 25,000 + 25,000, as word ranks. Maas et al., ACL 2011.

The authors state no licence, so Dyno ships no sample. Dyno looks for real files in `<data_dir>/imdb/`, then in Keras'
cache. Damaged or incomplete files are an error. Without real files `auto` is synthetic: it draws words by rank, and
some words are more frequent in positive or in negative reviews. Dyno reads word ranks, not texts:

- `imdb.npz`, Keras' own file: arrays of lists, pickled by NumPy. Its SHA-256 must match, and the restricted unpickler
  reads it. Dyno shuffles the reviews as Keras does.
- `imdb_sequences.npz`: flat word ranks and the offsets of the reviews, without pickles.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets import file_formats, loading
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings

VOCABULARY = 88_584  # words of the published index
REVIEWS = 25_000  # per part, half of them positive
SHUFFLE_SEED = 113  # Keras' own


@dataclass(frozen=True)
class ReviewPart:
    """Review i is `ranks[offsets[i]:offsets[i + 1]]`. `labels`: 1 for positive, 0 for negative."""

    ranks: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.uint8]

    @classmethod
    def of(cls, reviews: list[NDArray[np.uint32]], labels: NDArray[np.uint8]) -> Self:
        """Build a part from one array per review."""
        lengths = [len(review) for review in reviews]
        return cls(np.concatenate(reviews), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), labels)

    def complaint(self) -> str | None:
        """The first deviation from the published data, or None."""
        ends_fit = len(self.offsets) == REVIEWS + 1 and self.offsets[0] == 0 and self.offsets[-1] == len(self.ranks)
        if not ends_fit or (np.diff(self.offsets) < 0).any():
            return f"the offsets don't split {len(self.ranks)} words into {REVIEWS} reviews"
        if self.labels.shape != (REVIEWS,) or np.bincount(self.labels).tolist() != [REVIEWS // 2] * 2:
            return f"expected {REVIEWS // 2} labels of 0 and as many of 1"
        if len(self.ranks) and not 1 <= self.ranks.min() <= self.ranks.max() <= VOCABULARY:
            return f"ranks from {self.ranks.min()} to {self.ranks.max()}, expected 1 to {VOCABULARY}"
        return None


@dataclass(frozen=True)
class RankedReviews:
    """Both parts and their origin."""

    train: ReviewPart
    test: ReviewPart
    kind: Literal["real", "synthetic"]
    sha256: dict[str, str]


KERAS_PUBLISHED = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"
_PARTS = ("train", "test")
_ARRAYS = (("x", "_tokens"), ("x", "_offsets"), ("y", ""))


def read_folder(folder: Path) -> RankedReviews | None:
    """Read one of the two files in `folder`, the flat file first; None if both are missing. Raises DatasetDamaged."""
    return read_sequences(folder / "imdb_sequences.npz") or read_keras(folder / "imdb.npz")


def read_sequences(path: Path) -> RankedReviews | None:
    """Read the flat archive; None if it doesn't exist."""
    if not path.exists():
        return None
    names = [f"{array}_{part}{what}" for part in _PARTS for array, what in _ARRAYS]
    arrays, digest = file_formats.read_npz(path, names)
    parts = [[arrays[f"{array}_{part}{what}"] for array, what in _ARRAYS] for part in _PARTS]
    for name, arrays_of_part in zip(_PARTS, parts, strict=True):
        if any(array.ndim != 1 or array.dtype.kind != "u" for array in arrays_of_part):
            raise DatasetDamaged(f"{path}: {name}: arrays must be one-dimensional and unsigned")
    train, test = (ReviewPart(ranks, offsets.astype(np.int64), labels) for ranks, offsets, labels in parts)
    return _checked(path, train, test, {path.name: digest})


def read_keras(path: Path) -> RankedReviews | None:
    """Read Keras' `imdb.npz`, with the reviews in Keras' shuffled order; None if the file doesn't exist."""
    if not path.exists():
        return None
    sha256 = file_formats.file_sha256(path)
    if sha256 != KERAS_PUBLISHED:
        raise DatasetDamaged(f"{path}: not Keras' published imdb.npz: sha256 {sha256}, expected {KERAS_PUBLISHED}")
    random = np.random.RandomState(SHUFFLE_SEED)
    try:
        with zipfile.ZipFile(path) as archive:
            train, test = (_shuffled(archive, part, path, random) for part in _PARTS)
    except (OSError, KeyError, TypeError, ValueError, OverflowError, zipfile.BadZipFile) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error
    return _checked(path, train, test, {path.name: sha256})


def _shuffled(archive: zipfile.ZipFile, part: str, path: Path, random: np.random.RandomState) -> ReviewPart:
    reviews, labels = (file_formats.read_object_array(archive.read(f"{axis}_{part}.npy"), path) for axis in "xy")
    order = np.arange(len(reviews))
    random.shuffle(order)
    return ReviewPart.of([np.asarray(reviews[index], np.uint32) for index in order], labels[order].astype(np.uint8))


def _checked(path: Path, train: ReviewPart, test: ReviewPart, sha256: dict[str, str]) -> RankedReviews:
    for name, part in (("train", train), ("test", test)):
        complaint = part.complaint()
        if complaint:
            raise DatasetDamaged(f"{path}: {name}: {complaint}")
    return RankedReviews(train, test, "real", sha256)


_LEANING = (100, 1_100)  # ranks of words that suggest a label: even ranks positive, odd ranks negative
_TURNED = 0.35  # the neighbouring rank replaces this share of the words that suggest the wrong label


def synthetic_ranks() -> RankedReviews:
    """Deterministic, learnable reviews, in the number and approximate lengths of the real data set."""
    random = np.random.Generator(np.random.SFC64(VOCABULARY))
    return RankedReviews(_synthetic_part(random), _synthetic_part(random), "synthetic", {})


def _synthetic_part(random: np.random.Generator) -> ReviewPart:
    labels = np.arange(REVIEWS, dtype=np.uint8) % 2
    random.shuffle(labels)
    lengths = np.clip(random.lognormal(5.2, 0.6, REVIEWS), 10, 2_000).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ranks = (VOCABULARY ** random.random(offsets[-1], np.float32)).astype(np.uint32)  # Zipf's law
    return ReviewPart(np.clip(_leant(ranks, np.repeat(labels, lengths), random), 1, VOCABULARY), offsets, labels)


def _leant(ranks: NDArray[np.uint32], labels: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint32]:
    low, high = _LEANING
    against = (ranks >= low) & (ranks < high) & (ranks % 2 == labels)
    turned = against & (random.random(len(ranks), np.float32) < _TURNED)
    return np.where(turned, ranks ^ 1, ranks).astype(np.uint32)


NAME = "imdb"
WORDS, LENGTH = 15_000, 250
REMOTE = loading.Remote(  # Keras' own file, which needs no tokenizer
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz", KERAS_PUBLISHED, 17_464_789
)
# Keras' numbering, by the default arguments of `keras.datasets.imdb.load_data`
_PADDING, _START, _RARE, _FROM = 0, 1, 2, 3


@dataclass(frozen=True)
class Reviews:
    """Word numbers below `words`, int32 (reviews, length); labels uint8 (reviews,), 1 for positive."""

    train: NDArray[np.int32]
    train_labels: NDArray[np.uint8]
    test: NDArray[np.int32]
    test_labels: NDArray[np.uint8]
    origin: DataOrigin


def load(settings: Settings, kind: loading.DataKind = "auto", words: int = WORDS, length: int = LENGTH) -> Reviews:
    """Load the reviews of that kind; `auto` is real, else synthetic.

    Numbering and padding are Keras': 1 starts a review; a word's number is its rank + 3, or 2 if that isn't below
    `words` (>= 4). Reviews keep their last `length` (>= 1) numbers; shorter reviews are padded with 0 in front.

    Raises DatasetDamaged with the file's name, and RunFailed (unsupported, dataset_missing) if that kind is missing.
    """
    forms = loading.Forms(
        NAME,
        real=lambda: _real(settings, words, length),
        sample=None,
        synthetic=lambda: _reviews(synthetic_ranks(), words, length),
        absent=f"IMDB reviews not found: looked for imdb.npz, which is at {REMOTE.url}, and imdb_sequences.npz in "
        f"{loading.searched_folders(settings, NAME)}, and for {loading.keras_cache() / 'imdb.npz'}",
        remotes=[REMOTE],
    )
    return loading.choose_form(settings, kind, forms)


def _real(settings: Settings, words: int, length: int) -> Reviews | None:
    for folder in loading.folders(settings, NAME):
        reviews = read_folder(folder)
        if reviews is not None:
            return _reviews(reviews, words, length)
    reviews = read_keras(loading.keras_cache() / "imdb.npz")
    return None if reviews is None else _reviews(reviews, words, length)


def _reviews(ranks: RankedReviews, words: int, length: int) -> Reviews:
    train, test = ranks.train, ranks.test
    origin = DataOrigin(
        name=NAME,
        kind=ranks.kind,
        sha256=ranks.sha256,
        train_samples=len(train.labels),
        test_samples=len(test.labels),
    )
    return Reviews(padded(train, words, length), train.labels, padded(test, words, length), test.labels, origin)


def padded(part: ReviewPart, words: int, length: int) -> NDArray[np.int32]:
    """Each review as a row of padding, start number and word numbers, computed for all reviews at once."""
    starts, ends = part.offsets[:-1, np.newaxis], part.offsets[1:, np.newaxis]
    positions = ends - np.arange(length, 0, -1)
    numbers = part.ranks.astype(np.int32) + _FROM
    numbers[numbers >= words] = _RARE
    rows = numbers.take(positions, mode="clip") if len(numbers) else np.zeros(positions.shape, np.int32)
    rows[positions < starts] = _PADDING
    rows[positions == starts - 1] = _START
    return rows
