import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.bench.registry import registry
from dyno.errors import InvalidSpec
from dyno.models.spec import Spec
from service import validation
from service.validation import validate_job

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["cpu", "gpu:0@h", "float32"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)
PARAMS = st.dictionaries(st.sampled_from([*registry()["matmul"].params.model_fields, "a/b~c"]), ANYTHING)
DOCUMENTS = st.fixed_dictionaries(
    {"workload": st.sampled_from(sorted(registry())) | ANYTHING},
    optional={name: ANYTHING for name in Spec.model_fields if name not in ("workload", "params")}
    | {"params": PARAMS | ANYTHING},
)


def read_text(text):
    document, faults = validation.parse_json(text.encode())
    return validate_job(document, faults, registry())


def errors_of(document):
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(InvalidSpec) as caught:
        read_text(text)
    assert all(error.detail for error in caught.value.errors)
    return {error.pointer: error.code for error in caught.value.errors}


def test_the_spec_has_every_default_filled_in():
    spec = read_text('{"workload": "matmul", "params": {"n": 64}}').spec
    assert spec.params["n"] == 64
    assert spec.params["dtype"] == "float32"
    assert spec.params.keys() == registry()["matmul"].params.model_fields.keys()
    assert spec.measure.model_dump(mode="json") == {"budget_s": 15.0, "cold_start": False}
    assert spec.measure.runs.min == 5


@pytest.mark.parametrize(
    ("measure", "target"),
    [
        ({}, None),
        ({"processes": 9}, None),
        ({"processes": {"min": 5, "max": 9}}, 0.01),
        ({"target_rel_ci": 0.02}, 0.02),
        ({"processes": {"min": 5, "max": 9}, "target_rel_ci": 0.02}, 0.02),
        ({"target_rel_ci": None}, None),
    ],
)
def test_a_target_of_the_runs_is_requested_or_comes_with_a_range(measure, target):
    assert read_text(json.dumps({"workload": "matmul", "measure": measure})).spec.measure.target_of_runs == target


def test_a_spec_without_a_target_leaves_it_out():
    without = read_text('{"workload": "matmul"}').spec
    assert "target_rel_ci" not in json.loads(without.model_dump_json())["measure"]
    asked = Spec.model_validate({"workload": "matmul", "measure": {"target_rel_ci": 0.01}})
    assert json.loads(asked.model_dump_json())["measure"]["target_rel_ci"] == 0.01


@pytest.mark.parametrize(("max_s", "min_s"), [(1, 1), (2, 2), (5, 2)])
def test_the_default_min_s_is_at_most_max_s(max_s, min_s):
    assert read_text(json.dumps({"workload": "matmul", "measure": {"max_s": max_s}})).spec.measure.least_s == min_s


def test_an_invalid_max_s_is_a_single_error():
    for max_s in (0, -1, "x", True):
        assert list(errors_of({"workload": "matmul", "measure": {"max_s": max_s}})) == ["/measure/max_s"]


@pytest.mark.parametrize("device", ["cpu", "any", "cpu:0-1", "gpu:0@host", {"kind": "cpu"}, {}])
def test_a_device_may_be_given_short_or_long(device):
    assert read_text(json.dumps({"workload": "matmul", "device": device})).spec.device is not None


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, {"/workload": "missing"}),
        ({"workload": 5}, {"/workload": "string-type"}),
        ({"workload": ""}, {"/workload": "string-too-short"}),
        ({"workload": "nonesuch"}, {"/workload": "unknown-workload"}),
        ({"workload": "matmul", "surprise": 1}, {"/surprise": "extra-forbidden"}),
        ({"workload": "matmul", "params": []}, {"/params": "dict-type"}),
        ({"workload": "matmul", "params": {"n": 0}}, {"/params/n": "greater-than-equal"}),
        ({"workload": "matmul", "params": {"n": True}}, {"/params/n": "int-type"}),
        ({"workload": "matmul", "params": {"n": "64"}}, {"/params/n": "int-type"}),
        ({"workload": "matmul", "params": {"a/b": 0}}, {"/params/a~1b": "extra-forbidden"}),
        ({"workload": "matmul", "seed": "5"}, {"/seed": "int-type"}),
        ({"workload": "matmul", "seed": True}, {"/seed": "int-type"}),
        ({"workload": "matmul", "timeout_s": 0}, {"/timeout_s": "greater-than"}),
        ({"workload": "matmul", "labels": {"": "x"}}, {"/labels/": "string-too-short"}),
        ({"workload": "matmul", "labels": {"a": 5}}, {"/labels/a": "string-type"}),
        ({"workload": "matmul", "device": "toaster"}, {"/device": "value-error"}),
        ({"workload": "matmul", "device": {"kind": "cpu", "index": 1}}, {"/device/index": "extra-forbidden"}),
        ({"workload": "matmul", "measure": {"processes": 0}}, {"/measure/processes": "greater-than-equal"}),
        ({"workload": "matmul", "measure": {"min_s": 9, "max_s": 3}}, {"/measure/min_s": "value-error"}),
        ({"workload": "matmul", "device": {"kind": "gpu", "id": "cpu:0-0"}}, {"/device": "value-error"}),
        ({"workload": "matmul", "framework": "cobol"}, {"/framework": "literal-error"}),
        ('{"workload": "matmul", "params": {"n": NaN}}', {"/params/n": "not-finite"}),
        ('{"workload": "matmul", "params": {"x": [{"y": 1e400}]}}', {"/params/x/0/y": "not-finite"}),
        ('{"workload": "matmul", "workload": "matmul"}', {"/workload": "duplicate-key"}),
        (r'{"workload": "\ud800"}', {"/workload": "lone-surrogate"}),
    ],
)
def test_each_wrong_field_is_named_with_a_stable_code(document, expected):
    found = errors_of(document)
    assert expected.items() <= found.items()


def test_errors_of_text_envelope_and_workload_are_reported_together():
    text = '{"workload": "matmul", "seed": -1, "priority": NaN, "extra": 1, "params": {"n": 0, "dtype": "int3"}}'
    assert errors_of(text) == {
        "/priority": "not-finite",
        "/seed": "greater-than-equal",
        "/extra": "extra-forbidden",
        "/params/n": "greater-than-equal",
        "/params/dtype": "literal-error",
    }


def test_an_unknown_workload_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSpec, match=r"workloads: .*matmul"):
        read_text('{"workload": "nonesuch"}')


def test_a_framework_that_the_workload_does_not_support_is_refused():
    able = replace(registry()["matmul"], frameworks=("tensorflow", "torch"))
    with pytest.raises(InvalidSpec, match="supports only tensorflow, torch") as caught:
        validate_job({"workload": "matmul", "framework": "jax"}, [], {"matmul": able})
    assert [(e.pointer, e.code) for e in caught.value.errors] == [("/framework", "framework-unsupported")]


def test_the_digest_ignores_spaces_and_order_but_not_values():
    one = read_text('{"workload": "matmul", "seed": 1}').body_sha256
    assert read_text('{ "seed":1,"workload":"matmul" }').body_sha256 == one
    assert read_text('{"workload": "matmul", "seed": 2}').body_sha256 != one


@given(DOCUMENTS)
def test_documents_only_raise_errors_that_can_be_sent(document):
    errors = errors_found(json.dumps(document))
    pointers = [error.pointer for error in errors]
    assert len(set(pointers)) == len(pointers)
    "".join(f"{error.pointer}{error.detail}" for error in errors).encode()


def errors_found(text):
    try:
        read_text(text)
    except InvalidSpec as invalid:
        return invalid.errors
    return []
