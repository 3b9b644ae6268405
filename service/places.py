"""Answers that may stay open, or be held back, at the same time: so many in all, and of those a part for each key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from dyno.errors import LimitReached
from dyno.models.api_key import ApiKey
from service.errors import TooManyStreams

PART = 4  # of all that there are, one key has a quarter at most
_RETRY_S = 2  # nobody knows when one of them ends


class Places:
    def __init__(self, most: int) -> None:
        self._most, self._most_of_a_key = most, max(1, most // PART)
        self._taken: Counter[str | None] = Counter()

    @contextlib.contextmanager
    def one(self, key: ApiKey | None) -> Iterator[None]:
        """Taken while the block runs. Raises LimitReached for the key's own part, TooManyStreams where all are taken.

        Where no key is needed nobody can be told from others, and only the whole is bounded.
        """
        name = None if key is None else key.id
        if self._has_its_part(name):
            detail = f"{self._most_of_a_key} streams of this key are open, which is the limit; close one first"
            raise LimitReached(detail, "streams", self._most_of_a_key, None, _RETRY_S)
        if self._taken.total() >= self._most:
            raise TooManyStreams(f"{self._most} streams are open, which is the limit; try again later")
        with self._one(name):
            yield

    @contextlib.contextmanager
    def one_if_free(self, name: str | None) -> Iterator[bool]:
        """The same for the id of a key: whether it was free, and is taken while the block runs."""
        free = not self._has_its_part(name) and self._taken.total() < self._most
        with self._one(name) if free else contextlib.nullcontext():
            yield free

    def _has_its_part(self, name: str | None) -> bool:
        return name is not None and self._taken[name] >= self._most_of_a_key

    @contextlib.contextmanager
    def _one(self, name: str | None) -> Iterator[None]:
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]
