"""Multiply matrices, the classic throughput benchmark: 2·M·N·K FLOP per product, `repeats` products per execution.

`chain`: one compiled graph multiplies an N(0, 1) matrix `repeats` times by an orthogonal matrix and reads the sum of
the product back. In a chain, dispatch takes hardly any time, and the values neither overflow nor vanish. `dispatch`:
one call per product over rotating operands that together exceed the last-level cache. Reading the sum of the last
product drains the queue. Both modes verify the timed output.

`float32` means float32 even on devices that multiply it as TF32 by default; `tf32` requests TF32. `int8` products are
summed in int32, counted in OP instead of FLOP, and verified exactly. Each entry of `sizes` is a separate case: Dyno
measures and verifies the cases one by one. With `search_s`, the first run searches for the fastest shape
(`_best_shape`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench import contract, references
from dyno.bench.measure import correctness, result_checks
from dyno.bench.measure.warnings import OUTPUT_CODES, warning
from dyno.bench.workloads._best_shape import TUNED, BestShape, best_shape
from dyno.bench.workloads._matmul_params import (
    LARGEST,
    Int8,
    MatmulParams,
    as_tf32,
    estimate,
    flops,
    generator,
    integers,
    normal,
    refuses,
    rotation,
    signed_hartley,
)
from dyno.errors import RunFailed
from dyno.models.device import Device
from dyno.models.result import Precision, ResultWarning

_ENOUGH_ELEMENTS = 1024  # with fewer, a product may be exact, or its errors scatter too much to identify a precision
# Of fewer values (an int8 row of eight, for example), half may be equal by chance in one of thousands of operands.
_ENOUGH_VALUES = 64

_IN_STEP = "rounding errors add up in a {0} x {0} chain: at this length correct and wrong results look alike"
_CUT_OFF = "the device truncates {} instead of rounding: at this length results shrink until right and wrong look alike"


def tensor_dtype(dtype: str) -> str:
    """The dtype of the tensors: TF32 is a way of multiplying float32."""
    return "float32" if dtype == "tf32" else dtype


class Chain:
    """X·Q·Q·…·Q and its sum in one compiled graph.

    `chosen`: whether the device decided the number of products. `found`: the outcome of the search for a shape.
    """

    chosen = False
    found: BestShape | None = None

    def __init__(self, params: MatmulParams, work: float, context: contract.BuildContext) -> None:
        self.work = work
        self._params, self.repeats = params, params.repeats or 1
        self.bytes = params.traffic_bytes  # of the whole chain: no product in between need leave the caches
        self._framework = context.framework
        self._seed = context.seed
        self._tuned = context.tuned
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
        self._compiled = self._of(self.repeats)

    def _of(self, repeats: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        framework = self._framework

        def chain(start: Any, factor: Any) -> tuple[Any, Any]:
            product = framework.repeat(repeats, lambda value: framework.matmul(value, factor), start)
            return product, framework.total(product)

        return framework.compile(chain, self._start, self._factor)

    def counted_flops(self) -> float | None:
        return self._framework.counted_flops(self._compiled)

    def grown(self, times: float) -> Callable[[int], None] | None:
        """A chain that is `times` times as long. Its product is discarded."""
        repeats = round(times * self.repeats)
        if repeats != times * self.repeats or repeats < 1:
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

    def verify(self) -> contract.Verification:
        """Check the chain's output against float64; in the first run, a single product identifies the precision.

        Later runs execute the same kernels: a coarser precision would exceed the tolerance of their chains.
        """
        framework, params = self._framework, self._params
        start = framework.numpy(self._start)
        factor = framework.numpy(self._factor).astype(np.float64)  # as rounded for the device
        single = self._first_runs_product() or self._single_product(start, factor)
        check = correctness.freivalds_chain(
            start,
            lambda vectors: factor @ vectors,
            framework.numpy(self._product),
            self.repeats,
            dtype=params.dtype,
            seed=self._seed,
        )
        matrices = 4  # start, factor, and the running product before and after a step
        working_set_bytes = matrices * params.n**2 * params.item_bytes
        degenerate = result_checks.degenerate_data(start)
        if degenerate is None and factor.size >= _ENOUGH_ELEMENTS:  # smaller Hartley matrices have 2 or 3 values
            degenerate = result_checks.degenerate_data(factor)
        verification = _judged(check, single, self.repeats, params.dtype, params.n, degenerate, working_set_bytes)
        verification = _as_it_ran(verification, self)
        if math.isfinite(single.rel_error):
            verification.tuned[self._tuned_name] = single.rel_error
        return verification

    def _single_product(self, start: NDArray[Any], factor: NDArray[np.float64]) -> correctness.ProductCheck:
        """The check of one product, compiled like the chain."""
        product = self._framework.numpy(self._of(1)(self._start, self._factor)[0])
        return correctness.freivalds(start, factor, product, dtype=self._params.dtype, seed=self._seed)

    def _first_runs_product(self) -> correctness.ProductCheck | None:
        """The check of one product in the job's first run; None in the first run, or if its product wasn't finite."""
        rel_error, n = self._tuned.get(self._tuned_name), self._params.n
        if not isinstance(rel_error, float):
            return None
        limit = correctness.tolerance(self._params.dtype, inner=n, products=1)
        return correctness.ProductCheck(rel_error, limit, nonfinite=0, elements=n * n)

    @property
    def _tuned_name(self) -> str:
        return f"rel_error_{self._params.label}"


class Dispatch:
    """One call per product. The operands rotate through more memory than the last-level cache holds.

    `by_xla`: the frameworks that compile a product when it first runs. Other frameworks contain compiled kernels.
    """

    by_xla = frozenset({"jax"})
    chosen = False
    found: BestShape | None = None

    def __init__(self, params: MatmulParams, work: float, pairs: int, context: contract.BuildContext) -> None:
        self.work = work
        self._params, self.repeats = params, params.repeats or 1
        self.bytes = self.repeats * params.traffic_bytes
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
        """Compute one product if the framework compiles products when they first run."""
        if self._framework.name in self.by_xla:
            self._framework.scalar(self._framework.total(self._multiply(*self._pairs[0])))

    def counted_flops(self) -> float | None:
        """Count one product in a separate trace, because `execute` runs without a graph."""
        product_flops = self._framework.counted_flops(self._framework.compile(self._multiply, *self._pairs[0]))
        return None if product_flops is None else product_flops * self.repeats

    def execute(self, count: int) -> None:
        matmul, pairs = self._multiply, self._pairs
        number, a, b, product = self._next, None, None, None
        for _ in range(count * self.repeats):
            a, b = pairs[number]
            product = matmul(a, b)
            number = number + 1 if number + 1 < len(pairs) else 0
        self._next = number
        self._last = (a, b, product)
        self._framework.scalar(self._framework.total(product))

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> contract.Verification:
        a, b, product = (self._framework.numpy(array) for array in self._last)
        params = self._params
        check = correctness.freivalds(a, b, product, dtype=params.dtype, seed=self._seed)
        details = self._own_details()
        inner = params.sides[1]
        verification = _judged(check, check, 1, params.dtype, inner, self._degenerate(), details["working_set_bytes"])
        verification.details |= details
        return _as_it_ran(verification, self)

    def _degenerate(self) -> ResultWarning | None:
        """A warning for the first degenerate operand, if any."""
        shares = 2 * len(self._pairs)
        operands = (data for side in zip(*self._pairs, strict=True) for data in self._values(side))
        return next(
            (raised for data in operands if (raised := result_checks.degenerate_data(data, shares)) is not None), None
        )

    def _values(self, operands: Sequence[Any]) -> Iterator[NDArray[Any]]:
        """Each operand in turn. Small operands, whose values may be equal by chance, are joined into one."""
        arrays = (self._framework.numpy(operand) for operand in operands)
        if math.prod(operands[0].shape) >= _ENOUGH_VALUES:
            return arrays
        return iter([np.concatenate([values.reshape(-1) for values in arrays])])

    def _own_details(self) -> dict[str, int]:
        m, k, n = self._params.sides
        held_bytes = len(self._pairs) * (m * k + k * n) * self._params.item_bytes
        return {
            "working_set_bytes": held_bytes + m * n * self._params.product_bytes,
            "rotating_pairs": len(self._pairs),
        }


def _judged(
    check: correctness.ProductCheck,
    single: correctness.ProductCheck,
    products: int,
    dtype: str,
    inner: int,
    degenerate: ResultWarning | None,
    working_set_bytes: int,
) -> contract.Verification:
    """The `Verification` for `check`, the check of `products` chained products. `single` identifies the precision.

    `single`: the check of one product. `inner`: the products' inner side. `degenerate`: a warning about the operands.
    """
    observed, unchecked = None, dict[str, str]()
    if single.elements >= _ENOUGH_ELEMENTS:
        observed = correctness.precision_fingerprint(single.rel_error, requested=dtype, inner=inner)
        unchecked = correctness.precision_unchecked(single.rel_error, inner=inner)
    ran_in = observed or dtype
    limit = correctness.allowed_error(check, single, ran_in, inner=inner, products=products)
    in_step = None if correctness.is_checkable(dtype, inner=inner, products=products) else _IN_STEP.format(inner)
    if check.rel_error > limit == correctness.MAX_TOLERANCE and correctness.is_truncated(single, ran_in):
        in_step = _CUT_OFF.format(ran_in)
    judged = check.is_known and in_step is None
    warnings = [
        degenerate or result_checks.zero_product(check.is_known and single.is_known),
        result_checks.output_nonfinite(check.nonfinite, check.elements),
        result_checks.result_incorrect(check.rel_error, limit) if judged and not check.nonfinite else None,
    ]
    return contract.Verification(
        warnings=[raised for raised in warnings if raised is not None],
        verified=OUTPUT_CODES if judged else OUTPUT_CODES - {"RESULT_INCORRECT"},
        unchecked=unchecked if in_step is None else {**unchecked, "RESULT_INCORRECT": in_step},
        precision=Precision(requested=dtype, observed=observed, rel_error=correctness.finite(single.rel_error)),
        details={
            "working_set_bytes": working_set_bytes,
            "rel_error": correctness.finite(check.rel_error),
            "rel_error_tolerance": limit,
        },
    )


def _as_it_ran(checked: contract.Verification, built: "Chain | Dispatch") -> contract.Verification:
    """Add the work and traffic of an execution, and what the run chose: the number of products, the shape."""
    checked.amounts["execution"] = built.work
    checked.bytes = built.bytes
    if built.chosen or built.found:
        checked.flops = built.work
    if built.chosen:
        checked.params["repeats"] = built.repeats
        checked.details["execution"] = _execution(built.repeats)
    if built.found:
        checked.params |= built.found.sides
        checked.tuned[TUNED] = list(built.found.shape)
        checked.details |= built.found.details
    return checked


def _execution(repeats: int) -> str:
    products = "1 product" if repeats == 1 else f"{repeats} products"
    return f"{products}; the sum of the last one is read back"


_LEAST_ODD = 113
_FLOAT32_EXACT = 2**24  # float32 represents every integer up to here, and only even integers above


def _large_odd(count: int, random: np.random.Generator) -> Int8:
    return random.integers(_LEAST_ODD // 2, LARGEST // 2, count, dtype=np.int8, endpoint=True) * np.int8(2) + np.int8(1)


class IntegerDispatch(Dispatch):
    """See `Dispatch`. Element (0, 0) of each product is a large odd number that float32 sums can't represent.

    To this end, row 0 of the first operand and column 0 of the second operand hold large odd numbers. These numbers
    differ, because an operand with one row of equal numbers would be degenerate.
    """

    by_xla = frozenset({"jax", "tensorflow"})

    def _pair(self, params: MatmulParams, random: np.random.Generator) -> tuple[Int8, Int8]:
        m, k, n = params.sides
        a, b = integers(m, k, random), integers(k, n, random)
        a[0, :], b[:, 0] = _large_odd(k, random), _large_odd(k, random)
        if k % 2 == 0:
            b[-1, 0] -= 1
        # CUDA multiplies int8 on its matrix units only if `b` is stored by columns: on an H100, PyTorch reached 918 to
        # 989 TOP/s by columns, and 129 to 133 by rows. Other frameworks choose the order themselves.
        return a, np.asfortranarray(b)

    def _multiply(self, a: Any, b: Any) -> Any:
        return self._framework.integer_matmul(a, b)

    def verify(self) -> contract.Verification:
        """Check every row with Freivalds' test and some rows element by element, in exact integers."""
        a, b, product = (self._framework.numpy(array) for array in self._last)
        exact = correctness.exact_product(a, b, product, seed=self._seed)
        in_int32 = exact.exact and int(a[0].astype(np.int64) @ b[:, 0].astype(np.int64)) > _FLOAT32_EXACT
        warnings = [self._degenerate(), None if exact.exact else result_checks.result_incorrect(exact.rel_error, 0.0)]
        details = self._own_details() | {
            "rel_error": exact.rel_error,
            "rel_error_tolerance": 0.0,
            "rows_compared": exact.rows_compared,
            "sums": str(product.dtype),
        }
        verification = contract.Verification(
            warnings=[raised for raised in warnings if raised is not None],
            verified=OUTPUT_CODES,  # integers are always finite
            precision=Precision(requested="int8", observed="int8" if in_int32 else None, rel_error=exact.rel_error),
            details=details,
        )
        return _as_it_ran(verification, self)


