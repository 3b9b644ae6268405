"""The params, operands and cost of matrix products, which `matmul` computes."""

import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.measure import correctness
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.spec import FrameworkName

Int8 = NDArray[np.int8]
LARGEST = 127  # magnitude of int8 operands; as in quantisation, -128 is excluded
LONGEST = (2**31 - 1) // LARGEST**2  # longest inner side whose sums fit in int32
_BLOCK_ELEMENTS = 1 << 20  # build the index in blocks that fit in the cache


def generator(seed: int) -> np.random.Generator:
    """A fast generator. Its stream depends on `seed` alone, so all runs of a job use the same data."""
    return np.random.Generator(np.random.SFC64(seed))


def normal(rows: int, columns: int, random: np.random.Generator) -> NDArray[np.float32]:
    """N(0, 1), rows x columns, float32."""
    return random.standard_normal((rows, columns), dtype=np.float32)


def integers(rows: int, columns: int, random: np.random.Generator) -> Int8:
    """Uniform over -127 to 127, rows x columns, int8."""
    return random.integers(-LARGEST, LARGEST, (rows, columns), dtype=np.int8, endpoint=True)


def as_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to the 11 significant bits that TF32 keeps, ties to even.

    A device that multiplies in TF32 doesn't round these values further. It would round other values with the same error
    in every product of a chain, and these errors would add up.
    """
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> 13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(np.float32)


def signed_hartley(n: int, random: np.random.Generator) -> NDArray[np.float32]:
    """An orthogonal n x n matrix, made in O(n²): Hartley's cas(2πij/n)/√n with random column signs, float32.

    An orthogonal matrix keeps the rms of a chain constant at any length. Hartley's matrix is its own inverse: without
    random signs, the matrix's powers would cycle. A QR decomposition of the same size costs O(n³).
    """
    angles = 2 * np.pi * np.arange(n) / n
    cas = ((np.cos(angles) + np.sin(angles)) / np.sqrt(n)).astype(np.float32)
    signs = random.choice(np.array([-1, 1], dtype=np.float32), n)
    columns = np.arange(n, dtype=np.int64)
    matrix = np.empty((n, n), dtype=np.float32)
    block = max(1, _BLOCK_ELEMENTS // n)
    for first in range(0, n, block):
        rows = np.arange(first, min(first + block, n), dtype=np.int64)
        np.take(cas, np.outer(rows, columns) % n, out=matrix[first : first + len(rows)], mode="clip")
        matrix[first : first + len(rows)] *= signs
    return matrix


LONGEST_SEARCHED_S = 0.2  # a product that is expected to take longer isn't tried by a search
SEARCHED_PART = 8  # operands and product of a searched shape take at most this part of the device's memory
ITEM_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2, "int8": 1}

Size = Annotated[int, Field(ge=1, le=1 << 24)]
Sides = Annotated[list[Size], Field(min_length=3, max_length=3)]  # [m, k, n]
_ONE_SIZE = 4096


class MatmulParams(contract.Params):
    how: ClassVar[frozenset[str]] = frozenset({"mode", "dtype"})

    n: Size = Field(_ONE_SIZE, description="Columns of the product; without m and k, the side of square operands")
    m: Size | None = Field(None, description="Rows of the product; requires k and n")
    k: Size | None = Field(None, description="Inner side; requires m and n")
    repeats: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Products per execution; null: 1, 10 or 100, so that the device takes about 0.1 s or less"
    )
    sizes: Annotated[list[Size | Sides], Field(min_length=1, max_length=32)] | None = Field(
        None, description="Several products instead of n, m and k: each is n or [m, k, n] and is measured in turn"
    )
    search_s: Annotated[float, Field(gt=0, le=3600)] | None = Field(
        None,
        description="Seconds in which the first run searches for the fastest shape, which all runs then measure; "
        "null: no search",
    )
    dtype: Literal["float32", "tf32", "bfloat16", "float16", "int8"] = Field(
        "float32", description="tf32: on GPUs that support it; int8: summed in int32"
    )
    mode: Literal["chain", "dispatch"] = Field("chain", description="Rectangular and int8 products need dispatch")

    def conflicts(self) -> list[FieldError]:
        errors = self._dtype_conflicts()
        has_size = self.m is not None or self.k is not None or self.n != _ONE_SIZE
        if self.search_s is not None and (has_size or self.sizes is not None or self.repeats is not None):
            errors.append(FieldError("/search_s", "excess", "with search_s, leave out repeats and the product's size"))
        if self.sizes is None:
            return [*errors, *self.size_conflicts()]
        if has_size:
            errors.append(FieldError("/sizes", "excess", "give either sizes or n, m and k"))
        labels = [size.label for size in self.by_size]
        for number, size in enumerate(self.by_size):
            if of_size := size.size_conflicts():
                errors.append(FieldError(f"/sizes/{number}", of_size[0].code, of_size[0].detail))
            if size.label in labels[:number]:
                errors.append(FieldError(f"/sizes/{number}", "twice", f"duplicate size {size.label}"))
        return errors

    def size_conflicts(self) -> list[FieldError]:
        """Conflicts of a single size with the other parameters."""
        return [*self._shape_conflicts(), *self._length_conflicts()]

    def _dtype_conflicts(self) -> list[FieldError]:
        if self.dtype != "int8":
            return []
        errors = []
        if self.mode == "chain":
            errors.append(FieldError("/mode", "not-chained", 'int8 products can\'t be chained; use "mode": "dispatch"'))
        if (longest := max(size.sides[1] for size in self.by_size)) > LONGEST:
            detail = f"sums of {longest} int8 products can overflow int32; at most {LONGEST}"
            errors.append(FieldError("/k" if self.k else "/sizes" if self.sizes else "/n", "overflow", detail))
        return errors

    def _length_conflicts(self) -> list[FieldError]:
        """Refuse chains that are so long that their normal rounding errors could hide a mistake."""
        if self.mode == "dispatch" or self.dtype == "int8":
            return []
        if (self.repeats or 1) <= self._verifiable:
            return []
        detail = f"a {self.dtype} chain with n = {self.n} can be verified up to {self._verifiable} products"
        return [FieldError("/repeats", "unverifiable", detail)]

    @property
    def _verifiable(self) -> int:
        """The number of products in the longest chain whose rounding errors hide no mistake."""
        of_one = correctness.tolerance(self.dtype, inner=self.n, products=1)
        return math.floor((correctness.MAX_TOLERANCE / of_one) ** 2)

    def on(self, device: Device | None) -> Self:
        """These params with so many `repeats` that, at the device's expected speed, the cost of a call is negligible.

        `repeats` is one of three numbers, so that devices of one model get the same number despite different clocks.
        """
        if self.repeats is not None:
            return self
        m, k, n = self.sides
        in_float32 = self.model_copy(update={"dtype": "float32"})  # so that all precisions get the same work
        product_s = 2.0 * m * n * k / _expected_flop_per_s(in_float32, device) if device is not None else 0.0
        many = [count for count in _REPEATS if count * product_s <= _EXECUTION_S]
        unlimited = self.mode == "dispatch" or self.dtype == "int8"
        able = [count for count in many if unlimited or count <= self._verifiable]
        return self.model_copy(update={"repeats": max(able, default=1)})

    def _shape_conflicts(self) -> list[FieldError]:
        if self.m is None and self.k is None:
            return []
        set_sides = {name for name in ("m", "k", "n") if getattr(self, name) is not None} & self.model_fields_set
        absent = [name for name in ("m", "k", "n") if name not in set_sides]
        if absent:
            return [FieldError(f"/{name}", "missing", "give m, k and n together, or n alone") for name in absent]
        unequal = [name for name in ("m", "k") if getattr(self, name) != self.n]
        if self.mode == "chain" and unequal:
            detail = 'a chain needs m = k = n; for rectangular products use "mode": "dispatch"'
            return [FieldError(f"/{name}", "not-square", detail) for name in unequal]
        return []

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def sides(self) -> tuple[int, int, int]:
        """(M, K, N) of a product M x K times K x N; of the first size if there are several."""
        if self.sizes is not None:
            return self.by_size[0].sides
        return (self.m or self.n, self.k or self.n, self.n)

    @property
    def traffic_bytes(self) -> int:
        """The compulsory memory traffic of one product: each factor is read once, the product written once."""
        m, k, n = self.sides
        return (m * k + k * n) * self.item_bytes + m * n * self.product_bytes

    @property
    def label(self) -> str:
        """The size in a metric's name: MxKxN."""
        return "x".join(str(side) for side in self.sides)

    @property
    def product_bytes(self) -> int:
        """Bytes of one element of the product."""
        return 4 if self.dtype == "int8" else self.item_bytes

    @property
    def by_size(self) -> list[Self]:
        """These params once for each size."""
        if self.sizes is None:
            return [self]
        alone = self.model_copy(update={"sizes": None})
        return [alone.model_copy(update=_sides(size)) for size in self.sizes]


