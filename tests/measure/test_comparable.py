"""Which results may be compared, and what is told of those that may."""

from __future__ import annotations

from typing import Any

import pytest

from dyno.errors import InvalidComparison, NotComparable
from dyno.measure.comparable import Entry, check_comparable, differences, same_work
from dyno.models.result import Precision
from dyno.models.spec import Spec
from dyno.workloads import registry
from tests.comparisons import a_metric, an_entry

UNTIMED = frozenset({"epochs"})


def precision(observed: str | None, requested: str = "float32") -> Precision:
    return Precision(requested=requested, observed=observed)


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        (an_entry(workload="resnet50"), {"/workload": ["matmul", "resnet50"]}),
        (an_entry(spec={"params": {"n": 65, "dtype": "float32"}}), {"/params/n": [64, 65]}),
        (an_entry(spec={"params": {"n": 64}}), {"/params/dtype": ["float32", None]}),
        (an_entry(precision=precision("tf32")), {"/precision/observed": ["float32", "tf32"]}),
        (an_entry(precision=precision("float32", "tf32")), {"/precision/requested": ["float32", "tf32"]}),
        (an_entry(method_version="2"), {"/method_version": ["1", "2"]}),
        (an_entry(device={"emulated": True}), {"/device/emulated": [False, True]}),
        (
            an_entry(method_version="2", precision=precision("tf32")),
            {"/method_version": ["1", "2"], "/precision/observed": ["float32", "tf32"]},
        ),
    ],
)
def test_results_of_other_work_or_method_are_refused_with_every_field(entry: Entry, fields: dict[str, Any]) -> None:
    with pytest.raises(NotComparable) as refused:
        check_comparable([an_entry(), entry], None, UNTIMED)
    assert refused.value.fields == fields
    assert all(field in refused.value.detail for field in fields)


def test_results_of_emulated_devices_may_be_compared_with_each_other() -> None:
    entries = [an_entry(device={"emulated": True}) for _ in range(2)]
    assert check_comparable(entries, None, UNTIMED) == "throughput"


def test_the_third_of_several_is_looked_at_too() -> None:
    with pytest.raises(NotComparable):
        check_comparable([an_entry(), an_entry(), an_entry(method_version="2")], None, UNTIMED)


def test_a_precision_that_nobody_observed_is_told_and_forbids_nothing() -> None:
    entries = [an_entry(), an_entry(precision=precision(None))]
    assert check_comparable(entries, None, UNTIMED) == "throughput"
    assert {each.field: each.values for each in differences(entries)} == {"/precision/observed": ["float32", None]}


def test_a_param_that_no_sample_times_may_differ_but_not_for_a_figure_taken_once() -> None:
    metrics = [a_metric(), a_metric("accuracy", [])]
    entries = [an_entry(metrics=metrics, spec={"params": {"epochs": epochs}}) for epochs in (1, 2)]
    assert check_comparable(entries, None, UNTIMED) == "throughput"
    assert [each.field for each in differences(entries)] == ["/params/epochs"]
    with pytest.raises(NotComparable):
        check_comparable(entries, "accuracy", UNTIMED)
    with pytest.raises(NotComparable):
        check_comparable(entries, None, frozenset())


def test_trainings_from_different_weights_may_be_compared_on_what_their_steps_take() -> None:
    untimed = registry()["mnist_cnn"].params.untimed
    weights = {"job": f"job_{'0' * 26}", "name": "model.weights.h5"}
    entries = [an_entry(spec={"params": {"weights": each}}) for each in (None, weights)]
    assert check_comparable(entries, None, untimed) == "throughput"
    assert [each.field for each in differences(entries)] == ["/params/weights"]


@pytest.mark.parametrize("metrics", [[], [a_metric("execution_time", better="lower")]])
def test_a_metric_that_not_all_have_is_refused_with_those_they_have(metrics: list[Any]) -> None:
    both = an_entry(metrics=[a_metric(), a_metric("execution_time", better="lower")])
    with pytest.raises(InvalidComparison) as refused:
        check_comparable([both, an_entry(metrics=metrics)], "throughput", UNTIMED)
    [error] = refused.value.errors
    assert (error.pointer, error.code) == ("/metric", "unknown-metric")
    assert ("execution_time" if metrics else "none") in error.detail


def test_a_misspelt_metric_is_told_before_params_that_no_sample_times_but_after_those_that_forbid_any() -> None:
    entries = [an_entry(spec={"params": {"epochs": epochs}}) for epochs in (1, 2)]
    with pytest.raises(InvalidComparison) as refused:
        check_comparable(entries, "througput", UNTIMED)
    assert [error.code for error in refused.value.errors] == ["unknown-metric"]
    with pytest.raises(NotComparable):
        check_comparable([an_entry(), an_entry(method_version="2")], "througput", UNTIMED)


def test_equal_results_differ_in_nothing() -> None:
    assert differences([an_entry(), an_entry()]) == []


def test_what_else_differs_is_told_one_by_one() -> None:
    first = an_entry(spec={"seed": 1})
    other = an_entry(
        spec={"framework": "jax", "seed": 2, "measure": {"max_s": 5}},
        device={"id": "gpu:0", "host": "here", "model": "Test GPU", "kind": "gpu"},
        environment={"python": "CPython 3.11", "packages": {"jax": "0.10.3"}, "flags": {"a/b": "1"}},
        hardware_id="hw_2",
        context_id="ctx_2",
        details={"jit_compile": True},
    )
    assert {each.field: each.values for each in differences([first, other])} == {
        "/framework": ["tensorflow", "jax"],
        "/seed": [1, 2],
        "/measure/max_s": [60.0, 5.0],
        "/device/id": ["cpu:0-1", "gpu:0"],
        "/device/kind": ["cpu", "gpu"],
        "/device/model": ["Test CPU", "Test GPU"],
        "/environment/packages/jax": ["0.10.2", "0.10.3"],
        "/environment/flags/a~1b": [None, "1"],
        "/hardware_id": ["hw_1", "hw_2"],
        "/context_id": ["ctx_1", "ctx_2"],
        "/details/jit_compile": [None, True],
    }


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"seed": 9, "labels": {"a": "b"}, "measure": {"max_s": 1}, "device": "cpu"}, True),
        ({"params": {"n": 65}}, False),
        ({"framework": "jax"}, False),
        ({"replicas": 2}, False),
    ],
)
def test_the_same_work_is_asked_for_whatever_the_seed_and_the_measuring(fields: dict[str, Any], same: bool) -> None:
    asked: dict[str, Any] = {"workload": "matmul", "params": {"n": 64}}
    assert same_work(Spec.model_validate(asked), Spec.model_validate(asked | fields)) is same
