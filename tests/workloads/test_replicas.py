"""Which jobs may ask for replicas, before anything runs."""

from __future__ import annotations

import pytest

from dyno.errors import InvalidSpec
from dyno.models.spec import Spec
from dyno.workloads import normalise, registry, validate_params


def _errors(workload: str, replicas: int, **params: object) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as invalid:
        normalise(Spec.model_validate({"workload": workload, "params": params, "replicas": replicas}))
    return {error.pointer: error.detail for error in invalid.value.errors}


def test_a_batch_that_divides_is_taken_and_any_is_for_one_replica() -> None:
    for replicas, batch_size in ((8, 1024), (3, 999), (1, 1023)):
        normalise(
            Spec.model_validate({"workload": "mnist_cnn", "params": {"batch_size": batch_size}, "replicas": replicas})
        )


@pytest.mark.parametrize(
    ("replicas", "batch_size", "nearest"),
    [(8, 1023, "1016, 1024"), (8, 5, "8"), (7, 60_000, "59997"), (2, 1, "2")],
)
def test_one_that_does_not_is_refused_with_the_nearest_that_do(replicas: int, batch_size: int, nearest: str) -> None:
    errors = _errors("mnist_cnn", replicas, batch_size=batch_size)
    expected = f"{batch_size} is not divisible by {replicas} replicas; nearest valid: {nearest}"
    assert errors == {"/params/batch_size": expected}


def test_a_workload_of_one_device_refuses_replicas() -> None:
    assert _errors("matmul", 2) == {"/replicas": "matmul runs on one device: replicas must be 1"}


def test_params_of_one_device_refuse_replicas() -> None:
    detail = "resnet50 with these params runs on one device: replicas must be 1"
    assert _errors("resnet50", 2, mode="inference") == {"/replicas": detail}


def test_what_is_wrong_with_the_batch_is_told_together_with_what_contradicts_itself() -> None:
    errors = _errors("mnist_cnn", 8, batch_size=1023, best_weights=True)
    assert errors.keys() == {"/params/best_weights", "/params/batch_size"}


@pytest.mark.parametrize("workload", ["cifar10_cnn", "shakespeare_lstm"])
def test_a_batch_that_is_not_given_grows_with_the_replicas_where_the_reference_s_did(workload: str) -> None:
    of = registry()[workload]
    assert [validate_params(of, {}, replicas).model_dump()["batch_size"] for replicas in (1, 8)] == [128, 1024]
    assert validate_params(of, {"batch_size": 64}, 8).model_dump()["batch_size"] == 64
