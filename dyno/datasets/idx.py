"""The idx format of MNIST's files, gzipped: strict, so that a damaged file is named and never half used.

Layout, big-endian: two zero bytes, a type byte (8: unsigned byte), the number of dimensions, each dimension as
uint32, then the values, last dimension fastest. http://yann.lecun.com/exdb/mnist/, "the IDX file format".
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.errors import DatasetDamaged

_UNSIGNED_BYTE = 8
_MOST_BYTES = 1 << 30  # a header may claim anything, and gzip packs a thousandfold


@dataclass(frozen=True)
class IdxFile:
    """`values`: uint8 in the file's dimensions; `sha256` is of the file as it lies there, packed."""

    values: NDArray[np.uint8]
    sha256: str


def read(path: Path, dimensions: int) -> IdxFile:
    """The file at `path`, which must hold unsigned bytes in so many `dimensions`. Raises DatasetDamaged."""
    try:
        packed = path.read_bytes()
        content = _unpacked(packed)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    return IdxFile(_parsed(content, dimensions, path), hashlib.sha256(packed).hexdigest())


def _unpacked(packed: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        return stream.read(_MOST_BYTES)


def _parsed(content: bytes, dimensions: int, path: Path) -> NDArray[np.uint8]:
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise DatasetDamaged(f"{path}: {len(content)} bytes are too short for a header of {header_bytes}")
    magic, *shape = struct.unpack(f">{1 + dimensions}I", content[:header_bytes])
    expected = _UNSIGNED_BYTE << 8 | dimensions
    if magic != expected:
        raise DatasetDamaged(
            f"{path}: starts with {magic:#010x}; unsigned bytes in {dimensions}-D are {expected:#010x}"
        )
    if len(content) - header_bytes != math.prod(shape):
        raise DatasetDamaged(f"{path}: {len(content) - header_bytes} values where its header says {shape}")
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)
