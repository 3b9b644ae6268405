"""Products and precisions, checked on what NumPy and TensorFlow really compute on this processor."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dyno.frameworks.tensorflow import TensorFlow
from dyno.measure.verify import (
    FINGERPRINTS,
    MAX_TOLERANCE,
    ProductCheck,
    allowed,
    exact_product,
    freivalds,
    freivalds_chain,
    precision_fingerprint,
    tolerance,
)

Matrix = NDArray[np.float64]

COLUMN_LEFT_OUT = 1 / 16  # what one of 256 changes: a tolerance of as much would let it pass
Made = Callable[[str], dict[str, NDArray[np.float32]]]


def normal(rows: int, columns: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def orthogonal(side: int) -> NDArray[np.float32]:
    factor, _ = np.linalg.qr(normal(side, side, 9).astype(np.float64))
    return factor.astype(np.float32)


@pytest.fixture(scope="module")
def tensorflow_s(tensorflow: TensorFlow) -> Made:
    """What went in and what came out, by dtype."""
    import tensorflow as tf

    @cache
    def made(dtype: str) -> dict[str, NDArray[np.float32]]:
        a, b, q = (tf.cast(each, dtype) for each in (normal(192, 256, 1), normal(256, 128, 2), orthogonal(256)))
        chain = a
        for _ in range(25):
            chain = chain @ q
        found = {"a": a, "b": b, "q": q, "y": a @ b, "one": a @ q, "chain": chain}
        return {name: tf.cast(value, tf.float32).numpy() for name, value in found.items()}

    return made


def test_the_estimate_is_the_error_that_the_full_product_in_float64_shows() -> None:
    a, b = normal(300, 200, 1), normal(200, 250, 2)
    wrong = a @ b + 1e-3 * normal(300, 250, 3)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    true_error = np.linalg.norm(wrong - exact) / np.linalg.norm(exact)
    assert freivalds(a, b, wrong, dtype="float32").rel_error == pytest.approx(true_error, rel=0.1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_tensorflow_multiplies_is_correct(tensorflow_s: Made, dtype: str) -> None:
    a, b, y = (tensorflow_s(dtype)[name] for name in "aby")
    check = freivalds(a, b, y, dtype=dtype)
    assert check.correct
    assert check.tolerance < COLUMN_LEFT_OUT


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_tensorflow_chains_is_correct_within_a_random_walk(tensorflow_s: Made, dtype: str) -> None:
    a, q, one, chain = (tensorflow_s(dtype)[name] for name in ("a", "q", "one", "chain"))
    single = freivalds(a, q, one, dtype=dtype)
    check = freivalds_chain(a, lambda vectors: q.astype(np.float64) @ vectors, chain, 25, dtype=dtype)
    # Where bfloat16 is cut off, not rounded, 25 products err by more: see tests/workloads/test_chains.py.
    assert check.rel_error <= allowed(check, single, dtype, inner=256, products=25)
    assert check.tolerance < COLUMN_LEFT_OUT


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_precision_that_ran_is_seen_against_operands_that_were_not_rounded(tensorflow_s: Made, dtype: str) -> None:
    (a, b), y = (tensorflow_s("float32")[name] for name in "ab"), tensorflow_s(dtype)["y"]
    error = freivalds(a, b, y, dtype=dtype).rel_error
    assert precision_fingerprint(error, requested=dtype) == dtype


def test_float32_that_secretly_ran_in_bfloat16_is_seen(tensorflow_s: Made) -> None:
    asked = tensorflow_s("float32")
    check = freivalds(asked["a"], asked["b"], tensorflow_s("bfloat16")["y"], dtype="float32")
    assert not check.correct
    assert precision_fingerprint(check.rel_error, requested="float32") == "bfloat16"


@pytest.mark.parametrize("products", [24, 26])
def test_a_chain_of_another_length_is_incorrect(tensorflow_s: Made, products: int) -> None:
    a, q, chain = (tensorflow_s("bfloat16")[name] for name in ("a", "q", "chain"))
    check = freivalds_chain(a, lambda vectors: q.astype(np.float64) @ vectors, chain, products, dtype="bfloat16")
    assert not check.correct
    assert check.rel_error == pytest.approx(math.sqrt(2), rel=0.2)


@pytest.mark.parametrize("spoil", ["one column", "one element", "zeros"])
def test_a_spoiled_product_is_incorrect(spoil: str) -> None:
    a, b = normal(256, 256, 1), normal(256, 256, 2)
    y = a @ b
    if spoil == "one column":
        y[:, 17] = 0
    elif spoil == "one element":
        y[3, 4] += 1
    else:
        y[:] = 0
    assert not freivalds(a, b, y, dtype="float32").correct


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_output_that_is_not_finite_is_counted_and_incorrect(value: float) -> None:
    a, b = normal(64, 64, 1), normal(64, 64, 2)
    y = a @ b
    y[3, :5] = value
    check = freivalds(a, b, y, dtype="float32")
    assert (check.nonfinite, check.elements) == (5, 4096)
    assert not check.correct
    assert precision_fingerprint(check.rel_error) is None


@pytest.mark.parametrize("left", [True, False])
def test_nothing_is_told_from_a_product_that_is_zero_and_anything_else_is_wrong(left: bool) -> None:
    a, b = (np.zeros((8, 8), np.float32), normal(8, 8))[:: 1 if left else -1]
    zero = freivalds(a, b, a @ b, dtype="float32")
    assert (zero.told, zero.correct, precision_fingerprint(zero.rel_error)) == (False, False, None)
    wrong = freivalds(a, b, np.ones((8, 8), np.float32), dtype="float32")
    assert (wrong.told, wrong.correct) == (True, False)


def _summed(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """One sum, term by term: the coarsest of honest ways."""
    return np.cumsum(a.reshape(-1) * b.reshape(-1), dtype=np.float32)[-1:].reshape(1, 1)


def test_a_single_sum_that_cancels_is_correct_and_none_at_all_is_not() -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        a, b = (random.standard_normal(shape, np.float32) for shape in ((1, 1000), (1000, 1)))
        assert freivalds(a, b, _summed(a, b), dtype="float32", seed=seed).correct
        assert not freivalds(a, b, np.zeros((1, 1), np.float32), dtype="float32", seed=seed).correct


def test_the_same_seed_gives_the_same_estimate() -> None:
    a, b = normal(64, 64, 1), normal(64, 64, 2)
    first, again, other = (freivalds(a, b, a @ b, dtype="float32", seed=seed).rel_error for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_tolerance_grows_with_the_root_of_products_and_of_terms() -> None:
    assert tolerance("bfloat16", inner=4, products=100) == pytest.approx(
        10 * tolerance("bfloat16", inner=4, products=1)
    )
    assert tolerance("float32", inner=40_000, products=1) == pytest.approx(4 * 200 * 2.0**-24, rel=0.01)


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_each_published_error_reads_as_its_precision_and_so_does_its_neighbourhood(name: str) -> None:
    error = FINGERPRINTS[name]
    for factor in (0.6, 1.0, 1.6):
        assert precision_fingerprint(error * factor) == name


def test_float16_is_told_from_tf32_only_by_having_been_asked_for() -> None:
    assert precision_fingerprint(2.9e-4) == "tf32"
    assert precision_fingerprint(2.9e-4, requested="float16") == "float16"
    assert precision_fingerprint(2.9e-4, requested="float32") == "tf32"


@pytest.mark.parametrize(("error", "name"), [(0.0, "float32"), (1e-12, "float32"), (0.5, None), (math.nan, None)])
def test_the_ends_of_the_scale(error: float, name: str | None) -> None:
    assert precision_fingerprint(error) == name


def test_zeros_are_incorrect_however_long_the_chain_was() -> None:
    x, q = normal(64, 64), orthogonal(64).astype(np.float64)
    check = freivalds_chain(x, lambda vectors: q @ vectors, np.zeros((64, 64)), 30_000, dtype="bfloat16")
    assert check.tolerance == MAX_TOLERANCE
    assert not check.correct


def product_check(rel_error: float, dtype: str, products: int) -> ProductCheck:
    return ProductCheck(rel_error, tolerance(dtype, inner=64, products=products), 0, 4096)


def test_a_limit_widens_to_what_a_single_product_shows_and_no_further() -> None:
    chain, tf32 = product_check(0.05, "float32", 100), product_check(2.9e-4, "float32", 1)
    limit = allowed(chain, tf32, "tf32", inner=64, products=100)
    assert limit == tolerance("tf32", inner=64, products=100) < 0.05
    assert allowed(chain, product_check(1e-7, "float32", 1), "float32", inner=64, products=100) == chain.tolerance
    coarse = product_check(9e-3, "float32", 1)  # nearest to bfloat16, yet more than bfloat16 would err
    assert allowed(chain, coarse, "bfloat16", inner=64, products=100) == chain.tolerance
    assert allowed(chain, product_check(2e-3, "float32", 1), "bfloat16", inner=64, products=10**6) == MAX_TOLERANCE


def _integers(m: int, k: int, n: int) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int32]]:
    random = np.random.default_rng(7)
    a, b = (random.integers(-127, 128, shape, dtype=np.int8) for shape in ((m, k), (k, n)))
    return a, b, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


def test_an_exact_product_of_integers_is_exact() -> None:
    found = exact_product(*_integers(40, 70, 30))
    assert (found.exact, found.rel_error, found.rows_compared) == (True, 0.0, 8)
    assert exact_product(*_integers(3, 5, 2)).rows_compared == 3


@pytest.mark.parametrize("row", range(0, 40, 7))
def test_one_integer_that_is_off_by_one_is_found_in_any_row(row: int) -> None:
    a, b, y = _integers(40, 70, 30)
    y[row, 11] += 1
    found = exact_product(a, b, y)
    assert not found.exact
    assert 0 < found.rel_error < 1e-3


def test_zeros_are_no_product_of_integers() -> None:
    a, b, y = _integers(8, 8, 8)
    assert exact_product(a, b, 0 * y).rel_error == pytest.approx(1.0)
