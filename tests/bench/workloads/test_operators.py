"""Single layers: right outputs on every operator, right counts, and planted faults that the check finds."""

import os
from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads import operators
from dyno.errors import InvalidSpec
from tests.running import started

OPERATORS = workload("operators")
WITH_ONEDNN = os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
SMALL = {"tokens": 48, "context": 64, "width": 64, "feed_forward": 96, "heads": 2, "head_dim": 32, "vocabulary": 128}
PRODUCTS = {"product_square", "product_up", "product_down", "product_token"}


def built(make_context, /, *names, **params):
    """The operators, compiled and each executed once."""
    of_all = started(
        OPERATORS.build(validate_params(OPERATORS, SMALL | {"operators": list(names)} | params), make_context())
    )
    for case in of_all.cases[1:]:
        case.execute(1)
    return of_all


def codes(verification):
    return [(raised.code, raised.evidence["operator"]) for raised in verification.warnings]


@pytest.fixture(scope="module")
def everything(context):
    return built(context, *operators.NAMES)


def test_every_operator_agrees_with_float64(everything):
    verified = everything.verify()
    assert codes(verified) == []
    assert verified.precision.observed == "float32"
    assert list(verified.details["operators"]) == list(operators.NAMES)


def test_the_framework_counts_the_same_flop(everything):
    counts = {case.name: (case.flops, case.counted_flops()) for case in everything.cases}
    assert {name for name, (declared, _) in counts.items() if declared} == {
        name for name in operators.NAMES if name in PRODUCTS or name.startswith(("attention", "conv"))
    }
    assert {name: counted for name, (_, counted) in counts.items()} == {
        name: pytest.approx(declared) for name, (declared, _) in counts.items()
    }


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("attention", lambda framework, q, k, v: framework.keras.ops.dot_product_attention(q, k, v)),
        ("attention_token", lambda framework, q, k, v: framework.keras.ops.dot_product_attention(q, k, v[:, ::-1])),
        ("product_up", lambda framework, a, b: framework.matmul(a, b) * 1.001),
        ("rms_norm", lambda framework, x: framework.keras.ops.layer_normalization(x)),
        ("softmax", lambda framework, x: framework.keras.ops.softmax(x, axis=0)),
        ("embedding", lambda framework, table, chosen: framework.keras.ops.take(table, chosen + 1, axis=0)),
        ("conv_7", lambda framework, x, kernel: framework.keras.ops.conv(x, kernel[::-1], padding="same")),
    ],
)
def test_a_wrong_layer_is_found(context, monkeypatch, name, fault):
    make = operators._OPERATORS[name]
    monkeypatch.setitem(operators._OPERATORS, name, lambda params: replace(make(params), apply=fault))
    assert codes(built(context, name).verify()) == [("RESULT_INCORRECT", name)]


def test_an_infinite_output_is_found(context, monkeypatch):
    make = operators._OPERATORS["gelu"]
    overflow = replace(make(validate_params(OPERATORS, SMALL)), apply=lambda framework, x: x * np.float32(3e38))
    monkeypatch.setitem(operators._OPERATORS, "gelu", lambda params: overflow)
    assert codes(built(context, "gelu").verify()) == [("OUTPUT_NONFINITE", "gelu")]


@pytest.mark.provokes("SUBNORMAL_OUTPUT")
@pytest.mark.silent("SUBNORMAL_OUTPUT")
def test_small_values_of_float16_are_named(context):
    probabilities = {"vocabulary": 60_000, "tokens": 2, "dtype": "float16"}
    assert codes(built(context, "softmax", **probabilities).verify()) == [("SUBNORMAL_OUTPUT", "softmax")]
    assert codes(built(context, "softmax", **probabilities | {"dtype": "bfloat16"}).verify()) == []


@pytest.mark.parametrize(
    "params",
    [
        {"dtype": "bfloat16"},
        pytest.param({"dtype": "bfloat16", "tokens": 512, "context": 2048, "head_dim": 64}, marks=pytest.mark.verify),
        pytest.param({"dtype": "float16"}, marks=pytest.mark.verify),
        pytest.param({"dtype": "float16", "vocabulary": 131_072, "tokens": 4}, marks=pytest.mark.verify),
        {"tokens": 1, "vocabulary": 2, "width": 2},
        pytest.param({"images": 2, "tokens": 3}, marks=pytest.mark.verify),
    ],
    ids=str,
)
def test_right_outputs_pass_in_each_precision_and_size(context, params):
    exact = params.get("dtype") != "float16" and (params.get("dtype"), WITH_ONEDNN) != ("bfloat16", False)
    names = [name for name in operators.NAMES if exact or not name.startswith("attention")]
    wrong = [code for code, _ in codes(built(context, *names, **params).verify()) if code != "SUBNORMAL_OUTPUT"]
    assert wrong == []


def test_attention_in_float16_needs_an_accelerator(device):
    params = validate_params(OPERATORS, {"operators": ["gelu", "attention"], "dtype": "float16"})
    assert [error.pointer for error in OPERATORS.refuses(params, device)] == ["/dtype"]
    assert OPERATORS.refuses(params, device.model_copy(update={"id": "gpu:0", "kind": "gpu"})) == []


@pytest.mark.parametrize(
    ("name", "flop", "traffic"),
    [
        ("product_up", 2 * 512 * 1024 * 4096, 4 * (512 * 1024 + 1024 * 4096 + 512 * 4096)),
        ("attention", 4 * 16 * 64 * 512 * 513 / 2, 4 * 4 * 512 * 16 * 64),
        ("attention_token", 4 * 16 * 64 * 2048, 4 * 2 * 16 * 64 * (2048 + 1)),
        ("embedding", 0, 4 * 2 * 512 * 1024),
        ("conv_28", 2 * 28 * 28 * 9 * 128 * 128, 4 * (2 * 28 * 28 * 128 + 9 * 128 * 128)),
    ],
)
def test_flop_and_bytes_by_hand(name, flop, traffic):
    operator = operators._OPERATORS[name](OPERATORS.params())
    assert (operator.flops, 4 * operator.traffic) == (flop, traffic)


def test_an_operator_is_named_once():
    with pytest.raises(InvalidSpec, match="each operator once"):
        validate_params(OPERATORS, {"operators": ["gelu", "gelu"]})


@pytest.mark.parametrize(
    ("names", "param", "sizes", "least_bytes"),
    [
        (["embedding"], "vocabulary", (1000, 1_000_000), 4 * 1024 * 999_000),
        (["attention"], "tokens", (64, 4096), 4 * 3 * 16 * 4096**2),
        (["softmax"], "width", (64, 65_536), 0),
    ],
)
def test_the_estimate_counts_what_an_operator_holds(device, names, param, sizes, least_bytes):
    both = [validate_params(OPERATORS, {"operators": names, param: size}) for size in sizes]
    small, large = (OPERATORS.estimate(size, device).memory_bytes for size in both)
    assert large - small >= least_bytes
    assert (large == small) == (least_bytes == 0)
