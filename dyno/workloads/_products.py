"""The two ways to time matrix products, each verified on the very output that was timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dyno.measure.correctness import (
    MAX_TOLERANCE,
    ProductCheck,
    allowed_error,
    freivalds,
    freivalds_chain,
    is_checkable,
    is_truncated,
    precision_fingerprint,
    precision_unchecked,
)
from dyno.measure.result_checks import degenerate_data, output_nonfinite, result_incorrect, zero_product
from dyno.measure.warnings import OUTPUT_CODES
from dyno.models.result import Precision, ResultWarning
from dyno.workloads._operands import as_tf32, generator, normal, signed_hartley
from dyno.workloads.contract import BuildContext, Verification

if TYPE_CHECKING:
    from dyno.workloads._matmul_params import MatmulParams

_ENOUGH_ELEMENTS = 1024  # rounding errors of fewer scatter too much to tell a precision; one element may even be exact
# Of fewer, half may be alike by chance where there are thousands of operands: in int8 a row may be of eight numbers.
_ENOUGH_VALUES = 64

_IN_STEP = "the rounding errors of a chain of {0} x {0} add up: one this long can't be told from a wrong one"
_CUT_OFF = "{} is cut off here, not rounded, and a chain this long comes out too small to be told from a wrong one"


def tensor_dtype(dtype: str) -> str:
    """What tensors are held in: TF32 is a way of multiplying float32."""
    return "float32" if dtype == "tf32" else dtype


class Chain:
    """X·Q·Q·…·Q and its sum in one compiled graph."""

    def __init__(self, params: MatmulParams, work: float, context: BuildContext) -> None:
        self.work = work
        self._params = params
        self._framework = context.framework
        self._seed = context.seed
        with context.phase("data"):
            random = generator(context.seed)
            start, factor = normal(params.n, params.n, random), signed_hartley(params.n, random)
            if params.dtype == "tf32":
                factor = as_tf32(factor)
        with context.phase("build"):
            self._framework.allow_tf32(params.dtype == "tf32")
            self._start = self._framework.array(start, tensor_dtype(params.dtype))
            self._factor = self._framework.array(factor, tensor_dtype(params.dtype))
        self._product: Any = None

    def compile(self) -> None:
        self._compiled = self._of(self._params.repeats)

    def _of(self, repeats: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        framework = self._framework

        def chain(start: Any, factor: Any) -> tuple[Any, Any]:
            product = framework.repeat(repeats, lambda value: framework.matmul(value, factor), start)
            return product, framework.total(product)

        return framework.compile(chain, self._start, self._factor)

    def counted_flops(self) -> float | None:
        return self._framework.counted_flops(self._compiled)

    def grown(self, times: float) -> Callable[[int], None] | None:
        """A chain so many times as long; its product is dropped."""
        repeats = round(times * self._params.repeats)
        if repeats != times * self._params.repeats or repeats < 1:
            return None
        compiled = self._of(repeats)

        def execute(count: int) -> None:
            total = None
            for _ in range(count):
                _, total = compiled(self._start, self._factor)
            if total is not None:
                self._framework.scalar(total)

        return execute

    def execute(self, count: int) -> None:
        total = None
        for _ in range(count):
            self._product, total = self._compiled(self._start, self._factor)
        if total is not None:
            self._framework.scalar(total)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        """The chain's own output against float64; its precision by one product more of its operands, compiled alike."""
        framework, params = self._framework, self._params
        start = framework.numpy(self._start)
        factor = framework.numpy(self._factor).astype(np.float64)  # as rounded for the device
        one = framework.numpy(self._of(1)(self._start, self._factor)[0])
        single = freivalds(start, factor, one, dtype=params.dtype, seed=self._seed)
        del one
        check = freivalds_chain(
            start,
            lambda vectors: factor @ vectors,
            framework.numpy(self._product),
            params.repeats,
            dtype=params.dtype,
            seed=self._seed,
        )
        matrices = 4  # start, factor, and the running product before and after a step
        working_set_bytes = matrices * params.n**2 * params.item_bytes
        degenerate = degenerate_data(start)
        if degenerate is None and factor.size >= _ENOUGH_ELEMENTS:  # a Hartley matrix of fewer has two or three values
            degenerate = degenerate_data(factor)
        found = _judged(check, single, params.repeats, params.dtype, params.n, degenerate, working_set_bytes)
        found.amounts["execution"] = self.work
        return found


