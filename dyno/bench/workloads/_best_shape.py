"""Search for the shape of a matrix product with the largest throughput, as mamf-finder does (Bekman 2024).

The first run times squares of growing sides, then climbs from the best one: it changes one side at a time (in a chain
all three) for as long as a shape is faster and the time lasts. All runs then measure the best shape afresh, so their
figures don't contain the luck by which it was selected. Still, it is the best of those tried, not of all shapes.

The search times calls with a single pair of operands. So it favours shapes that fit the caches when `dispatch` rotates
through more memory than they hold, and large shapes when a `chain` needs no calls.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue, TypeAdapter

from dyno.bench import contract
from dyno.bench.workloads._matmul_params import (
    LONGEST_SEARCHED_S,
    SEARCHED_PART,
    MatmulParams,
    generator,
    integers,
    normal,
)

Shape = tuple[int, int, int]  # (M, K, N)
TUNED = "shape"  # see BuildContext.tuned
_SHAPE = TypeAdapter(Shape)

_LEAST_SIDE, _MULTIPLE = 256, 64
_READ_S, _READINGS = 0.02, 3
_LISTED = 6
_FACTORS = (2.0, 0.5, 1.25, 0.75)


@dataclass(frozen=True)
class BestShape:
    """The shape that the job's first run found. `tried`: FLOP/s by shape; empty in later runs."""

    shape: Shape
    tried: Mapping[Shape, float]

    @property
    def sides(self) -> dict[str, JsonValue]:
        return dict(zip(("m", "k", "n"), self.shape, strict=True))

    @property
    def details(self) -> dict[str, Any]:
        """What the search tried, fastest first; `listing` is for people."""
        if not self.tried:
            return {}
        fastest_first = sorted(self.tried.items(), key=lambda entry: -entry[1])
        names = {shape: " x ".join(map(str, shape)) for shape in self.tried}
        others = [f"{names[shape]} {rate / fastest_first[0][1]:.0%}" for shape, rate in fastest_first[1:_LISTED]]
        listing = [f"shape (M x K x N): {names[self.shape]}, the fastest of {len(names)} that the first run tried"]
        listing += [f"next, as a share of its speed: {', '.join(others)}"] if others else []
        tried = [{"shape": list(shape), "throughput": rate} for shape, rate in fastest_first]
        return {"tried": tried, "listing": listing}


def best_shape(params: MatmulParams, context: contract.BuildContext) -> BestShape:
    """The first run searches, and later runs get its shape."""
    found = context.tuned.get(TUNED)
    if isinstance(found, list):
        return BestShape(_SHAPE.validate_python(found), {})
    with context.phase("build"):
        tried = _search(_Probe(params, context), params, context)
    return BestShape(max(tried, key=lambda shape: tried[shape]), tried)


def _search(rate: Callable[[Shape], float], params: MatmulParams, context: contract.BuildContext) -> dict[Shape, float]:
    assert params.search_s is not None
    tried, ends_s = dict[Shape, float](), time.perf_counter() + params.search_s

    def attempt(shape: Shape) -> float:
        tried[shape] = rate(shape)
        context.report("search", len(tried), None, "shapes")
        return tried[shape]

    for shape in _squares(params, context):
        if tried and (_seconds(shape, max(tried.values())) > LONGEST_SEARCHED_S or time.perf_counter() > ends_s):
            break
        attempt(shape)
    best, improved = max(tried, key=lambda shape: tried[shape]), True
    while improved:
        improved = False
        for shape in _neighbours(best, params):
            if shape in tried or not _fits(shape, params, context) or _seconds(shape, tried[best]) > LONGEST_SEARCHED_S:
                continue
            if time.perf_counter() > ends_s:
                return tried
            if attempt(shape) > tried[best]:
                best, improved = shape, True
                break
    return tried


def _squares(params: MatmulParams, context: contract.BuildContext) -> Iterator[Shape]:
    side = _LEAST_SIDE
    while side == _LEAST_SIDE or _fits((side, side, side), params, context):
        yield (side, side, side)
        side *= 2


def _neighbours(shape: Shape, params: MatmulParams) -> Iterator[Shape]:
    for factor in _FACTORS:
        scaled = [max(_MULTIPLE, round(side * factor / _MULTIPLE) * _MULTIPLE) for side in shape]
        if params.mode == "chain":
            yield (scaled[0], scaled[1], scaled[2])
        else:
            m, k, n = shape
            yield from ((scaled[0], k, n), (m, scaled[1], n), (m, k, scaled[2]))


def _seconds(shape: Shape, flop_per_s: float) -> float:
    return 2.0 * math.prod(shape) / flop_per_s


def _fits(shape: Shape, params: MatmulParams, context: contract.BuildContext) -> bool:
    m, k, n = shape
    held = (m * k + k * n) * params.item_bytes + m * n * params.product_bytes
    return context.device is None or held <= context.device.memory_bytes // SEARCHED_PART


class _Probe:
    """The FLOP/s of one shape: the fastest of a few readings, after one execution."""

    def __init__(self, params: MatmulParams, context: contract.BuildContext) -> None:
        self._framework, self._dtype, self._random = context.framework, params.dtype, generator(context.seed)

    def __call__(self, shape: Shape) -> float:
        m, k, n = shape
        framework, make = self._framework, integers if self._dtype == "int8" else normal
        held = "float32" if self._dtype == "tf32" else self._dtype
        framework.allow_tf32(self._dtype == "tf32")
        a, b = (framework.array(make(rows, columns, self._random), held) for rows, columns in ((m, k), (k, n)))
        multiply = framework.integer_matmul if self._dtype == "int8" else framework.compile(framework.matmul, a, b)

        def read_s(count: int) -> float:
            began_s, product = time.perf_counter(), None
            for _ in range(count):
                product = multiply(a, b)
            framework.scalar(framework.total(product))
            return (time.perf_counter() - began_s) / count

        read_s(1)
        count = max(1, round(_READ_S / read_s(1)))
        return 2.0 * m * k * n / min(read_s(count) for _ in range(_READINGS))
