"""The synthetic twin of the IMDB reviews: words drawn by rank, some of which lean to good or to bad."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.imdb_ranks import REVIEWS, VOCABULARY, Part, Ranks

_LEANING = (100, 1_100)  # ranks of the words that lean: even ones to good, odd ones to bad
_TURNED = 0.35  # of those against the review's label, so many are turned into their neighbour


def synthetic() -> Ranks:
    """As many reviews as the real set, of about its lengths; always the same, and learnable."""
    random = np.random.Generator(np.random.SFC64(VOCABULARY))
    return Ranks(_part(random), _part(random), "synthetic", {})


def _part(random: np.random.Generator) -> Part:
    labels = np.arange(REVIEWS, dtype=np.uint8) % 2
    random.shuffle(labels)
    lengths = np.clip(random.lognormal(5.2, 0.6, REVIEWS), 10, 2_000).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ranks = (VOCABULARY ** random.random(offsets[-1], np.float32)).astype(np.uint32)  # Zipf's law
    return Part(np.clip(_leant(ranks, np.repeat(labels, lengths), random), 1, VOCABULARY), offsets, labels)


def _leant(ranks: NDArray[np.uint32], labels: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint32]:
    low, high = _LEANING
    against = (ranks >= low) & (ranks < high) & (ranks % 2 == labels)
    turned = against & (random.random(len(ranks), np.float32) < _TURNED)
    return np.where(turned, ranks ^ 1, ranks).astype(np.uint32)
