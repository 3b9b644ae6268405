"""Every param of every workload, wrong in each way that its schema excludes: each is named, and no job is queued."""

from itertools import zip_longest

import pytest

NOTHING = object()
TYPES = {bool: "boolean", str: "string", int: "integer"}


@pytest.fixture(scope="module")
def schemas(http):
    return {e["name"]: e["params"] for e in http.get("/v1/workloads").raise_for_status().json()["data"]}


def test_each_param_excluded_by_its_schema_is_named(api, schemas):
    for workload, schema in schemas.items():
        wrong = {name: list(excluded(part, schema.get("$defs", {}))) for name, part in schema["properties"].items()}
        assert all(wrong.values()), workload
        for values in zip_longest(*wrong.values(), fillvalue=NOTHING):
            params = {name: value for name, value in zip(wrong, values, strict=True) if value is not NOTHING}
            assert named(api, {"workload": workload, "params": params}) == params.keys(), (workload, params)


def test_an_unknown_param_is_named(api, schemas):
    for workload in schemas:
        assert named(api, {"workload": workload, "params": {"no_such_param": 1}}) == {"no_such_param"}


@pytest.mark.parametrize(
    ("workload", "params", "pointers"),
    [
        ("matmul", {"m": 64}, {"k", "n"}),
        ("matmul", {"m": 64, "k": 32, "n": 64}, {"k"}),
        ("mnist_cnn", {"early_stopping_patience": 1}, {"early_stopping_patience"}),
        ("mnist_cnn", {"reduce_lr_patience": 1, "best_weights": True}, {"reduce_lr_patience", "best_weights"}),
        ("weather_gru", {"window": 24, "warmup_steps": 24}, {"warmup_steps"}),
        ("imdb_lstm", {"recurrence": "unrolled", "length": 1000}, {"length"}),
        ("mnist_cnn", {"train_samples": 1, "validation_share": 0.5}, {"train_samples"}),
        ("weather_gru", {"window": 4000}, {"window", "validation_share"}),
        ("cifar10_cnn", {"data": "sample"}, {"data"}),
        ("mnist_cnn", {"train_samples": 200, "batch_size": 60_000}, {"batch_size"}),
    ],
)
def test_params_that_contradict_each_other_are_named(api, workload, params, pointers):
    assert named(api, {"workload": workload, "params": params}) == pointers


@pytest.mark.parametrize("rates", [[], [0.3, 0.3], [0.3, 0.3, 0.5, 0.5], [0.3, 0.3, 1], [-0.1, 0.3, 0.5], 0.3])
def test_dropout_rates_of_a_wrong_number_or_value_are_named(api, rates):
    assert named(api, {"workload": "mnist_cnn", "params": {"dropout_rates": rates}}) == {"dropout_rates"}


def test_params_that_the_framework_does_not_support_are_named(api):
    for workload, params in (("mnist_cnn", {"export": "saved_model"}), ("quantized_inference", {"engine": "litert"})):
        assert named(api, {"workload": workload, "params": params, "framework": "jax"}) == params.keys()


def named(api, body):
    """The params that the 422 for `body` names."""
    answer = api.http.post("/v1/jobs", json=body | {"labels": {"wrong": "params"}})
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "invalid-spec"
    assert all(error["code"] and error["detail"] for error in answer.json()["errors"])
    pointers = [error["pointer"].split("/") for error in answer.json()["errors"]]
    assert {pointer[1] for pointer in pointers} == {"params"}
    return {pointer[2] for pointer in pointers}


def excluded(schema, definitions):
    """JSON values that the schema of one param excludes: other types, beyond its bounds, outside its choices."""
    ways = [resolved(way, definitions) for way in schema.get("anyOf", [schema])]
    choices = [choice for way in ways for choice in way.get("enum", [way["const"]] if "const" in way else [])]
    types = {way["type"] for way in ways if "type" in way} | {TYPES[type(choice)] for choice in choices}
    yield {"no such": "field"}
    yield [[[]]]
    if "null" not in types:
        yield None
    if "boolean" not in types:
        yield True
    if "number" not in types:
        yield 1.5
    if "string" not in types or choices:
        yield "no such choice"
    for way in ways:
        yield from beyond(way)


def beyond(way):
    if "minimum" in way:
        yield way["minimum"] - 1
    if "exclusiveMinimum" in way:
        yield way["exclusiveMinimum"]
    if "maximum" in way:
        yield way["maximum"] + 1
    if "exclusiveMaximum" in way:
        yield way["exclusiveMaximum"]


def resolved(way, definitions):
    return definitions[way["$ref"].rpartition("/")[2]] if "$ref" in way else way
