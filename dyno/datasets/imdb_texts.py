"""The IMDB reviews as published: one text file a review, whose words the published index ranks.

Words are what is left of the text in lower case when punctuation is made blank (the apostrophe stays), as Keras'
tokenizer did when the ranks were made; words outside the index are dropped. The order is shuffled, always alike.
"""

from __future__ import annotations

import hashlib
import json
import string
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.imdb_ranks import REVIEWS, SHUFFLE_SEED, VOCABULARY, Part, Ranks
from dyno.errors import DatasetDamaged

INDEX = "imdb_word_index.json"
_BLANKED = (string.punctuation.replace("'", "") + "\t\n").encode()
_TO_BLANKS = bytes.maketrans(_BLANKED, b" " * len(_BLANKED))
_LABELS = {"neg": 0, "pos": 1}


def from_folder(folder: Path) -> Ranks | None:
    """The texts under `folder`, None without its folders `train` and `test`. Raises DatasetDamaged."""
    if not (folder / "train").is_dir() and not (folder / "test").is_dir():
        return None
    index, of_index = _index(folder)
    random = np.random.RandomState(SHUFFLE_SEED)
    (train, of_train), (test, of_test) = (_part(folder / part, index, random) for part in ("train", "test"))
    sha256 = {"train/": of_train, "test/": of_test, INDEX: of_index}
    return Ranks(train, test, "real", sha256, "words ranked here, from the reviews' texts")


def _index(folder: Path) -> tuple[dict[bytes, int], str]:
    """Word, in UTF-8, -> rank; it lies beside the two folders or one above."""
    path = next((place / INDEX for place in (folder, folder.parent) if (place / INDEX).exists()), folder / INDEX)
    try:
        content = path.read_bytes()
        index = {word.encode(): int(rank) for word, rank in json.loads(content).items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DatasetDamaged(f"{path}: can't be read as the word index: {error}") from error
    if len(index) != VOCABULARY or set(index.values()) != set(range(1, VOCABULARY + 1)):
        raise DatasetDamaged(f"{path}: {len(index)} words that aren't ranked from 1 to {VOCABULARY}")
    return index, hashlib.sha256(content).hexdigest()


def _part(folder: Path, index: dict[bytes, int], random: np.random.RandomState) -> tuple[Part, str]:
    digest = hashlib.sha256()
    reviews, labels = [], []
    for name, label in _LABELS.items():
        for path in _files(folder / name):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise DatasetDamaged(f"{path}: {error}") from error
            digest.update(f"{name}/{path.name}\0{len(content)}\0".encode() + content)
            reviews.append(ranked(content, index))
            labels.append(label)
    order = np.arange(len(reviews))
    random.shuffle(order)
    return Part.of([reviews[place] for place in order], np.array(labels, np.uint8)[order]), digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.txt"))
    if len(found) != REVIEWS // 2:
        raise DatasetDamaged(f"{folder}: {len(found)} reviews, not {REVIEWS // 2}")
    return found


def ranked(text: bytes, index: dict[bytes, int]) -> NDArray[np.uint32]:
    """The ranks of the words of a text in UTF-8 that the index knows."""
    words = text.lower().translate(_TO_BLANKS).split(b" ")
    return np.array([index[word] for word in words if word in index], np.uint32)