class Sizes(contract.CaseByCase):
    """The products that `built` computes, in the order of `sizes`."""

    def __init__(self, sizes: Sequence[MatmulParams], built: Sequence[Chain | Dispatch]) -> None:
        self._built = {size.label: products for size, products in zip(sizes, built, strict=True)}
        self._first = built[0]
        cases = [_case(size.label, size.dtype, products) for size, products in zip(sizes, built, strict=True)]
        super().__init__(built, cases)

    def verify(self) -> contract.Verification:
        """Verify each size. For all sizes together, report the worst precision and the smallest working set."""
        verified = {label: products.verify() for label, products in self._built.items()}
        warnings = [_of(label, raised) for label, size in verified.items() for raised in size.warnings]
        by_size: dict[str, Any] = {label: size.details for label, size in verified.items()}
        smallest = min(details["working_set_bytes"] for details in by_size.values())
        return contract.Verification(
            warnings=warnings,
            unchecked=_unidentified(verified)
            | {code: why for size in verified.values() for code, why in size.unchecked.items()},
            verified=frozenset.intersection(*(size.verified for size in verified.values())),
            precision=_worst([size.precision for size in verified.values() if size.precision is not None]),
            details={
                "working_set_bytes": smallest,
                "sizes": by_size,
                **({"execution": next(iter(by_size.values()))["execution"]} if self._first.chosen else {}),
            },
            amounts=next(iter(verified.values())).amounts,
            flops=self.work if self._first.chosen else None,
            tuned={name: value for size in verified.values() for name, value in size.tuned.items()},
        )


