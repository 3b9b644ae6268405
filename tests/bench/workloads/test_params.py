"""Params: defaults, errors, replicas, and the params that may differ between comparable results."""

import pytest

from dyno.bench.registry import registry, resolve, validate_params, workload
from dyno.errors import InvalidSpec, UnknownWorkload
from dyno.models.spec import Spec


def _pointers(name, params):
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
def test_every_wrong_field_of_matmul_is_named(params, pointers):
    assert _pointers("matmul", params) == pointers


@pytest.mark.parametrize("number", [0, 1, 0.0, 1.0])
def test_numbers_are_not_accepted_as_booleans(number):
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
def test_every_wrong_field_of_mnist_cnn_is_named(params, pointers):
    assert _pointers("mnist_cnn", params) == pointers


@pytest.mark.parametrize("value", [2, "yes", "true", None])
def test_jit_compile_is_true_false_or_auto(value):
    assert _pointers("mnist_cnn", {"jit_compile": value}) == ["/params/jit_compile"]


@pytest.mark.parametrize(
    "params",
    [{}, {"n": 64}, {"m": 4, "k": 4, "n": 4}, {"m": 2, "k": 3, "n": 4, "mode": "dispatch"}],
)
def test_valid_params_are_accepted(params):
    assert validate_params(workload("matmul"), params).model_dump(include=set(params)) == params


def test_defaults_match_the_reference():
    matmul, mnist = (resolve(Spec(workload=name)).spec.params for name in ("matmul", "mnist_cnn"))
    assert (matmul["n"], matmul["repeats"], matmul["dtype"], matmul["mode"]) == (4096, None, "float32", "chain")
    assert (mnist["batch_size"], mnist["epochs"], mnist["learning_rate"]) == (1024, 10, 1e-3)


@pytest.mark.parametrize(
    ("params", "train"),
    [
        ({}, "steps"),
        ({"batch_size": 64}, "steps"),
        ({"epochs": 10}, "full"),
        ({"target_accuracy": 0.98}, "full"),
        ({"train": "full"}, "full"),
        ({"train": "steps", "learning_rate": 0.1}, "steps"),
    ],
)
def test_a_training_trains_in_full_if_a_field_of_it_is_given(params, train):
    assert resolve(Spec(workload="mnist_cnn", params=params)).spec.params["train"] == train


def test_fields_of_a_training_that_is_refused_are_named():
    assert _pointers("mnist_cnn", {"train": "steps", "epochs": 3, "trials": 2}) == ["/params/epochs", "/params/trials"]


@pytest.mark.parametrize("name", list(registry()))
def test_resolving_twice_changes_nothing(name):
    once = resolve(Spec(workload=name)).spec
    assert resolve(once).spec == once


def test_a_normalised_square_with_three_sides_stays_valid():
    once = resolve(Spec(workload="matmul", params={"m": 8, "k": 8, "n": 8})).spec
    assert resolve(once).spec == once


def test_resolving_an_unknown_workload_fails():
    with pytest.raises(UnknownWorkload):
        resolve(Spec(workload="nothing"))


@pytest.mark.parametrize("name", list(registry()))
def test_the_declared_jobs_are_valid(name):
    smoke = registry()[name].smoke
    for params in (smoke.params, {**smoke.params, **smoke.on_jax}, registry()[name].bench):
        resolve(Spec.model_validate({"workload": name, "params": params, "replicas": smoke.replicas}, strict=True))


@pytest.mark.parametrize("name", list(registry()))
def test_params_have_a_json_schema_with_defaults(name):
    schema = workload(name).params.model_json_schema()
    assert all("default" in field for field in schema["properties"].values())


@pytest.mark.parametrize("name", sorted(registry()))
def test_what_is_untimed_is_a_param_and_what_makes_the_work_is_not_untimed(name):
    params = registry()[name].params
    assert params.untimed <= params.model_fields.keys()
    work = {"n", "m", "k", "repeats", "sizes", "dtype", "mode", "batch_size", "units", "window", "precision", "model"}
    work |= {"filters", "dense_units", "dropout_rates"}
    assert not params.untimed & (work | {"jit_compile", "steps_per_execution", "train_samples", "validation_share"})


def test_of_a_training_where_it_starts_its_length_and_what_is_done_after_it_are_untimed():
    assert {"weights", "epochs", "trials", "export", "recognise"} <= registry()["mnist_cnn"].params.untimed
    assert {"epochs", "generate", "prompt"} <= registry()["shakespeare_lstm"].params.untimed
    assert {"weights", "epochs"} <= registry()["quantized_inference"].params.untimed
    assert registry()["matmul"].params.untimed == frozenset()


def _errors(workload, replicas, **params):
    with pytest.raises(InvalidSpec) as invalid:
        resolve(Spec.model_validate({"workload": workload, "params": params, "replicas": replicas}))
    return {error.pointer: error.detail for error in invalid.value.errors}


def test_a_batch_that_divides_is_taken_and_any_is_for_one_replica():
    for replicas, batch_size in ((8, 1024), (3, 999), (1, 1023)):
        resolve(
            Spec.model_validate({"workload": "mnist_cnn", "params": {"batch_size": batch_size}, "replicas": replicas})
        )


@pytest.mark.parametrize(
    ("replicas", "batch_size", "nearest"),
    [(8, 1023, "1016, 1024"), (8, 5, "8"), (7, 60_000, "59997"), (2, 1, "2")],
)
def test_one_that_does_not_is_refused_with_the_nearest_that_do(replicas, batch_size, nearest):
    errors = _errors("mnist_cnn", replicas, batch_size=batch_size)
    expected = f"{batch_size} is not divisible by {replicas} replicas; nearest valid: {nearest}"
    assert errors == {"/params/batch_size": expected}


def test_a_workload_of_one_device_refuses_replicas():
    assert _errors("matmul", 2) == {"/replicas": "matmul runs on one device: replicas must be 1"}


def test_params_of_one_device_refuse_replicas():
    detail = "resnet50 with these params runs on one device: replicas must be 1"
    assert _errors("resnet50", 2, mode="inference") == {"/replicas": detail}


def test_batch_errors_and_conflicts_are_reported_together():
    errors = _errors("mnist_cnn", 8, batch_size=1023, best_weights=True)
    assert errors.keys() == {"/params/best_weights", "/params/batch_size"}


@pytest.mark.parametrize("workload", ["cifar10_cnn", "shakespeare_lstm"])
def test_a_batch_that_is_not_given_grows_with_the_replicas_where_the_reference_s_did(workload):
    of = registry()[workload]
    assert [validate_params(of, {}, replicas).model_dump()["batch_size"] for replicas in (1, 8)] == [128, 1024]
    assert validate_params(of, {"batch_size": 64}, 8).model_dump()["batch_size"] == 64
