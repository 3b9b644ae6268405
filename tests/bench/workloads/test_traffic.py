"""Compulsory memory traffic by hand."""

import pytest

from dyno.bench.registry import validate_params, workload
from dyno.bench.training.workload import step_bytes
from tests.running import started

MATMUL = workload("matmul")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"n": 4096}, 3 * 4096**2 * 4),
        ({"n": 4096, "dtype": "bfloat16"}, 3 * 4096**2 * 2),
        ({"m": 16, "k": 32, "n": 64, "mode": "dispatch"}, 4 * (16 * 32 + 32 * 64 + 16 * 64)),
        ({"n": 64, "dtype": "int8", "mode": "dispatch"}, 2 * 64 * 64 + 4 * 64 * 64),  # sums are in int32
    ],
)
def test_a_product_reads_its_factors_and_writes_itself(params, expected):
    assert validate_params(MATMUL, params).traffic_bytes == expected


@pytest.mark.parametrize(("mode", "products"), [("chain", 1), ("dispatch", 5)])
def test_a_chain_keeps_its_products_and_dispatched_products_have_their_own_factors(context, mode, products):
    built = started(MATMUL.build(validate_params(MATMUL, {"n": 64, "repeats": 5, "mode": mode}), context()))
    assert built.verify().bytes == products * 3 * 64 * 64 * 4


def test_a_step_reads_and_writes_weights_gradients_and_moments(tensorflow):
    """4 x 3 weights and 3 biases. Adam has two moments of each, its number of steps and its learning rate."""
    keras = tensorflow.keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    assert step_bytes(model, batch_bytes=1000) == 1000 + 2 * 4 * (15 + 15 + 2 * 15 + 2)