def _case(label: str, dtype: str, built: Chain | Dispatch) -> contract.Case:
    return contract.Case(
        name=label,
        work=built.work,
        flops=built.work,
        dtype=dtype,
        execute=built.execute,
        amounts={"execution": built.work},
        grown=built.grown if isinstance(built, contract.Growable) else None,
        counted_flops=built.counted_flops if isinstance(built, contract.Countable) else None,
        bytes=built.bytes,
    )


def _of(label: str, raised: ResultWarning) -> ResultWarning:
    return raised.model_copy(update={"evidence": {"size": label, **raised.evidence}})


def _unidentified(checks: Mapping[str, contract.Verification]) -> dict[str, str]:
    """The precision observed for one size doesn't apply to another."""
    silent = [label for label, size in checks.items() if size.precision is None or size.precision.observed is None]
    return {"PRECISION_MISMATCH": f"the product of {silent[0]} doesn't identify its precision"} if silent else {}


def _worst(precisions: Sequence[Precision]) -> Precision | None:
    """The precision with the largest error: of the mismatching precisions, else of the identified ones, else of all."""
    wrong = [precision for precision in precisions if result_checks.precision_mismatch(precision)]
    identified = [precision for precision in precisions if precision.observed is not None]
    return max(wrong or identified or precisions, key=lambda precision: precision.rel_error or 0.0, default=None)


