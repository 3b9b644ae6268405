from __future__ import annotations

import numpy as np
import pytest

from dyno.workloads._operands import generator, normal, signed_hartley


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 100, 1500])
def test_the_factor_is_orthogonal(n: int) -> None:
    factor = signed_hartley(n, generator(0)).astype(np.float64)
    # Elements are rounded to float32, each by 2^-24 at most: two rows' products of length 1 by twice that.
    np.testing.assert_allclose(factor @ factor.T, np.eye(n), rtol=0, atol=2.01 * 2.0**-24 + 1e-12 * n)


def test_a_chain_of_three_hundred_products_keeps_its_size() -> None:
    random = generator(1)
    value, factor = normal(64, 64, random), signed_hartley(64, random)
    before = np.sqrt(np.mean(value**2))
    for _ in range(300):
        value = value @ factor
    # Each product rounds sums of 64 terms by 2^-24, and its factor is so far from orthogonal.
    assert np.sqrt(np.mean(value**2)) == pytest.approx(before, rel=300 * (64 + 1) * 2.0**-24)


def test_the_powers_of_the_factor_do_not_come_back_to_the_start() -> None:
    factor = signed_hartley(64, generator(2)).astype(np.float64)
    power = np.eye(64)
    for _ in range(50):
        power = power @ factor
        assert np.abs(power - np.eye(64)).max() > 0.1


def test_a_seed_decides_the_data() -> None:
    assert (normal(8, 8, generator(3)) == normal(8, 8, generator(3))).all()
    assert (normal(8, 8, generator(3)) != normal(8, 8, generator(4))).any()
    assert (signed_hartley(8, generator(3)) == signed_hartley(8, generator(3))).all()
