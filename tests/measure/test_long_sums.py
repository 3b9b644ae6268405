"""Float32 summed over very many terms errs as nothing shorter does: it is to be taken for no coarser precision."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dyno.measure.verify import freivalds, precision_fingerprint, precision_untold

Matrix = NDArray[np.float64]


@pytest.mark.parametrize(
    ("error", "inner", "name"),
    [
        (1.055e-6, 1_000_000, "float32"),  # as TensorFlow and JAX erred on a CPU
        (1.445e-6, 2_000_000, "float32"),
        (1.864e-6, 4_000_000, "float32"),
        (1.62e-6, 8192, "float32"),  # as one sum does, term by term
        (2.29e-6, 16_384, "float32"),
        (4e-6, 1 << 24, None),
        (4.1e-6, 1_000_000, None),
        (1.2e-6, 1000, "bf16x3"),
        (4.1e-6, 30_000, "bf16x3"),
        (2.9e-4, 1 << 24, "tf32"),
        (2.3e-3, 1 << 24, "bfloat16"),
    ],
)
def test_what_sums_over_many_terms_err_is_taken_for_no_other_precision(
    error: float, inner: int, name: str | None
) -> None:
    assert precision_fingerprint(error, requested="float32", inner=inner) == name
    assert ("PRECISION_MISMATCH" in precision_untold(error, inner=inner)) is (name is None)


def _in_three_products(a: NDArray[np.float32], b: NDArray[np.float32]) -> Matrix:
    """As a unit for bfloat16 makes a float32 product: of the upper halves, and of each with the other's lower half."""

    def halves(values: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
        upper = _as_bfloat16(values)
        return upper.astype(np.float64), _as_bfloat16(values - upper).astype(np.float64)

    (a_upper, a_lower), (b_upper, b_lower) = halves(a), halves(b)
    return a_upper @ b_upper + a_upper @ b_lower + a_lower @ b_upper


def _as_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = values.view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (nearest & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize("inner", [1000, 20_000])
def test_three_products_in_bfloat16_are_told_from_float32_over_many_terms_too(inner: int) -> None:
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape, np.float32) for shape in ((8, inner), (inner, 8)))
    error = freivalds(a, b, _in_three_products(a, b).astype(np.float32), dtype="float32").rel_error
    assert precision_fingerprint(error, requested="float32", inner=inner) == "bf16x3"


def test_one_sum_term_by_term_is_float32() -> None:
    """As each thread of a GPU adds up an element of the product."""
    random, inner = np.random.default_rng(1), 16_384
    a, b = (random.standard_normal(shape, np.float32) for shape in ((32, inner), (inner, 32)))
    product = np.zeros((32, 32), np.float32)
    for left, right in zip(a.T, b, strict=True):
        product += np.outer(left, right)
    error = freivalds(a, b, product, dtype="float32").rel_error
    assert error > 1.2e-6  # beyond the border to bf16x3 that shorter sums have
    assert precision_fingerprint(error, requested="float32", inner=inner) == "float32"
