"""Correct chains whose errors aren't a random walk: small matrices, TF32, and truncated bfloat16."""

from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.registry import validate_params, workload
from tests.running import started
from tests.wrong_steps import StartedTensorFlow

MATMUL = workload("matmul")


def _verified(context, **params):
    built = started(MATMUL.build(validate_params(MATMUL, params), context))
    return built.verify()


@pytest.mark.parametrize(
    ("dtype", "n", "repeats", "told"),
    [
        ("float32", 2, 5000, True),
        ("float16", 2, 500, True),
        ("float16", 3, 5000, False),
        ("bfloat16", 3, 70, True),
        ("bfloat16", 3, 1000, False),
    ],
)
def test_a_long_chain_of_small_products_is_not_compared_with_a_random_walk(context, dtype, n, repeats, told):
    found = _verified(context(), n=n, repeats=repeats, dtype=dtype)
    assert found.warnings == []
    assert ("RESULT_INCORRECT" in found.verified) is told
    assert ("RESULT_INCORRECT" in found.unchecked) is not told


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