class Dispatch:
    """One call per product, over operands that rotate through more memory than the last cache holds."""

    def __init__(self, params: MatmulParams, work: float, pairs: int, context: BuildContext) -> None:
        self.work = work
        self._params = params
        self._framework = context.framework
        self._seed = context.seed
        random = generator(context.seed)
        held = tensor_dtype(params.dtype)
        self._framework.allow_tf32(params.dtype == "tf32")
        self._pairs: list[tuple[Any, Any]] = []
        for _ in range(pairs):
            with context.phase("data"):
                a, b = self._pair(params, random)
            with context.phase("build"):
                self._pairs.append((self._framework.array(a, held), self._framework.array(b, held)))
        self._next = 0
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def _pair(self, params: MatmulParams, random: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        m, k, n = params.sides
        scale = np.float32(1 / math.sqrt(k))  # keeps the product's rms at 1
        return normal(m, k, random), normal(k, n, random) * scale

    def _multiply(self, a: Any, b: Any) -> Any:
        return self._framework.matmul(a, b)

    def compile(self) -> None:
        """Nothing: each call runs the framework's own kernel."""

    def counted_flops(self) -> float | None:
        """Of one product, traced alone: what is executed is no graph."""
        one = self._framework.counted_flops(self._framework.compile(self._multiply, *self._pairs[0]))
        return None if one is None else one * self._params.repeats

    def execute(self, count: int) -> None:
        matmul, pairs = self._multiply, self._pairs
        place, a, b, product = self._next, None, None, None
        for _ in range(count * self._params.repeats):
            a, b = pairs[place]
            product = matmul(a, b)
            place = place + 1 if place + 1 < len(pairs) else 0
        self._next = place
        self._last = (a, b, product)
        self._framework.scalar(self._framework.total(product))

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        a, b, product = (self._framework.numpy(each) for each in self._last)
        params = self._params
        check = freivalds(a, b, product, dtype=params.dtype, seed=self._seed)
        own = self._own_details()
        inner = params.sides[1]
        found = _judged(check, check, 1, params.dtype, inner, self._degenerate(), own["working_set_bytes"])
        found.details |= own
        found.amounts["execution"] = self.work
        return found

    def _degenerate(self) -> ResultWarning | None:
        """Of all operands the first that is."""
        shares = 2 * len(self._pairs)
        values = (each for side in zip(*self._pairs, strict=True) for each in self._values(side))
        return next((raised for each in values if (raised := degenerate_data(each, shares)) is not None), None)

    def _values(self, operands: Sequence[Any]) -> Iterator[NDArray[Any]]:
        """One after the other; of those with few values, which may be alike by chance, all together."""
        each = (self._framework.numpy(operand) for operand in operands)
        if math.prod(operands[0].shape) >= _ENOUGH_VALUES:
            return each
        return iter([np.concatenate([values.reshape(-1) for values in each])])

    def _own_details(self) -> dict[str, int]:
        m, k, n = self._params.sides
        held_bytes = len(self._pairs) * (m * k + k * n) * self._params.item_bytes
        return {
            "working_set_bytes": held_bytes + m * n * self._params.product_bytes,
            "rotating_pairs": len(self._pairs),
        }


def _judged(
    check: ProductCheck,
    single: ProductCheck,
    products: int,
    dtype: str,
    inner: int,
    degenerate: ResultWarning | None,
    working_set_bytes: int,
) -> Verification:
    """What a check of `products` chained products says, and of which precision the error of a `single` one is the mark.

    `inner`: the inner side of the products. `degenerate`: what speaks against their operands.
    """
    observed, unchecked = None, dict[str, str]()
    if single.elements >= _ENOUGH_ELEMENTS:
        observed = precision_fingerprint(single.rel_error, requested=dtype, inner=inner)
        unchecked = precision_unchecked(single.rel_error, inner=inner)
    ran_in = observed or dtype
    limit = allowed_error(check, single, ran_in, inner=inner, products=products)
    in_step = None if is_checkable(dtype, inner=inner, products=products) else _IN_STEP.format(inner)
    if check.rel_error > limit == MAX_TOLERANCE and is_truncated(single, ran_in):
        in_step = _CUT_OFF.format(ran_in)
    judged = check.told and in_step is None
    warnings = [
        degenerate or zero_product(check.told and single.told),
        output_nonfinite(check.nonfinite, check.elements),
        result_incorrect(check.rel_error, limit) if judged and not check.nonfinite else None,
    ]
    return Verification(
        warnings=[raised for raised in warnings if raised is not None],
        verified=OUTPUT_CODES if judged else OUTPUT_CODES - {"RESULT_INCORRECT"},
        unchecked=unchecked if in_step is None else {**unchecked, "RESULT_INCORRECT": in_step},
        precision=Precision(requested=dtype, observed=observed, rel_error=_finite(single.rel_error)),
        details={
            "working_set_bytes": working_set_bytes,
            "rel_error": _finite(check.rel_error),
            "rel_error_tolerance": limit,
        },
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
