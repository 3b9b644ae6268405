"""Matrix products, the classic of throughput: 2·M·N·K FLOP each, `repeats` of them in one execution.

Two modes. `chain`: one compiled graph multiplies an N(0, 1) matrix `repeats` times by an orthogonal one and reads
the sum of the product back; dispatch is hidden. `dispatch`: one call per product over rotating operands that
together exceed the last cache, and the sum of the last product drains the queue.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.measure.checks import pow2_only
from dyno.measure.verify import MAX_TOLERANCE, tolerance
from dyno.measure.warnings import warning
from dyno.result import Reference, ResultWarning
from dyno.workloads._products import Chain, Dispatch
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Params, Workload

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 1e13, "tpu": 2e13}  # per CPU core, per accelerator; half a typical rate
_NATIVE_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
_EMULATED = 0.1  # of the float32 rate; measured 0.07 on a core without bfloat16 instructions
_REACHED = 0.6  # of the peak, by a large product; published: 0.8 to 0.9
_RUNTIME_BYTES = 600_000_000  # TensorFlow and Keras imported, on a CPU host
_ASSUMED_LAST_CACHE_BYTES = 32 << 20
_SMALL_CACHE_BYTES = 4 << 20  # every device in use has more
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
        return [*self._shape_conflicts(), *self._length_conflicts()]

    def _length_conflicts(self) -> list[FieldError]:
        """A chain so long that its honest rounding could hide any mistake can't be verified."""
        longest = math.floor((MAX_TOLERANCE / tolerance(self.dtype, inner=self.n, products=1)) ** 2)
        if self.mode == "dispatch" or self.repeats <= longest:
            return []
        detail = f"a {self.dtype} chain of n = {self.n} can be verified up to {longest} products"
        return [FieldError("/repeats", "unverifiable", detail)]

    def _shape_conflicts(self) -> list[FieldError]:
        if self.m is None and self.k is None:
            return []
        given = {name for name in ("m", "k", "n") if getattr(self, name) is not None} & self.model_fields_set
        absent = [name for name in ("m", "k", "n") if name not in given]
        if absent:
            return [FieldError(f"/{name}", "missing", "m, k and n go together, or n alone") for name in absent]
        unequal = [name for name in ("m", "k") if getattr(self, name) != self.n]
        if self.mode == "chain" and unequal:
            detail = 'a chain needs m = k = n; rectangular products take "mode": "dispatch"'
            return [FieldError(f"/{name}", "not_square", detail) for name in unequal]
        return []

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

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
    pair_bytes = (m * k + k * n) * params.item_bytes
    wanted = math.ceil(2 * (last_cache_bytes or _ASSUMED_LAST_CACHE_BYTES) / pair_bytes)
    return min(max(2, wanted), _MAX_ROTATION)


def estimate(params: MatmulParams, device: Device) -> Estimate:
    """Every buffer that is held at once, and the default sampling budget at 0.6 of the peak or an assumed rate."""
    m, k, n = params.sides
    item = params.item_bytes
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
    emulated = device.kind == "cpu" and params.dtype == "bfloat16" and not _NATIVE_BFLOAT16 & set(device.isa)
    return _ASSUMED_FLOP_PER_S[device.kind] * max(1, len(device.cores)) * (_EMULATED if emulated else 1.0)


def build(params: MatmulParams, context: BuildContext) -> Built:
    if params.mode == "chain":
        return Chain(params, flops(params), context)
    last_cache_bytes = context.device.last_cache_bytes if context.device else None
    return Dispatch(params, flops(params), rotation(params, last_cache_bytes), context)


def lint(params: MatmulParams) -> list[ResultWarning]:
    """What the params alone tell; whether the real device's cache holds them is found when they have run."""
    return [raised for raised in (pow2_only(params.sides), _small(params)) if raised is not None]


def _small(params: MatmulParams) -> ResultWarning | None:
    """A chain's matrices fit in any cache; `dispatch` rotates, so that they don't."""
    working_set_bytes = 4 * params.n**2 * params.item_bytes
    if params.mode == "dispatch" or working_set_bytes > _SMALL_CACHE_BYTES:
        return None
    message = f"The matrices take {working_set_bytes} bytes, less than any device's last cache holds."
    return warning("CACHE_RESIDENT", message, working_set_bytes=working_set_bytes)


_RANGE = "Given as a range, 0.47e12 to 0.53e12."
_K80 = "The K80 that Colab lent then peaks at 8.74e12; the figure equals a V100's float32 datasheet."
_COMPILING = "Whether compiling is part of it isn't said."
_OVERFLOW = "The float32 it names is computed as bfloat16 there, and a chain of random matrices this long overflows."


def _reference(hardware: str, metric: str, flop_per_s: float, doubt: str | None = None) -> Reference:
    title = "How to harness the Powers of the Cloud TPU?"
    return Reference(
        title=title, year="2018-19", hardware=hardware, metric=metric, value=flop_per_s, unit="FLOP/s", doubt=doubt
    )


REFERENCES = (
    _reference("CPU (Colab)", "throughput", 0.47e12, _RANGE),
    _reference("CPU (Colab)", "throughput", 0.53e12, _RANGE),
    _reference("GPU (Colab)", "throughput", 15.70e12, _K80),
    _reference("TPU v2 board (Colab)", "cold_throughput", 35.47e12, _COMPILING),
    _reference("TPU v2 board (Colab)", "throughput", 158.91e12, _OVERFLOW),
)

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
    references=REFERENCES,
    executions=lambda params: f"{params.repeats} products, and the sum of the last one read back",
)
