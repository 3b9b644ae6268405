from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.devices.datasheet import peak_table
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads._matmul_params import estimate, flops, rotation
from dyno.bench.workloads.matmul import Chain, Dispatch, lint
from dyno.errors import InvalidSpec
from dyno.models.device import PeakFigure
from tests.running import started
from tests.wrong_steps import StartedTensorFlow

MATMUL = workload("matmul")


def _params(**params):
    return validate_params(MATMUL, params)


def _verified(context, executions=2, **params):
    built = MATMUL.build(_params(**params), context)
    built.compile()
    built.execute(executions)
    return built.verify()


def _codes(found):
    return [raised.code for raised in found.warnings]


class Spoilt(StartedTensorFlow):
    """The real framework, except that `spoil` changes each product."""

    def matmul(self, a, b):
        return self._spoil(super().matmul(a, b))


def test_a_product_counts_two_m_n_k():
    assert flops(_params(n=10, repeats=3)) == 2 * 10**3 * 3
    assert flops(_params(m=2, k=3, n=5, mode="dispatch", repeats=7)) == 2 * 2 * 3 * 5 * 7


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["chain", "dispatch"])
def test_an_honest_product_is_verified_and_its_precision_recognised(context, mode, dtype):
    found = _verified(context(), n=64, repeats=25, mode=mode, dtype=dtype)
    assert _codes(found) == []
    assert (found.precision.requested, found.precision.observed) == (dtype, dtype)


def test_a_rectangular_product_is_verified(context):
    assert _codes(_verified(context(), m=48, k=80, n=64, repeats=3, mode="dispatch")) == []


@pytest.mark.parametrize("n", [1, 2, 3, 31])
def test_small_sizes_report_no_observed_precision(context, n):
    found = _verified(context(), n=n, repeats=2, dtype="bfloat16")
    assert _codes(found) == []
    assert found.precision.observed is None


@pytest.mark.parametrize("mode", ["chain", "dispatch"])
def test_one_column_left_out_of_a_product_is_found(tensorflow, context, mode):
    last_column_zero = np.ones(64, np.float32)
    last_column_zero[-1] = 0
    spoilt = Spoilt(tensorflow, lambda product: product * last_column_zero)
    assert _codes(_verified(context(spoilt), n=64, repeats=4, mode=mode)) == ["RESULT_INCORRECT"]


class Once(StartedTensorFlow):
    """The real framework, except that `spoil` changes the results of chains, not of single products."""

    def repeat(self, count, body, start):
        return self._spoil(super().repeat(count, body, start))


def _one_column_zeroed(product):
    return product * (np.arange(product.shape[1]) != 17).astype(np.float32)


@pytest.mark.verify
@pytest.mark.parametrize("make", [Once, Spoilt])
@pytest.mark.parametrize("error", [1.02, 1.05, 1.06, _one_column_zeroed])
def test_a_wrong_chain_of_a_hundred_products_does_not_pass_for_a_coarse_precision(tensorflow, context, make, error):
    wrong = make(tensorflow, error if callable(error) else lambda product: product * np.float32(error))
    assert _codes(_verified(context(wrong), n=600, repeats=100)) == ["RESULT_INCORRECT"]


@pytest.mark.parametrize(("dtype", "repeats"), [("float32", 30_000), ("bfloat16", 100)])
def test_zeros_are_found_at_the_end_of_a_long_chain(tensorflow, context, dtype, repeats):
    found = _verified(context(Once(tensorflow, lambda product: product * 0)), 1, n=33, repeats=repeats, dtype=dtype)
    assert _codes(found) == ["RESULT_INCORRECT"]


def test_a_long_honest_chain_is_still_of_its_own_precision(context):
    found = _verified(context(), 1, n=33, repeats=5000, dtype="bfloat16")
    assert (_codes(found), found.precision.observed) == ([], "bfloat16")


