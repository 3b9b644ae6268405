"""Compressed values in Redis: results and samples.

A value is deflated with a dictionary: texts that most results share, such as the names of fields and sentences of
warnings. A result of 17 to 37 kB takes 1.7 to 5 kB, half of a gzip file, and is read in 20 to 40 µs.

A dictionary never changes, because values that need it are stored for weeks. If the texts change much, add one under
the next number.
"""

import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from redis.client import NEVER_DECODE

_LEVEL, _MEMORY = 9, 9  # 2 ms on the worker, after the measurement
_FAST = 1  # 0.2 ms of an event loop
_DICTIONARIES = {1: (Path(__file__).parent / "dictionary-1.txt").read_bytes()}  # by the first byte of a value
_NEWEST = max(_DICTIONARIES)


def execute_raw(client: Any, *command: str) -> Any:
    """The reply of redis-py's client or pipeline as bytes: compressed values can't be decoded as text."""
    return client.execute_command(*command, **{NEVER_DECODE: True})


def compress(text: bytes, name: str = "") -> bytes:
    """The value to store, with `name` in front."""
    deflate = zlib.compressobj(_LEVEL, memLevel=_MEMORY, zdict=_DICTIONARIES[_NEWEST])
    return header(name) + deflate.compress(text) + deflate.flush()


def header(name: str) -> bytes:
    """The first bytes of every value that `compress` makes with this name: dictionary, length of the name, name."""
    return bytes([_NEWEST, len(name)]) + name.encode()


def decompress(stored: bytes) -> str:
    """The text of a value. Raises ValueError for a damaged one, and for one of a newer version's dictionary."""
    try:
        return _inflate(stored).decode()
    except (zlib.error, IndexError) as error:
        raise ValueError(f"damaged value: {error}") from error


@lru_cache(maxsize=128)  # dashboards read the same results again and again
def as_gzip(stored: bytes) -> bytes:
    """The text of a value as a gzip file. Raises ValueError for a damaged value."""
    return gzip.compress(decompress(stored).encode(), _FAST, mtime=0)


def _inflate(stored: bytes) -> bytes:
    if (dictionary := _DICTIONARIES.get(stored[0])) is None:
        raise ValueError(f"damaged value, or of a newer version: no dictionary has the number {stored[0]}")
    inflate = zlib.decompressobj(zdict=dictionary)
    text = inflate.decompress(memoryview(stored)[2 + stored[1] :])
    if not inflate.eof:
        raise ValueError("damaged value: its end is missing")
    return text
