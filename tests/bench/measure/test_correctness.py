"""Products, precisions and training steps: correct, incorrect and undecidable ones.

Products run in NumPy and TensorFlow on this processor. Float32 sums over very many terms err more than shorter ones
and must not count as a coarser precision.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dyno.bench.measure.correctness import (
    ALLOWED_ROUNDINGS,
    FINGERPRINTS,
    MAX_BOUND,
    MAX_TOLERANCE,
    MIN_BOUND,
    ProductCheck,
    TrainingStep,
    agreement,
    allowed_error,
    exact_product,
    freivalds,
    freivalds_chain,
    precision_fingerprint,
    precision_unchecked,
    rounding,
    step_incorrect,
    tolerance,
)

Matrix = NDArray[np.float64]

COLUMN_LEFT_OUT = 1 / 16  # the effect of one in 256; a tolerance this large would accept it
Made = Callable[[str], dict[str, NDArray[np.float32]]]


def normal(rows, columns, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def orthogonal(side):
    factor, _ = np.linalg.qr(normal(side, side, 9).astype(np.float64))
    return factor.astype(np.float32)


@pytest.fixture(scope="module")
def tensorflow_s(tensorflow):
    """Operands and products, by dtype."""
    import tensorflow as tf

    @cache
    def made(dtype):
        a, b, q = (tf.cast(each, dtype) for each in (normal(192, 256, 1), normal(256, 128, 2), orthogonal(256)))
        chain = a
        for _ in range(25):
            chain = chain @ q
        found = {"a": a, "b": b, "q": q, "y": a @ b, "one": a @ q, "chain": chain}
        return {name: tf.cast(value, tf.float32).numpy() for name, value in found.items()}

    return made


def test_the_estimate_matches_the_error_against_the_full_float64_product():
    a, b = normal(300, 200, 1), normal(200, 250, 2)
    wrong = a @ b + 1e-3 * normal(300, 250, 3)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    true_error = np.linalg.norm(wrong - exact) / np.linalg.norm(exact)
    assert freivalds(a, b, wrong, dtype="float32").rel_error == pytest.approx(true_error, rel=0.1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensorflow_products_are_correct(tensorflow_s, dtype):
    a, b, y = (tensorflow_s(dtype)[name] for name in "aby")
    check = freivalds(a, b, y, dtype=dtype)
    assert check.correct
    assert check.tolerance < COLUMN_LEFT_OUT


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensorflow_chains_are_correct_within_a_random_walk(tensorflow_s, dtype):
    a, q, one, chain = (tensorflow_s(dtype)[name] for name in ("a", "q", "one", "chain"))
    single = freivalds(a, q, one, dtype=dtype)
    check = freivalds_chain(a, lambda vectors: q.astype(np.float64) @ vectors, chain, 25, dtype=dtype)
    # If bfloat16 is truncated instead of rounded, 25 products err more: see test_matmul_chains.py.
    assert check.rel_error <= allowed_error(check, single, dtype, inner=256, products=25)
    assert check.tolerance < COLUMN_LEFT_OUT


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_precision_is_observed_against_unrounded_operands(tensorflow_s, dtype):
    (a, b), y = (tensorflow_s("float32")[name] for name in "ab"), tensorflow_s(dtype)["y"]
    error = freivalds(a, b, y, dtype=dtype).rel_error
    assert precision_fingerprint(error, requested=dtype) == dtype


def test_float32_that_ran_in_bfloat16_is_detected(tensorflow_s):
    asked = tensorflow_s("float32")
    check = freivalds(asked["a"], asked["b"], tensorflow_s("bfloat16")["y"], dtype="float32")
    assert not check.correct
    assert precision_fingerprint(check.rel_error, requested="float32") == "bfloat16"


@pytest.mark.parametrize("products", [24, 26])
def test_a_chain_of_another_length_is_incorrect(tensorflow_s, products):
    a, q, chain = (tensorflow_s("bfloat16")[name] for name in ("a", "q", "chain"))
    check = freivalds_chain(a, lambda vectors: q.astype(np.float64) @ vectors, chain, products, dtype="bfloat16")
    assert not check.correct
    assert check.rel_error == pytest.approx(math.sqrt(2), rel=0.2)


@pytest.mark.parametrize("spoil", ["one column", "one element", "zeros"])
def test_a_damaged_product_is_incorrect(spoil):
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
def test_output_that_is_not_finite_is_counted_and_incorrect(value):
    a, b = normal(64, 64, 1), normal(64, 64, 2)
    y = a @ b
    y[3, :5] = value
    check = freivalds(a, b, y, dtype="float32")
    assert (check.nonfinite, check.elements) == (5, 4096)
    assert not check.correct
    assert precision_fingerprint(check.rel_error) is None


@pytest.mark.parametrize("left", [True, False])
def test_a_zero_product_decides_nothing_and_any_other_output_is_wrong(left):
    a, b = (np.zeros((8, 8), np.float32), normal(8, 8))[:: 1 if left else -1]
    zero = freivalds(a, b, a @ b, dtype="float32")
    assert (zero.is_known, zero.correct, precision_fingerprint(zero.rel_error)) == (False, False, None)
    wrong = freivalds(a, b, np.ones((8, 8), np.float32), dtype="float32")
    assert (wrong.is_known, wrong.correct) == (True, False)


def _summed(a, b):
    """A single sum, term by term: the least accurate correct method."""
    return np.cumsum(a.reshape(-1) * b.reshape(-1), dtype=np.float32)[-1:].reshape(1, 1)


def test_a_sum_that_cancels_is_correct_and_a_missing_one_is_not():
    for seed in range(300):
        random = np.random.default_rng(seed)
        a, b = (random.standard_normal(shape, np.float32) for shape in ((1, 1000), (1000, 1)))
        assert freivalds(a, b, _summed(a, b), dtype="float32", seed=seed).correct
        assert not freivalds(a, b, np.zeros((1, 1), np.float32), dtype="float32", seed=seed).correct


def test_the_same_seed_gives_the_same_estimate():
    a, b = normal(64, 64, 1), normal(64, 64, 2)
    first, again, other = (freivalds(a, b, a @ b, dtype="float32", seed=seed).rel_error for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_tolerance_grows_with_the_root_of_products_and_of_terms():
    assert tolerance("bfloat16", inner=4, products=100) == pytest.approx(
        10 * tolerance("bfloat16", inner=4, products=1)
    )
    assert tolerance("float32", inner=40_000, products=1) == pytest.approx(4 * 200 * 2.0**-24, rel=0.01)


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_errors_near_a_fingerprint_map_to_its_precision(name):
    error = FINGERPRINTS[name]
    for factor in (0.6, 1.0, 1.6):
        assert precision_fingerprint(error * factor) == name


def test_float16_is_distinguished_from_tf32_only_by_the_request():
    assert precision_fingerprint(2.9e-4) == "tf32"
    assert precision_fingerprint(2.9e-4, requested="float16") == "float16"
    assert precision_fingerprint(2.9e-4, requested="float32") == "tf32"


@pytest.mark.parametrize(("error", "name"), [(0.0, "float32"), (1e-12, "float32"), (0.5, None), (math.nan, None)])
def test_the_ends_of_the_scale(error, name):
    assert precision_fingerprint(error) == name


def test_zeros_are_incorrect_for_any_length_of_chain():
    x, q = normal(64, 64), orthogonal(64).astype(np.float64)
    check = freivalds_chain(x, lambda vectors: q @ vectors, np.zeros((64, 64)), 30_000, dtype="bfloat16")
    assert check.tolerance == MAX_TOLERANCE
    assert not check.correct


def product_check(rel_error, dtype, products):
    return ProductCheck(rel_error, tolerance(dtype, inner=64, products=products), 0, 4096)


def test_a_limit_widens_only_to_the_error_of_a_single_product():
    chain, tf32 = product_check(0.05, "float32", 100), product_check(2.9e-4, "float32", 1)
    limit = allowed_error(chain, tf32, "tf32", inner=64, products=100)
    assert limit == tolerance("tf32", inner=64, products=100) < 0.05
    assert allowed_error(chain, product_check(1e-7, "float32", 1), "float32", inner=64, products=100) == chain.tolerance
    coarse = product_check(9e-3, "float32", 1)  # nearest to bfloat16, yet more than bfloat16 would err
    assert allowed_error(chain, coarse, "bfloat16", inner=64, products=100) == chain.tolerance
    assert (
        allowed_error(chain, product_check(2e-3, "float32", 1), "bfloat16", inner=64, products=10**6) == MAX_TOLERANCE
    )


def _integers(m, k, n):
    random = np.random.default_rng(7)
    a, b = (random.integers(-127, 128, shape, dtype=np.int8) for shape in ((m, k), (k, n)))
    return a, b, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


def test_an_exact_product_of_integers_is_exact():
    found = exact_product(*_integers(40, 70, 30))
    assert (found.exact, found.rel_error, found.rows_compared) == (True, 0.0, 8)
    assert exact_product(*_integers(3, 5, 2)).rows_compared == 3


@pytest.mark.parametrize("row", range(0, 40, 7))
def test_one_integer_that_is_off_by_one_is_found_in_any_row(row):
    a, b, y = _integers(40, 70, 30)
    y[row, 11] += 1
    found = exact_product(a, b, y)
    assert not found.exact
    assert 0 < found.rel_error < 1e-3


def test_zeros_are_not_a_product_of_integers():
    a, b, y = _integers(8, 8, 8)
    assert exact_product(a, b, 0 * y).rel_error == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("error", "inner", "name"),
    [
        (1.055e-6, 1_000_000, "float32"),  # the error of TensorFlow and JAX on a CPU
        (1.445e-6, 2_000_000, "float32"),
        (1.864e-6, 4_000_000, "float32"),
        (1.62e-6, 8192, "float32"),  # the error of a single sum, term by term
        (2.29e-6, 16_384, "float32"),
        (4e-6, 1 << 24, None),
        (4.1e-6, 1_000_000, None),
        (1.2e-6, 1000, "bf16x3"),
        (4.1e-6, 30_000, "bf16x3"),
        (2.9e-4, 1 << 24, "tf32"),
        (2.3e-3, 1 << 24, "bfloat16"),
    ],
)
def test_the_error_of_sums_over_many_terms_does_not_count_as_another_precision(error, inner, name):
    assert precision_fingerprint(error, requested="float32", inner=inner) == name
    assert ("PRECISION_MISMATCH" in precision_unchecked(error, inner=inner)) is (name is None)


def _in_three_products(a, b):
    """A float32 product on a bfloat16 unit: upper halves, and each upper half with the other's lower half."""

    def halves(values):
        upper = _as_bfloat16(values)
        return upper.astype(np.float64), _as_bfloat16(values - upper).astype(np.float64)

    (a_upper, a_lower), (b_upper, b_lower) = halves(a), halves(b)
    return a_upper @ b_upper + a_upper @ b_lower + a_lower @ b_upper


