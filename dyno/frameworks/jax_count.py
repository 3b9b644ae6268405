"""The FLOP of the products in what JAX traced, those of a loop once for each round.

XLA's own `cost_analysis` counts the body of a loop once, and nothing of a product that it hands to a library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

# Products hidden in a kernel of their own: with one of these inside, a count would be too low.
_OPAQUE = ("custom_call", "ffi_call", "pallas_call", "rnn", "cudnn", "ragged_dot", "scaled_matmul", "dot_product_att")


def counted_flops(jaxpr: Any, rounds: int | None = None) -> float | None:
    """FLOP of one execution, multiply-add = 2. None where they can't be counted.

    `rounds`: of the outermost loops that don't tell how often they go round.
    """
    total = 0.0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        flops = _of_equation(equation, rounds)
        if flops is None:
            return None
        total += flops
    return total


def _of_equation(equation: Any, rounds: int | None) -> float | None:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _of_dot(equation)
    if name == "conv_general_dilated":
        return _of_convolution(equation)
    if name.startswith(_OPAQUE):
        return None
    if name == "while":
        return _times(rounds, counted_flops(params["body_jaxpr"]))
    if name == "cond":
        branches = [counted_flops(branch, rounds) for branch in params["branches"]]
        return None if None in branches else max(count for count in branches if count is not None)
    inner = [counted_flops(each, None if name == "scan" else rounds) for each in _jaxprs(params)]
    if None in inner:
        return None
    return float(params.get("length", 1)) * math.fsum(count for count in inner if count is not None)


def _times(rounds: int | None, body: float | None) -> float | None:
    if body == 0.0 or body is None:
        return body
    return None if rounds is None else rounds * body


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Those of a call, a scan, a function with a derivative of its own; thunks for other derivatives are none."""
    for value in params.values():
        if hasattr(getattr(value, "jaxpr", value), "eqns"):
            yield value


def _of_dot(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, product = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    return 2.0 * float(math.prod(product) * math.prod(left[axis] for axis in contracted))


def _of_convolution(equation: Any) -> float:
    """As convention counts it: padding is multiplied too, zeros put between the inputs by a stride are not."""
    params, kernel = equation.params, equation.invars[1].aval.shape
    output_channels = params["dimension_numbers"].rhs_spec[0]
    per_output = math.prod(kernel) / kernel[output_channels]
    between = math.prod(params["lhs_dilation"])
    return 2.0 * float(math.prod(equation.outvars[0].aval.shape) * per_output / between)