def build(params: MatmulParams, context: contract.BuildContext) -> contract.Built:
    """Raises RunFailed (unsupported, dtype_unsupported) on a device that lacks the dtype."""
    if context.device is not None and (refused := refuses(params, context.device)):
        raise RunFailed("unsupported", refused[0].code, refused[0].detail)
    found = best_shape(params, context) if params.search_s is not None else None
    if found is not None:
        params = params.model_copy(update=found.sides)
    sizes = [size.on(context.device) for size in params.by_size]
    built = [_built(size, context) for size in sizes]
    for products in built:
        products.chosen, products.found = params.repeats is None, found
    return built[0] if params.sizes is None else Sizes(sizes, built)


def _built(params: MatmulParams, context: contract.BuildContext) -> Chain | Dispatch:
    if params.mode == "chain":
        return Chain(params, flops(params), context)
    last_cache_bytes = context.device.last_cache_bytes if context.device else None
    kind = IntegerDispatch if params.dtype == "int8" else Dispatch
    return kind(params, flops(params), rotation(params, last_cache_bytes), context)


_SMALL_CACHE_BYTES = 4 << 20  # smaller than the cache of any device in use


def lint(params: MatmulParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    """Warnings that follow from the sizes. The run itself finds out whether the device's cache holds the operands."""
    if params.search_s is not None:  # the size isn't known yet
        return []
    sides = [side for size in params.by_size for side in size.sides]
    small = next((raised for size in params.by_size if (raised := _small(size))), None)
    on_tpu = device is not None and device.kind == "tpu"
    uneven = result_checks.width_uneven({str(side): side for side in sides}) if on_tpu else None
    return [raised for raised in (result_checks.pow2_only(sides), small, uneven) if raised is not None]


def _small(params: MatmulParams) -> ResultWarning | None:
    """Warns if a chain's matrices fit in every cache. In `dispatch`, rotating operands fit in no cache."""
    working_set_bytes = 4 * params.n**2 * params.item_bytes
    if params.mode == "dispatch" or working_set_bytes > _SMALL_CACHE_BYTES:
        return None
    message = f"The matrices take {working_set_bytes} bytes and fit in every device's last-level cache."
    return warning("CACHE_RESIDENT", message, working_set_bytes=working_set_bytes)


_SESSIONS = "One of two sessions of the same code, 0.47e12 and 0.53e12."
_K80 = "The K80 that Colab offered then peaks at 8.74e12; the figure equals a V100's float32 datasheet."
_COMPILING = "The article doesn't say whether the time includes compiling."
_OVERFLOW = "TPUs compute the stated float32 as bfloat16, and a chain of random matrices this long overflows."


_RATIOS = "29 is relative to the CPU's 0.53e12, 75 and 338 to 0.47e12. No interval; every figure involved is doubtful."


REFERENCES = (
    references.HARNESS.figure(references.CPU, "throughput", 0.47e12, "FLOP/s", _SESSIONS),
    references.HARNESS.figure(references.CPU, "throughput", 0.53e12, "FLOP/s", _SESSIONS),
    references.HARNESS.figure(references.GPU, "throughput", 15.70e12, "FLOP/s", _K80),
    references.HARNESS.figure(references.TPU, "cold_throughput", 35.47e12, "FLOP/s", _COMPILING),
    references.HARNESS.figure(references.TPU, "throughput", 158.91e12, "FLOP/s", _OVERFLOW),
    references.HARNESS.figure("GPU against CPU (Colab)", "speed_up", 29.0, "times", _RATIOS),
    references.HARNESS.figure("TPU, cold, against CPU (Colab)", "speed_up", 75.0, "times", _RATIOS),
    references.HARNESS.figure("TPU against CPU (Colab)", "speed_up", 338.0, "times", _RATIOS),
)

METRICS = (
    contract.MetricSpec("throughput", "FLOP/s", "higher", "Floating-point operations per second, 2·M·N·K per product"),
    contract.MetricSpec(
        "execution_time", "s", "lower", "Time of one execution of `repeats` products", amount="execution"
    ),
)


def metrics_of(params: MatmulParams) -> tuple[contract.MetricSpec, ...]:
    """METRICS, with OP/s instead of FLOP/s for int8."""
    if params.dtype != "int8":
        return METRICS
    return tuple(replace(spec, unit="OP/s") if spec.unit == "FLOP/s" else spec for spec in METRICS)


WORKLOAD = contract.Workload(
    name="matmul",
    description="Matrix products: throughput of the device's multiply-add units",
    params=MatmulParams,
    metrics=METRICS,
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=REFERENCES,
    refuses=refuses,
    metrics_of=metrics_of,
    cases_of=lambda params: () if params.sizes is None else tuple(size.label for size in params.by_size),
    executions=lambda params: _execution(params.repeats or 1),
    smoke=contract.Smoke({"n": 64, "repeats": 4}),
    bench={"n": 2048, "repeats": 5},
    options="float32, tf32, bfloat16, float16 or int8; chained or dispatched; one size or a list of sizes",
)
