"""Products of operands that hold nothing, or that multiply to nothing: neither is right, nor of any precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyno.workloads import _products
from dyno.workloads._integers import IntegerDispatch
from dyno.workloads._matmul_params import MatmulParams
from dyno.workloads._operands import normal
from dyno.workloads._products import Chain, Dispatch
from dyno.workloads.contract import BuildContext

Context = Callable[..., BuildContext]
PARAMS = MatmulParams(n=64, repeats=2, mode="dispatch")


def _half_zero(params: MatmulParams, random: np.random.Generator) -> tuple[Any, Any]:
    """Neither operand is more than half zeros; their product is nothing else."""
    m, k, n = params.sides
    left = np.arange(k) < k // 2
    return normal(m, k, random) * left, normal(k, n, random) * ~left[:, None]


@pytest.mark.parametrize("spoilt", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_zeros_in_either_operand_of_any_rotating_pair_are_found(context: Context, spoilt: tuple[int, int]) -> None:
    class Zeros(Dispatch):
        def _pair(self, params: MatmulParams, random: np.random.Generator) -> tuple[Any, Any]:
            place, pair = len(self._pairs), super()._pair(params, random)
            a, b = (each * ((place, side) != spoilt) for side, each in enumerate(pair))
            return a, b

    built = Zeros(PARAMS, 1.0, 2, context())
    built.execute(1)
    found = built.verify()
    assert [raised.code for raised in found.warnings] == ["DEGENERATE_DATA"]
    assert found.precision is not None
    last_is_zero = spoilt[0] == 1
    assert found.precision.observed == (None if last_is_zero else "float32")
    assert ("RESULT_INCORRECT" in found.verified) is not last_is_zero


@pytest.mark.parametrize(("zero", "told"), [(False, []), (True, ["DEGENERATE_DATA"])])
def test_of_many_small_operands_some_hold_one_value_by_chance_and_all_of_them_by_a_fault(
    context: Context, zero: bool, told: list[str]
) -> None:
    class Small(Dispatch):
        def _pair(self, params: MatmulParams, random: np.random.Generator) -> tuple[Any, Any]:
            a, b = super()._pair(params, random)
            return a * (not zero), b

    built = Small(MatmulParams(m=2, k=1, n=2, dtype="bfloat16", mode="dispatch"), 1.0, 1000, context())
    built.execute(1)
    assert [raised.code for raised in built.verify().warnings] == told


def test_of_thousands_of_short_rows_of_eight_numbers_none_is_called_degenerate(context: Context) -> None:
    built = IntegerDispatch(MatmulParams(m=1, k=16, n=1, dtype="int8", mode="dispatch"), 1.0, 4096, context())
    built.execute(1)
    assert built.verify().warnings == []


@pytest.mark.parametrize("name", ["normal", "signed_hartley"])
def test_zeros_at_either_side_of_a_chain_are_found(
    context: Context, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(_products, name, lambda *sides: np.zeros((64, 64), np.float32))
    built = Chain(MatmulParams(n=64, repeats=4), 1.0, context())
    built.compile()
    built.execute(1)
    found = built.verify()
    assert [raised.code for raised in found.warnings] == ["DEGENERATE_DATA"]
    assert found.precision is not None
    assert found.precision.observed is None


def test_a_product_that_is_zero_though_no_operand_is_tells_nothing(context: Context) -> None:
    class HalfZero(Dispatch):
        def _pair(self, params: MatmulParams, random: np.random.Generator) -> tuple[Any, Any]:
            return _half_zero(params, random)

    built = HalfZero(PARAMS, 1.0, 2, context())
    built.execute(1)
    found = built.verify()
    assert [raised.message for raised in found.warnings] == ["The product of the operands is zero."]
    assert found.precision is not None
    assert found.precision.observed is None
