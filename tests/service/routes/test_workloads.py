"""The descriptions of workloads."""

import importlib
import math
from typing import get_args

import pytest

from dyno.bench.registry import registry
from dyno.models.spec import FrameworkName
from tests.schemas import validator

EVERY = sorted(registry())


@pytest.fixture(scope="module")
def entries(http):
    return {entry["name"]: entry for entry in http.get("/v1/workloads").raise_for_status().json()["data"]}


def test_every_workload_is_listed_and_returned_as_listed(http, entries):
    assert list(entries) == EVERY
    for name, entry in entries.items():
        assert http.get(f"/v1/workloads/{name}").raise_for_status().json() == entry


@pytest.mark.parametrize("name", EVERY)
def test_the_schema_accepts_the_default_params(entries, name):
    schema = entries[name]["params"]
    defaults = registry()[name].params().model_dump(mode="json")
    validator(schema).validate(defaults)
    assert schema["properties"].keys() == defaults.keys()
    assert not schema["additionalProperties"]


@pytest.mark.parametrize("name", EVERY)
def test_a_workload_lists_its_frameworks_and_datasets(entries, name):
    entry = entries[name]
    assert entry["frameworks"]
    assert set(entry["frameworks"]) <= set(get_args(FrameworkName))
    assert entry["trains"] == ("epochs" in entry["params"]["properties"])
    shares_a_batch = entry["replicable"] and registry()[name].least_replicas == 1
    assert entry["trains"] or not shares_a_batch or "batch_size" in entry["params"]["properties"]
    for dataset in entry["datasets"]:
        assert callable(importlib.import_module(f"dyno.bench.datasets.{dataset}").load)
    assert bool(entry["datasets"]) == ("data" in entry["params"]["properties"])


@pytest.mark.parametrize("name", EVERY)
def test_every_metric_is_described(entries, name):
    metrics = entries[name]["metrics"]
    assert metrics
    for metric in metrics:
        assert metric["unit"]
        assert metric["description"]
        assert metric["better"] in ("higher", "lower")


@pytest.mark.parametrize("name", EVERY)
def test_every_reference_has_a_source_and_comparable_figures(entries, name):
    for reference in entries[name]["references"]:
        assert reference.keys() == {"title", "year", "hardware", "metric", "value", "unit", "doubt"}
        assert all(reference[field] for field in ("title", "year", "hardware", "metric", "unit"))
        assert reference["value"] is None or math.isfinite(reference["value"])
        assert reference["doubt"].endswith(".") if reference["doubt"] else reference["value"] is not None