def test_a_chain_too_long_to_be_verified_is_refused():
    with pytest.raises(InvalidSpec) as refused:
        _params(n=64, repeats=6000, dtype="bfloat16")
    assert [(error.pointer, error.code) for error in refused.value.errors] == [("/params/repeats", "unverifiable")]
    assert _params(n=64, repeats=6000, dtype="bfloat16", mode="dispatch").repeats == 6000
    assert _params(n=64, repeats=100_000).repeats == 100_000


def test_an_output_that_overflows_is_found(tensorflow, context):
    spoilt = Spoilt(tensorflow, lambda product: product * np.float32(1e30))
    assert _codes(_verified(context(spoilt), n=64, repeats=4)) == ["OUTPUT_NONFINITE"]


def test_tf32_in_place_of_float32_is_another_precision_but_no_wrong_result(tensorflow, context):
    import tensorflow as tf

    def as_tf32(product):
        bits = tf.bitcast(product, tf.int32) + 0x1000
        return tf.bitcast(tf.bitwise.bitwise_and(bits, ~0x1FFF), tf.float32)

    found = _verified(context(Spoilt(tensorflow, as_tf32)), n=64, repeats=16)
    assert found.precision.observed == "tf32"
    assert _codes(found) == []


def test_the_chain_is_the_matrix_power(context):
    chain = started(Chain(_params(n=24, repeats=30), 1.0, context()))
    numpy = context().framework.numpy
    start, factor = numpy(chain._start).astype(np.float64), numpy(chain._factor).astype(np.float64)
    expected = start @ np.linalg.matrix_power(factor, 30)
    # Each of 30 products rounds sums of 24 terms, by 2^-24 of the row's length at most, which no product changes.
    rounding = 30 * 24 * 2.0**-24 * np.linalg.norm(start, axis=1).max()
    np.testing.assert_allclose(numpy(chain._product), expected, rtol=0, atol=rounding)


def test_dispatch_goes_on_where_the_last_execution_ended(context):
    built = Dispatch(_params(n=16, repeats=3, mode="dispatch"), 1.0, 4, context())
    used = []
    for _ in range(3):
        built.execute(1)
        used.append(next(place for place, pair in enumerate(built._pairs) if pair[0] is built._last[0]))
    assert used == [2, 1, 0]


def test_rotating_operands_exceed_the_cache_until_there_would_be_too_many():
    cache_bytes = 8 << 20
    for n in (64, 500, 2048):
        params = _params(n=n, mode="dispatch")
        assert rotation(params, cache_bytes) * 2 * n * n * 4 >= 2 * cache_bytes
    assert rotation(_params(n=1, mode="dispatch"), cache_bytes) == 4096
    assert rotation(_params(n=8192, mode="dispatch"), cache_bytes) == 2


def test_a_device_with_an_unknown_cache_is_taken_for_one_with_the_largest_that_is_known():
    largest = max(row.figures.get("last_cache", 0.0) for row in peak_table())
    assert rotation(_params(n=512, mode="dispatch"), None) * 2 * 512 * 512 * 4 >= 2 * largest


def test_the_details_say_how_much_memory_one_execution_touches(context):
    assert _verified(context(), n=64, repeats=2).details["working_set_bytes"] == 4 * 64 * 64 * 4
    found = _verified(context(), n=64, repeats=2, mode="dispatch")
    assert found.details["working_set_bytes"] > 2 * (1 << 20)


def test_estimates_exceed_the_memory_for_products_that_cannot_fit(device):
    assert estimate(_params(n=100_000), device).memory_bytes > 100 << 30
    assert estimate(_params(n=1 << 24), device).memory_bytes > 1 << 50
    assert estimate(_params(n=1024), device).memory_bytes < 1 << 30


def test_the_estimate_follows_the_peak_that_was_measured(device):
    params = _params(n=4096)
    peak = device.model_copy(update={"peak": {"float32": PeakFigure(value=1e12, provenance="measured here")}})
    fast = device.model_copy(update={"peak": {"float32": PeakFigure(value=1e14, provenance="measured here")}})
    assert estimate(params, fast).executions_s < estimate(params, peak).executions_s
    assert estimate(params, peak).memory_bytes == estimate(params, device).memory_bytes


