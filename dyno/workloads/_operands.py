"""Operands for matrix products whose chains neither overflow nor vanish."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int8 = NDArray[np.int8]
LARGEST = 127  # of int8 operands; -128 is left out, as quantisation does
LONGEST = (2**31 - 1) // LARGEST**2  # inner side up to which no sum of such products leaves int32
_BLOCK_ELEMENTS = 1 << 20  # index work in blocks that stay in the cache


def generator(seed: int) -> np.random.Generator:
    """A fast generator; its stream depends on `seed` alone, so every run of a job computes with the same data."""
    return np.random.Generator(np.random.SFC64(seed))


def normal(rows: int, columns: int, random: np.random.Generator) -> NDArray[np.float32]:
    """N(0, 1), rows x columns, float32."""
    return random.standard_normal((rows, columns), dtype=np.float32)


def integers(rows: int, columns: int, random: np.random.Generator) -> Int8:
    """Uniform over -127 to 127, rows x columns, int8."""
    return random.integers(-LARGEST, LARGEST, (rows, columns), dtype=np.int8, endpoint=True)


def as_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to the 11 significant bits that TF32 keeps, ties to even.

    A device that multiplies in TF32 takes these as they are; of others it would make the same error in every product
    of a chain, which adds up in step.
    """
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> 13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(np.float32)


def signed_hartley(n: int, random: np.random.Generator) -> NDArray[np.float32]:
    """An orthogonal n x n matrix in O(n²): Hartley's cas(2πij/n)/√n with random column signs, float32.

    Orthogonal, so that a chain of products keeps the rms of its start for any length; the random signs keep the
    powers of the matrix from cycling (Hartley's alone is its own inverse). A QR of the same size costs O(n³).
    """
    angles = 2 * np.pi * np.arange(n) / n
    cas = ((np.cos(angles) + np.sin(angles)) / np.sqrt(n)).astype(np.float32)
    signs = random.choice(np.array([-1, 1], dtype=np.float32), n)
    columns = np.arange(n, dtype=np.int64)
    matrix = np.empty((n, n), dtype=np.float32)
    block = max(1, _BLOCK_ELEMENTS // n)
    for first in range(0, n, block):
        rows = np.arange(first, min(first + block, n), dtype=np.int64)
        np.take(cas, np.outer(rows, columns) % n, out=matrix[first : first + len(rows)], mode="clip")
        matrix[first : first + len(rows)] *= signs
    return matrix