def _as_bfloat16(values):
    bits = values.view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (nearest & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize("inner", [1000, 20_000])
def test_three_bfloat16_products_are_distinguished_from_float32_over_many_terms(inner):
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape, np.float32) for shape in ((8, inner), (inner, 8)))
    error = freivalds(a, b, _in_three_products(a, b).astype(np.float32), dtype="float32").rel_error
    assert precision_fingerprint(error, requested="float32", inner=inner) == "bf16x3"


def test_one_sum_term_by_term_is_float32():
    """Each thread of a GPU adds up an element of the product this way."""
    random, inner = np.random.default_rng(1), 16_384
    a, b = (random.standard_normal(shape, np.float32) for shape in ((32, inner), (inner, 32)))
    product = np.zeros((32, 32), np.float32)
    for left, right in zip(a.T, b, strict=True):
        product += np.outer(left, right)
    error = freivalds(a, b, product, dtype="float32").rel_error
    assert error > 1.2e-6  # beyond the border to bf16x3 that shorter sums have
    assert precision_fingerprint(error, requested="float32", inner=inner) == "float32"


BEFORE = [np.full((8, 8), 2.0, np.float32), np.zeros(8, np.float32)]
CHANGE = [np.full((8, 8), 1e-2, np.float32), np.full(8, 1e-2, np.float32)]