def _sides(size: int | list[int]) -> dict[str, int | None]:
    if isinstance(size, int):
        return {"m": None, "k": None, "n": size}
    return dict(zip(("m", "k", "n"), size, strict=True))


_REPEATS, _EXECUTION_S = (1, 10, 100), 0.1
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 1e13, "tpu": 2e13}  # per CPU core, per accelerator; half a typical rate
_NATIVE_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
_INT8_ON_CPU = 0.5  # of the float32 rate; measured 0.8 to 1.0 with AVX-512 VNNI, probably less without
_EMULATED = 0.1  # of the float32 rate; measured 0.07 on a core without bfloat16 instructions
START_S = 0.2  # starting the device, tracing and compiling; measured 0.1 to 0.3 s on a CPU
_REACHED = 0.6  # share of the peak that a large product reaches; published: 0.8 to 0.9
_ASSUMED_LAST_CACHE_BYTES = 128 << 20  # larger than the cache of any device in peaks.csv
_TF32_FROM = 80  # compute capability 8.0, Ampere
_MAX_ROTATION = 4096  # pairs of operands; the time of smaller products is mostly dispatch anyway


def flops(params: MatmulParams) -> float:
    """2·M·N·K for each of the `repeats` products of one execution, for the first size if there are several.

    If `repeats` depends on the device, the run itself reports the figure.
    """
    m, k, n = params.sides
    return 2.0 * m * n * k * (params.repeats or 1)


