"""The operands of products, and degenerate ones: zeros, one value, products that vanish."""

import numpy as np
import pytest

from dyno.bench.workloads import matmul
from dyno.bench.workloads._matmul_params import MatmulParams, generator, normal, signed_hartley
from dyno.bench.workloads.matmul import Chain, Dispatch, IntegerDispatch
from tests.running import started


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 100, 1500])
def test_the_factor_is_orthogonal(n):
    factor = signed_hartley(n, generator(0)).astype(np.float64)
    # Elements are rounded to float32, each by 2^-24 at most: two rows' products of length 1 by twice that.
    np.testing.assert_allclose(factor @ factor.T, np.eye(n), rtol=0, atol=2.01 * 2.0**-24 + 1e-12 * n)


def test_a_chain_of_three_hundred_products_keeps_its_size():
    random = generator(1)
    value, factor = normal(64, 64, random), signed_hartley(64, random)
    before = np.sqrt(np.mean(value**2))
    for _ in range(300):
        value = value @ factor
    # Each product rounds sums of 64 terms by 2^-24, and its factor is so far from orthogonal.
    assert np.sqrt(np.mean(value**2)) == pytest.approx(before, rel=300 * (64 + 1) * 2.0**-24)


def test_the_powers_of_the_factor_do_not_come_back_to_the_start():
    factor = signed_hartley(64, generator(2)).astype(np.float64)
    power = np.eye(64)
    for _ in range(50):
        power = power @ factor
        assert np.abs(power - np.eye(64)).max() > 0.1


def test_a_seed_decides_the_data():
    assert (normal(8, 8, generator(3)) == normal(8, 8, generator(3))).all()
    assert (normal(8, 8, generator(3)) != normal(8, 8, generator(4))).any()
    assert (signed_hartley(8, generator(3)) == signed_hartley(8, generator(3))).all()


PARAMS = MatmulParams(n=64, repeats=2, mode="dispatch")


def _half_zero(params, random):
    """Each operand is at most half zeros, but their product is all zeros."""
    m, k, n = params.sides
    left = np.arange(k) < k // 2
    return normal(m, k, random) * left, normal(k, n, random) * ~left[:, None]


@pytest.mark.parametrize("spoilt", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_zeros_in_either_operand_of_any_rotating_pair_are_found(context, spoilt):
    class Zeros(Dispatch):
        def _pair(self, params, random):
            place, pair = len(self._pairs), super()._pair(params, random)
            a, b = (each * ((place, side) != spoilt) for side, each in enumerate(pair))
            return a, b

    built = Zeros(PARAMS, 1.0, 2, context())
    built.execute(1)
    found = built.verify()
    assert [raised.code for raised in found.warnings] == ["DEGENERATE_DATA"]
    last_is_zero = spoilt[0] == 1
    assert found.precision.observed == (None if last_is_zero else "float32")
    assert ("RESULT_INCORRECT" in found.verified) is not last_is_zero


@pytest.mark.parametrize(("zero", "told"), [(False, []), (True, ["DEGENERATE_DATA"])])
def test_of_many_small_operands_some_hold_one_value_by_chance_and_all_of_them_by_a_fault(context, zero, told):
    class Small(Dispatch):
        def _pair(self, params, random):
            a, b = super()._pair(params, random)
            return a * (not zero), b

    built = Small(MatmulParams(m=2, k=1, n=2, dtype="bfloat16", mode="dispatch"), 1.0, 1000, context())
    built.execute(1)
    assert [raised.code for raised in built.verify().warnings] == told


def test_thousands_of_short_rows_are_not_degenerate(context):
    built = IntegerDispatch(MatmulParams(m=1, k=16, n=1, dtype="int8", mode="dispatch"), 1.0, 4096, context())
    built.execute(1)
    assert built.verify().warnings == []


@pytest.mark.parametrize("name", ["normal", "signed_hartley"])
def test_zeros_at_either_side_of_a_chain_are_found(context, monkeypatch, name):
    monkeypatch.setattr(matmul, name, lambda *sides: np.zeros((64, 64), np.float32))
    built = started(Chain(MatmulParams(n=64, repeats=4), 1.0, context()))
    found = built.verify()
    assert [raised.code for raised in found.warnings] == ["DEGENERATE_DATA"]
    assert found.precision.observed is None


def test_a_product_that_is_zero_though_no_operand_is_tells_nothing(context):
    class HalfZero(Dispatch):
        def _pair(self, params, random):
            return _half_zero(params, random)

    built = HalfZero(PARAMS, 1.0, 2, context())
    built.execute(1)
    found = built.verify()
    assert [raised.message for raised in found.warnings] == ["The product of the operands is zero."]
    assert found.precision.observed is None