def _after(*changes, loss=1.0):
    return TrainingStep(loss, [before + change for before, change in zip(BEFORE, changes, strict=True)])


def _found(timed, off=0.001, plain=None, rounded_loss=1.0):
    plain = plain or _after(*CHANGE)
    rounded = _after(*(each * (1 + off) for each in CHANGE), loss=rounded_loss)
    return agreement(BEFORE, timed, plain, rounded, "float32")


@pytest.mark.parametrize(("times", "agrees"), [(0.0, True), (3.5, True), (5.0, False)])
def test_a_step_may_be_off_by_four_times_the_effect_of_one_rounding(times, agrees):
    found = _found(_after(*(each * (1 + times * 1e-2) for each in CHANGE)), off=1e-2)
    assert found.agrees is agrees
    assert found.compared == 1.0
    assert found.bound == pytest.approx(ALLOWED_ROUNDINGS * 1e-2, rel=0.1)


@pytest.mark.parametrize(("error", "agrees"), [(0.015, True), (0.03, False)])
def test_two_percent_of_the_change_is_always_allowed(error, agrees):
    found = _found(_after(*(each * (1 + error) for each in CHANGE)), off=1e-5)
    assert (found.agrees, found.bound) == (agrees, MIN_BOUND)


NO_STEP, BACKWARDS, A_PART = [0 * each for each in CHANGE], [-each for each in CHANGE], [CHANGE[0], 0 * CHANGE[1]]


