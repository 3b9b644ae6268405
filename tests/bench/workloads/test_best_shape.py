"""The search for the fastest shape of a matrix product, and the runs that measure this shape."""

import math
from dataclasses import replace

import pytest

from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads import _best_shape
from dyno.errors import InvalidSpec
from tests.running import started

MATMUL = workload("matmul")


def params(**fields):
    return validate_params(MATMUL, {"search_s": 30, **fields})


def rate_with_its_best_at(best, slowest=1e9):
    """FLOP/s that fall with the distance from `best`, in factors."""
    return lambda shape: (
        slowest * math.exp(-math.fsum(abs(math.log(side / ideal)) for side, ideal in zip(shape, best, strict=True)))
        + 1e11
    )


@pytest.mark.parametrize("best", [(512, 512, 512), (2048, 512, 1024), (256, 1280, 1024)])
def test_rectangles_are_found_side_by_side(context, best):
    tried = _best_shape._search(rate_with_its_best_at(best), params(mode="dispatch"), context())
    assert max(tried, key=tried.get) == best


def test_a_chain_is_always_square(context):
    tried = _best_shape._search(rate_with_its_best_at((640, 640, 640)), params(), context())
    assert max(tried, key=tried.get) == (640, 640, 640)
    assert all(len(set(shape)) == 1 for shape in tried)


def test_no_shape_takes_more_than_its_part_of_the_memory(context, device):
    small = replace(context(), device=device.model_copy(update={"memory_bytes": 64 << 20}))
    tried = _best_shape._search(rate_with_its_best_at((1 << 20,) * 3), params(mode="dispatch"), small)
    assert max(4 * (m * k + k * n + m * n) for m, k, n in tried) <= 8 << 20


def test_no_shape_takes_long(context):
    tried = _best_shape._search(lambda shape: 1e11, params(mode="dispatch"), context())
    assert 0.1 < max(2 * math.prod(shape) / 1e11 for shape in tried) <= 0.2


def test_the_search_ends_with_its_time(context):
    tried = _best_shape._search(lambda shape: 1e11, params(search_s=1e-9), context())
    assert list(tried) == [(256, 256, 256)]


@pytest.mark.parametrize("fields", [{}, {"mode": "dispatch", "dtype": "int8"}], ids=["chain", "int8"])
def test_later_runs_measure_the_shape_that_the_first_run_found(context, fields):
    found = started(MATMUL.build(params(search_s=0.3, **fields), context())).verify()
    fastest, *others = found.details["tried"]
    assert [found.params[side] for side in ("m", "k", "n")] == fastest["shape"] == found.tuned["shape"]
    assert all(other["throughput"] <= fastest["throughput"] for other in others)
    assert f"the fastest of {1 + len(others)} that" in found.details["listing"][0]
    assert (found.warnings, found.verified) == ([], OUTPUT_CODES)
    later = started(MATMUL.build(params(search_s=0.3, **fields), replace(context(), run=1, tuned=found.tuned))).verify()
    m, k, n = fastest["shape"]
    assert (later.params["n"], "tried" in later.details) == (n, False)
    assert later.flops == found.flops == 2 * m * k * n * found.params["repeats"]


@pytest.mark.parametrize(
    "fields", [{"n": 64}, {"sizes": [64]}, {"repeats": 10}, {"m": 8, "k": 8, "n": 8, "mode": "dispatch"}]
)
def test_a_size_and_a_search_exclude_each_other(fields):
    with pytest.raises(InvalidSpec) as invalid:
        params(**fields)
    assert [error.pointer for error in invalid.value.errors] == ["/params/search_s"]
