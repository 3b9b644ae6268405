"""Honest chains whose rounding errors are no random walk: small matrices, and TF32, which rounds what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dyno.devices.device import Device
from dyno.frameworks.tensorflow import TensorFlow
from dyno.workloads import validate_params, workload
from dyno.workloads.contract import BuildContext, Verification

MATMUL = workload("matmul")
Context = Callable[..., BuildContext]


def _verified(context: BuildContext, **params: Any) -> Verification:
    built = MATMUL.build(validate_params(MATMUL, params), context)
    built.compile()
    built.execute(1)
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
def test_a_long_chain_of_small_products_is_not_held_against_a_random_walk(
    context: Context, dtype: str, n: int, repeats: int, told: bool
) -> None:
    found = _verified(context(), n=n, repeats=repeats, dtype=dtype)
    assert found.warnings == []
    assert ("RESULT_INCORRECT" in found.verified) is told
    assert ("RESULT_INCORRECT" in found.unchecked) is not told


class Tf32(TensorFlow):
    """The real framework, but operands are rounded as a unit for TF32 does it."""

    def __init__(self, sound: TensorFlow) -> None:
        super().__init__()
        self._tf, self._keras = sound._tf, sound._keras

    def matmul(self, a: Any, b: Any) -> Any:
        return super().matmul(self._rounded(a), self._rounded(b))

    def _rounded(self, values: Any) -> Any:
        tf = self._tf
        bits = tf.bitcast(values, tf.int32) + 0x1000
        return tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(~0x1FFF, tf.int32)), tf.float32)


def test_a_long_chain_in_tf32_is_verified_as_such(tensorflow: TensorFlow, context: Context, device: Device) -> None:
    on_gpu = replace(context(Tf32(tensorflow)), device=device.model_copy(update={"kind": "gpu", "isa": ["sm_80"]}))
    found = _verified(on_gpu, n=64, repeats=1000, dtype="tf32")
    assert found.warnings == []
    assert found.precision is not None
    assert found.precision.observed == "tf32"
