"""Products of int8 matrices, summed in int32: exact, so verified to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dyno.measure.correctness import exact_product
from dyno.measure.result_checks import result_incorrect
from dyno.measure.warnings import OUTPUT_CODES
from dyno.models.result import Precision
from dyno.workloads._operands import LARGEST, Int8, integers
from dyno.workloads._products import Dispatch
from dyno.workloads.contract import Verification

if TYPE_CHECKING:
    from dyno.workloads._matmul_params import MatmulParams

_LEAST_ODD = 113
_FLOAT32_EXACT = 2**24  # up to here float32 holds every whole number, above it no odd one


def _large_odd(count: int, random: np.random.Generator) -> Int8:
    return random.integers(_LEAST_ODD // 2, LARGEST // 2, count, dtype=np.int8, endpoint=True) * np.int8(2) + np.int8(1)


class IntegerDispatch(Dispatch):
    """See `Dispatch`. Element (0, 0) of each product is a large odd number, which sums in float32 would miss.

    It is made of large odd numbers, not of one: a single row or column is the whole operand.
    """

    def _pair(self, params: MatmulParams, random: np.random.Generator) -> tuple[Int8, Int8]:
        m, k, n = params.sides
        a, b = integers(m, k, random), integers(k, n, random)
        a[0, :], b[:, 0] = _large_odd(k, random), _large_odd(k, random)
        if k % 2 == 0:
            b[-1, 0] -= 1
        return a, b

    def _multiply(self, a: Any, b: Any) -> Any:
        return self._framework.integer_matmul(a, b)

    def verify(self) -> Verification:
        """Every row by Freivalds' test and some element by element, all of it in whole numbers."""
        a, b, product = (self._framework.numpy(each) for each in self._last)
        found = exact_product(a, b, product, seed=self._seed)
        told = found.exact and int(a[0].astype(np.int64) @ b[:, 0].astype(np.int64)) > _FLOAT32_EXACT
        warnings = [self._degenerate(), None if found.exact else result_incorrect(found.rel_error, 0.0)]
        details = self._own_details() | {
            "rel_error": found.rel_error,
            "rel_error_tolerance": 0.0,
            "rows_compared": found.rows_compared,
            "sums": str(product.dtype),
        }
        return Verification(
            warnings=[raised for raised in warnings if raised is not None],
            verified=OUTPUT_CODES,  # a whole number is always finite
            precision=Precision(requested="int8", observed="int8" if told else None, rel_error=found.rel_error),
            details=details,
            amounts={"execution": self.work},
        )
