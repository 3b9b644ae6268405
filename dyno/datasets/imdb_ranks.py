"""Reviews as the ranks of their words, before they are numbered and padded; 1 is the most frequent word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 88_584  # words of the published index
REVIEWS = 25_000  # of each part, half of them good
SHUFFLE_SEED = 113  # Keras' own


@dataclass(frozen=True)
class Part:
    """Review i is `ranks[offsets[i]:offsets[i + 1]]`; `labels` 1 for good, 0 for bad."""

    ranks: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.uint8]

    @classmethod
    def of(cls, reviews: list[NDArray[np.uint32]], labels: NDArray[np.uint8]) -> Part:
        """From one array a review."""
        lengths = [len(review) for review in reviews]
        return cls(np.concatenate(reviews), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), labels)

    def complaint(self) -> str | None:
        """What is wrong with it, None if it is as published."""
        ends_fit = len(self.offsets) == REVIEWS + 1 and self.offsets[0] == 0 and self.offsets[-1] == len(self.ranks)
        if not ends_fit or (np.diff(self.offsets) < 0).any():
            return f"its offsets don't cut {len(self.ranks)} words into {REVIEWS} reviews"
        if self.labels.shape != (REVIEWS,) or np.bincount(self.labels).tolist() != [REVIEWS // 2] * 2:
            return f"its labels aren't {REVIEWS // 2} of 0 and as many of 1"
        if len(self.ranks) and not 1 <= self.ranks.min() <= self.ranks.max() <= VOCABULARY:
            return f"ranks from {self.ranks.min()} to {self.ranks.max()}, not within 1 to {VOCABULARY}"
        return None


@dataclass(frozen=True)
class Ranks:
    """Both parts and where they came from."""

    train: Part
    test: Part
    kind: Literal["real", "synthetic"]
    sha256: dict[str, str]
    note: str | None = None