@pytest.mark.parametrize("wrong", [NO_STEP, BACKWARDS, A_PART])
def test_a_missing_change_a_wrong_direction_and_an_omitted_array_are_found(wrong):
    found = _found(_after(*wrong))
    assert found.agrees is False
    assert found.rel_error >= 0.99


def test_an_array_that_rounding_alone_moves_by_half_is_left_out():
    plain = _after(*CHANGE)
    rounded = _after(CHANGE[0], CHANGE[1] * 1.2)
    found = agreement(BEFORE, _after(CHANGE[0], -CHANGE[1]), plain, rounded, "float32")
    assert (found.agrees, found.compared, found.array) == (True, 64 / 72, 0)


def test_a_change_near_the_roundoff_of_its_storage_dtype_is_bounded_by_that():
    small = _after(*(1e-3 * each for each in CHANGE))
    found = agreement(BEFORE, small, small, small, "float32")
    assert found.agrees is True
    assert 2 * MIN_BOUND < found.bound < MAX_BOUND


def test_if_rounding_moves_most_weights_the_check_is_undecided():
    found = _found(_after(*CHANGE), off=0.2)
    assert (found.agrees, found.compared, found.array) == (None, 0.0, None)
    assert found.details()["rel_error"] is None


def test_a_plain_step_without_changes_leaves_the_check_undecided():
    still = _after(*(0 * each for each in CHANGE))
    assert agreement(BEFORE, still, still, still, "float32").agrees is None


@pytest.mark.parametrize(("loss", "agrees"), [(1.0, True), (1.0 + 2.0**-15, True), (1.001, False), (math.nan, False)])
def test_the_loss_has_the_same_bound(loss, agrees):
    assert _found(_after(*CHANGE, loss=loss)).agrees is agrees


def test_a_missing_loss_is_not_compared():
    assert _found(_after(*CHANGE, loss=None)).agrees is True


def test_a_plain_step_with_a_nonfinite_loss_leaves_the_check_undecided():
    assert _found(_after(*CHANGE), plain=_after(*CHANGE, loss=math.inf)).agrees is None


def test_weights_that_became_nan_only_in_the_timed_step_are_found():
    found = _found(_after(*(each * math.nan for each in CHANGE)))
    assert found.agrees is False
    assert step_incorrect(found, "kernel", 3).evidence["rel_error"] is None


def test_a_rounding_is_the_precision_s_own_or_that_of_a_long_sum():
    assert [rounding(each) for each in ("float32", "tf32", "bfloat16")] == [2.0**-16, 2.0**-11, 2.0**-8]
