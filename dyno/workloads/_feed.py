"""Batches made on the host while a training runs: a shuffled order, threads that fill each batch, some made ahead.

Between two calls nothing goes on in the background, and as many batches lie ready after a call as before it: each call
pays for the batches that it takes, whatever came before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Float32 = NDArray[np.float32]
Fill = Callable[[Rows, Float32], None]  # writes the inputs of these samples, by their numbers, one after the other


@dataclass(frozen=True)
class _Batch:
    inputs: Float32
    rows: Rows
    parts: list[Future[float]]

    def filled_in_s(self) -> float:
        """The processor time of all parts, once they are there. Raises what was raised in a thread."""
        return sum(part.result() for part in self.parts)


class Feed:
    """Enter it to start its threads; they end when it is left, and what they had begun is given up.

    Every sample comes once an epoch, but for those that make no full batch; the order is the seed's, however many
    threads there are. `ahead`: batches that are made before they are asked for. `made_in_s`: the processor time that
    those taken so far took to make.
    """

    def __init__(
        self,
        fill: Fill,
        targets: NDArray[Any],
        shape: tuple[int, ...],
        batch_size: int,
        seed: int,
        threads: int = 1,
        ahead: int = 0,
    ) -> None:
        self._fill, self._targets, self._shape = fill, targets, (batch_size, *shape)
        self._random = np.random.default_rng(seed)
        self._order: Rows = np.empty(0, np.intp)
        bounds = np.linspace(0, batch_size, threads + 1).astype(int).tolist()
        self._parts = [slice(first, last) for first, last in pairwise(bounds) if first < last]
        self.made_in_s = 0.0
        self.taken: Rows = self._order  # the numbers of the samples in the batch taken last
        self._ahead = ahead
        self._batches: deque[_Batch] = deque()
        self._pool: ThreadPoolExecutor

    def __enter__(self) -> Feed:
        self._pool = ThreadPoolExecutor(len(self._parts), thread_name_prefix="feed")
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self) -> tuple[Float32, NDArray[Any]]:
        """The next batch, once it is made: inputs and targets. Raises what was raised in a thread."""
        while len(self._batches) <= self._ahead:
            self._batches.append(self._begun())
        batch = self._batches.popleft()
        self.made_in_s += batch.filled_in_s()
        self.taken = batch.rows
        return batch.inputs, self._targets[batch.rows]

    def settle(self) -> None:
        """Wait until the batches made ahead are there. Before it is left, so that they can be taken later."""
        for batch in self._batches:
            batch.filled_in_s()

    def _begun(self) -> _Batch:
        rows, inputs = self._next_rows(), np.empty(self._shape, np.float32)
        parts = [self._pool.submit(_timed, self._fill, rows[part], inputs[part]) for part in self._parts]
        return _Batch(inputs, rows, parts)

    def _next_rows(self) -> Rows:
        size = self._shape[0]
        if len(self._order) < size:
            self._order = self._random.permutation(len(self._targets))
        rows, self._order = self._order[:size], self._order[size:]
        return rows


def _timed(fill: Fill, rows: Rows, into: Float32) -> float:
    """The processor time of this thread alone."""
    began_s = time.thread_time()
    fill(rows, into)
    return time.thread_time() - began_s
