from __future__ import annotations

from typing import Any

import pytest

from dyno.errors import InvalidSpec, UnknownWorkload
from dyno.models.spec import Spec
from dyno.workloads import normalise, registry, validate_params, workload


def _pointers(name: str, params: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidSpec) as invalid:
        validate_params(workload(name), params)
    return [error.pointer for error in invalid.value.errors]


@pytest.mark.parametrize(
    ("params", "pointers"),
    [
        ({"n": 0}, ["/params/n"]),
        ({"n": "4096"}, ["/params/n"]),
        ({"n": 1.5}, ["/params/n"]),
        ({"n": True}, ["/params/n"]),
        ({"n": 1 << 40}, ["/params/n"]),
        ({"n": None}, ["/params/n"]),
        ({"dtype": "float64"}, ["/params/dtype"]),
        ({"size": 3}, ["/params/size"]),
        ({"a/b~c": 3}, ["/params/a~1b~0c"]),
        (
            {"n": 0, "repeats": -1, "dtype": 3, "colour": "red"},
            ["/params/n", "/params/repeats", "/params/dtype", "/params/colour"],
        ),
        ({"sizes": [64, "x"]}, ["/params/sizes/1"] * 2),  # neither a number nor three of them
        ({"m": 2}, ["/params/k", "/params/n"]),
        ({"m": 2, "n": 3}, ["/params/k"]),
        ({"k": 2, "n": 3, "mode": "dispatch"}, ["/params/m"]),
        ({"m": 2, "k": 3, "n": 4}, ["/params/m", "/params/k"]),
        ({"m": 4, "k": 3, "n": 4, "mode": "chain"}, ["/params/k"]),
    ],
)
def test_every_wrong_field_of_matmul_is_named(params: dict[str, Any], pointers: list[str]) -> None:
    assert _pointers("matmul", params) == pointers


@pytest.mark.parametrize("number", [0, 1, 0.0, 1.0])
def test_a_number_is_none_of_true_and_false(number: float) -> None:
    assert _pointers("mnist_cnn", {"jit_compile": number}) == ["/params/jit_compile"]


@pytest.mark.parametrize(
    ("params", "pointers"),
    [
        (
            {"batch_size": 0, "epochs": 0, "learning_rate": 0},
            ["/params/batch_size", "/params/epochs", "/params/learning_rate"],
        ),
        ({"train_samples": 60_001, "test_samples": 10_001}, ["/params/train_samples", "/params/test_samples"]),
        ({"data": "imaginary"}, ["/params/data"]),
    ],
)
def test_every_wrong_field_of_mnist_cnn_is_named(params: dict[str, Any], pointers: list[str]) -> None:
    assert _pointers("mnist_cnn", params) == pointers


@pytest.mark.parametrize("value", [2, "yes", "true", None])
def test_jit_compile_is_true_false_or_auto(value: Any) -> None:
    assert _pointers("mnist_cnn", {"jit_compile": value}) == ["/params/jit_compile"]


@pytest.mark.parametrize(
    "params",
    [{}, {"n": 64}, {"m": 4, "k": 4, "n": 4}, {"m": 2, "k": 3, "n": 4, "mode": "dispatch"}],
)
def test_what_makes_sense_is_taken(params: dict[str, Any]) -> None:
    assert validate_params(workload("matmul"), params).model_dump(include=set(params)) == params


def test_defaults_are_those_of_the_reference() -> None:
    matmul, mnist = (normalise(Spec(workload=name)).params for name in ("matmul", "mnist_cnn"))
    assert (matmul["n"], matmul["repeats"], matmul["dtype"], matmul["mode"]) == (4096, 100, "float32", "chain")
    assert (mnist["batch_size"], mnist["epochs"], mnist["learning_rate"]) == (1024, 10, 1e-3)


@pytest.mark.parametrize("name", list(registry()))
def test_normalising_twice_changes_nothing(name: str) -> None:
    once = normalise(Spec(workload=name))
    assert normalise(once) == once


def test_a_normalised_square_with_three_sides_stays_valid() -> None:
    once = normalise(Spec(workload="matmul", params={"m": 8, "k": 8, "n": 8}))
    assert normalise(once) == once


def test_normalising_an_unknown_workload_fails() -> None:
    with pytest.raises(UnknownWorkload):
        normalise(Spec(workload="nothing"))


@pytest.mark.parametrize("name", list(registry()))
def test_params_have_a_json_schema_with_defaults(name: str) -> None:
    schema = workload(name).params.model_json_schema()
    assert all("default" in field for field in schema["properties"].values())