def test_bfloat16_is_expected_to_be_slow_on_a_core_without_its_instructions(device):
    params = _params(n=1024, repeats=10, dtype="bfloat16")
    able = device.model_copy(update={"isa": ["avx2", "avx512_bf16"]})
    assert estimate(params, device).executions_s[0] > 2 * estimate(params, able).executions_s[0]


@pytest.mark.provokes("POW2_ONLY", "CACHE_RESIDENT")
@pytest.mark.silent("POW2_ONLY", "CACHE_RESIDENT")
@pytest.mark.parametrize(
    ("params", "codes"),
    [
        ({"n": 4096}, ["POW2_ONLY"]),
        ({"n": 4000}, []),
        ({"n": 100}, ["CACHE_RESIDENT"]),
        ({"n": 128}, ["POW2_ONLY", "CACHE_RESIDENT"]),
        ({"m": 64, "k": 100, "n": 64, "mode": "dispatch"}, []),
    ],
)
def test_the_linter_warns_by_sizes_alone(params, codes):
    assert [raised.code for raised in lint(_params(**params))] == codes


# Correct chains whose errors aren't a random walk: small matrices, TF32, and truncated bfloat16.


@pytest.mark.parametrize(
    ("dtype", "n", "repeats", "is_checked"),
    [
        ("float32", 2, 5000, True),
        ("float16", 2, 500, True),
        ("float16", 3, 5000, False),
        ("bfloat16", 3, 70, True),
        ("bfloat16", 3, 1000, False),
    ],
)
def test_a_long_chain_of_small_products_is_not_compared_with_a_random_walk(context, dtype, n, repeats, is_checked):
    found = _verified(context(), n=n, repeats=repeats, dtype=dtype)
    assert found.warnings == []
    assert ("RESULT_INCORRECT" in found.verified) is is_checked
    assert ("RESULT_INCORRECT" in found.unchecked) is not is_checked


class Tf32(StartedTensorFlow):
    """The real framework, with operands rounded as by a TF32 unit."""

    def matmul(self, a, b):
        return super().matmul(self._rounded(a), self._rounded(b))

    def _rounded(self, values):
        tf = self._tf
        bits = tf.bitcast(values, tf.int32) + 0x1000
        return tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(~0x1FFF, tf.int32)), tf.float32)


def test_a_long_chain_in_tf32_is_verified_as_such(tensorflow, context, device):
    on_gpu = replace(context(Tf32(tensorflow)), device=device.model_copy(update={"kind": "gpu", "isa": ["sm_80"]}))
    found = _verified(on_gpu, n=64, repeats=1000, dtype="tf32")
    assert found.warnings == []
    assert found.precision.observed == "tf32"


class CutOff(StartedTensorFlow):
    """The real framework, with truncated bfloat16, like TensorFlow on a processor without AVX-512."""

    def matmul(self, a, b):
        tf = self._tf
        product = super().matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32))
        bits = tf.bitwise.bitwise_and(tf.bitcast(product, tf.int32), tf.constant(~0xFFFF, tf.int32))
        return tf.cast(tf.bitcast(bits, tf.float32), tf.bfloat16)

    def repeat(self, count, body, start):
        return self._spoil(super().repeat(count, body, start))


@pytest.mark.parametrize(("n", "repeats"), [(20, 25), (64, 25), (64, 100), (64, 1000)])
def test_a_truncated_chain_is_right_or_too_long_to_check(tensorflow, context, n, repeats):
    found = _verified(context(CutOff(tensorflow)), n=n, repeats=repeats, dtype="bfloat16")
    assert found.warnings == []
    assert ("RESULT_INCORRECT" in found.verified) is (repeats <= 100)
    assert ("the device truncates" in found.unchecked.get("RESULT_INCORRECT", "")) is (repeats > 100)


def test_a_wrong_chain_is_found_though_it_is_cut_off(tensorflow, context):
    wrong = CutOff(tensorflow, lambda product: product * np.float32(0.8))
    found = _verified(context(wrong), n=64, repeats=25, dtype="bfloat16")
    assert [raised.code for raised in found.warnings] == ["RESULT_INCORRECT"]