def _expected_flop_per_s(params: MatmulParams, device: Device) -> float:
    """A share of the device's peak, or an assumed rate."""
    assumed = {kind: rate * _share(params, device) for kind, rate in _ASSUMED_FLOP_PER_S.items()}
    return estimates.rate_flop_per_s(device, params.dtype, _REACHED, assumed)


def rotation(params: MatmulParams, last_cache_bytes: int | None) -> int:
    """The number of pairs of operands in `dispatch`: they fill twice the last-level cache, so no pair stays in it."""
    m, k, n = params.sides
    pair_bytes = (m * k + k * n) * params.item_bytes
    pairs = math.ceil(2 * (last_cache_bytes or _ASSUMED_LAST_CACHE_BYTES) / pair_bytes)
    return min(max(2, pairs), _MAX_ROTATION)


def estimate(
    params: MatmulParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    """Memory of all buffers, and the time of an execution at 0.6 of the peak or at an assumed rate.

    A search takes its time once, like a full training.
    """
    if params.search_s is not None:
        memory_bytes = _of_one(_largest_searched(params, device), device).memory_bytes + estimates.runtime_bytes(device)
        return contract.Estimate(START_S, memory_bytes, train_s=params.search_s, executions_s=(_EXECUTION_S,))
    products = [_of_one(size.on(device), device) for size in params.by_size]
    memory_bytes = sum(one.memory_bytes for one in products) + estimates.runtime_bytes(device)
    executions_s = tuple(seconds for one in products for seconds in one.executions_s)
    return contract.Estimate(sum(one.start_s for one in products) + START_S, memory_bytes, executions_s=executions_s)


def _largest_searched(params: MatmulParams, device: Device) -> MatmulParams:
    """The largest square that a search may try on the device."""
    flop_per_s = _expected_flop_per_s(params, device) / _REACHED
    in_memory = device.memory_bytes / SEARCHED_PART / (2 * params.item_bytes + params.product_bytes)
    side = min((LONGEST_SEARCHED_S * flop_per_s / 2) ** (1 / 3), in_memory**0.5)
    return params.model_copy(update={"n": max(1, int(side)), "repeats": 1, "search_s": None})


def _of_one(params: MatmulParams, device: Device) -> contract.Estimate:
    m, k, n = params.sides
    item = params.item_bytes
    operands = m * k + k * n
    pairs = rotation(params, device.last_cache_bytes) if params.mode == "dispatch" else 1
    on_device = pairs * operands * item + 2 * m * n * params.product_bytes
    making = operands * 4  # float32 on the host, before the cast
    checking = operands * 4 + k * n * 8 + m * n * 4  # read back, one operand in float64
    on_host = max(making, checking)
    execution_s = flops(params) / _expected_flop_per_s(params, device)
    if device.driven_as == "cpu":
        on_device += on_host
    start_s = 2 * execution_s + pairs * operands * 2e-8
    return contract.Estimate(start_s, on_device, executions_s=(execution_s,))


def _share(params: MatmulParams, device: Device) -> float:
    """The rate for the dtype as a share of the float32 rate, used if the peak for the dtype is unknown."""
    if device.driven_as != "cpu":
        return 1.0
    if params.dtype == "bfloat16" and not _NATIVE_BFLOAT16 & set(device.isa):
        return _EMULATED
    return _INT8_ON_CPU if params.dtype == "int8" else 1.0


def refuses(params: MatmulParams, device: Device) -> list[FieldError]:
    """Refuses TF32 except on NVIDIA GPUs with compute capability 8.0 or higher."""
    capability = next((flag for flag in device.isa if flag.startswith("sm_")), None)
    old = capability is not None and int(capability.removeprefix("sm_")) < _TF32_FROM
    if params.dtype != "tf32" or (device.kind == "gpu" and not old):
        return []
    detail = f"{device.called} has no tf32; it needs an NVIDIA GPU with compute capability 8.0 or higher"
    return [FieldError("/dtype", "dtype_unsupported", detail)]
