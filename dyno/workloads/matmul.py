"""Matrix products, the classic of throughput: 2·M·N·K FLOP each, `repeats` of them in one execution.

Two modes. `chain`: one compiled graph multiplies an N(0, 1) matrix `repeats` times by an orthogonal one and reads
the sum of the product back; dispatch is hidden. `dispatch`: one call per product over rotating operands that
together exceed the last cache, and the sum of the last product drains the queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.result import ResultWarning
from dyno.workloads._operands import generator, normal, signed_hartley
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Params, Verification, Workload

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 1e13, "tpu": 2e13}  # per CPU core, per accelerator; half a typical rate
_REACHED = 0.6  # of the peak, by a large product; published: 0.8 to 0.9
_RUNTIME_BYTES = 600_000_000  # TensorFlow and Keras imported, on a CPU host
_ASSUMED_LAST_CACHE_BYTES = 32 << 20
_MAX_ROTATION = 4096  # pairs of operands; below this size a product is all dispatch anyway

Size = Annotated[int, Field(ge=1, le=1 << 24)]


class MatmulParams(Params):
    n: Size = Field(4096, description="Columns of the product; alone, the side of square operands")
    m: Size | None = Field(None, description="Rows of the product; with k and n")
    k: Size | None = Field(None, description="The inner side; with m and n")
    repeats: Annotated[int, Field(ge=1, le=100_000)] = Field(100, description="Products in one execution")
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    mode: Literal["chain", "dispatch"] = Field("chain", description="Rectangular products: dispatch only")

    def conflicts(self) -> list[FieldError]:
        given = {name for name in ("m", "k") if getattr(self, name) is not None}
        if not given:
            return []
        absent = [name for name in ("m", "k", "n") if name not in given and name not in self._named("n")]
        if absent:
            return [FieldError(f"/{name}", "missing", "m, k and n go together, or n alone") for name in absent]
        if self.mode == "chain" and len(set(self.sides)) > 1:
            unequal = [name for name in ("m", "k") if getattr(self, name) != self.n]
            return [FieldError(f"/{name}", "not_square", "a chain needs m = k = n") for name in unequal]
        return []

    def _named(self, name: str) -> set[str]:
        return {name} & self.model_fields_set

    @property
    def sides(self) -> tuple[int, int, int]:
        """(M, K, N) of M x K times K x N."""
        return (self.m or self.n, self.k or self.n, self.n)


def flops(params: MatmulParams) -> float:
    """2·M·N·K for each of the `repeats` products of one execution."""
    m, k, n = params.sides
    return 2.0 * m * n * k * params.repeats


def rotation(params: MatmulParams, last_cache_bytes: int | None) -> int:
    """Pairs of operands that `dispatch` rotates over: together twice the last cache, so that none is found there."""
    m, k, n = params.sides
    pair_bytes = (m * k + k * n) * ITEM_BYTES[params.dtype]
    wanted = math.ceil(2 * (last_cache_bytes or _ASSUMED_LAST_CACHE_BYTES) / pair_bytes)
    return min(max(2, wanted), _MAX_ROTATION)


def estimate(params: MatmulParams, device: Device) -> Estimate:
    """Every buffer that is held at once, and the default sampling budget at 0.6 of the peak or an assumed rate."""
    m, k, n = params.sides
    item = ITEM_BYTES[params.dtype]
    operands = m * k + k * n
    pairs = rotation(params, device.last_cache_bytes) if params.mode == "dispatch" else 1
    on_device = pairs * operands * item + 2 * m * n * item
    making = operands * 4  # float32 on the host, before the cast
    checking = operands * 4 + k * n * 8 + m * n * 4  # read back, one operand in float64
    on_host = max(making, checking)
    execution_s = flops(params) / _rate_flop_per_s(params, device)
    sampling_s = min(max(25 * execution_s, 3.0), 60.0 + execution_s)
    if device.kind == "cpu":
        on_device += on_host + _RUNTIME_BYTES
    return Estimate(2 * execution_s + sampling_s + pairs * operands * 2e-8 + 1.0, on_device)


def _rate_flop_per_s(params: MatmulParams, device: Device) -> float:
    peak = device.peak.get(params.dtype)
    if peak is not None and peak.value:
        return _REACHED * peak.value
    return _ASSUMED_FLOP_PER_S[device.kind] * max(1, len(device.cores))


class Chain:
    """X·Q·Q·…·Q in one compiled graph, and its sum."""

    def __init__(self, params: MatmulParams, context: BuildContext) -> None:
        self.work = flops(params)
        self._params = params
        self._framework = context.framework
        with context.phase("data"):
            random = generator(context.seed)
            start, factor = normal(params.n, params.n, random), signed_hartley(params.n, random)
        with context.phase("build"):
            self._start = self._framework.array(start, params.dtype)
            self._factor = self._framework.array(factor, params.dtype)
        self._product: Any = None

    def compile(self) -> None:
        framework, repeats = self._framework, self._params.repeats

        def chain(start: Any, factor: Any) -> tuple[Any, Any]:
            product = framework.repeat(repeats, lambda value: framework.matmul(value, factor), start)
            return product, framework.total(product)

        self._compiled: Callable[[Any, Any], tuple[Any, Any]] = framework.compile(chain, self._start, self._factor)

    def execute(self, count: int) -> None:
        total = None
        for _ in range(count):
            self._product, total = self._compiled(self._start, self._factor)
        if total is not None:
            self._framework.scalar(total)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        return Verification(amounts={"execution": self.work})


class Dispatch:
    """One call per product, over operands that rotate through more memory than the last cache holds."""

    def __init__(self, params: MatmulParams, context: BuildContext) -> None:
        self.work = flops(params)
        self._params = params
        self._framework = context.framework
        m, k, n = params.sides
        pairs = rotation(params, context.device.last_cache_bytes if context.device else None)
        with context.phase("data"):
            random = generator(context.seed)
            scale = 1 / math.sqrt(k)
            made = [(normal(m, k, random), normal(k, n, random) * scale) for _ in range(pairs)]
        with context.phase("build"):
            array = self._framework.array
            self._pairs = [(array(a, params.dtype), array(b, params.dtype)) for a, b in made]
        self._next = 0
        self._last: tuple[Any, Any, Any] | None = None

    def compile(self) -> None:
        return None

    def execute(self, count: int) -> None:
        matmul, pairs = self._framework.matmul, self._pairs
        product = a = b = None
        for _ in range(count * self._params.repeats):
            a, b = pairs[self._next]
            product = matmul(a, b)
            self._next = (self._next + 1) % len(pairs)
        self._last = (a, b, product)
        self._framework.scalar(self._framework.total(product))

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        return Verification(amounts={"execution": self.work})


def build(params: MatmulParams, context: BuildContext) -> Built:
    return Chain(params, context) if params.mode == "chain" else Dispatch(params, context)


def lint(params: MatmulParams) -> list[ResultWarning]:
    return []


WORKLOAD = Workload(
    name="matmul",
    description="Matrix products: the throughput of the device's multiply-add units",
    params=MatmulParams,
    metrics=(
        MetricSpec("throughput", "FLOP/s", "higher", "Floating-point operations per second, 2·M·N·K per product"),
        MetricSpec("execution_time", "s", "lower", "Time of one execution: `repeats` products", amount="execution"),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=(),
    executions=lambda params: f"{params.repeats} products, and the sum of the last one read back",
)
