"""Every workload on every framework of a live worker, with params so small that a job takes seconds.

Nearly all of that time is compilation. The jobs of all tests are submitted at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

FRAMEWORKS = ("tensorflow", "jax", "torch")
MEASURE = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.2}
LEFT = frozenset({"training.png", "model.weights.h5", "model.keras"})  # files of every training


@dataclass(frozen=True)
class Row:
    """A spec, and what its result has beside the common fields. `kind` of the data: None without data."""

    params: dict[str, Any]
    details: frozenset[str] = frozenset()
    kind: str | None = None
    artifacts: frozenset[str] = frozenset()
    warnings: frozenset[str] = frozenset()
    on_jax: dict[str, Any] = field(default_factory=dict)  # params that differ on JAX

    def params_on(self, framework: str) -> dict[str, Any]:
        return self.params | (self.on_jax if framework == "jax" else {})


LEARNT = frozenset({"batch_size", "batch_size_per_replica", "replicas", "jit_compile", "weights"})
QUICK = {"epochs": 1, "jit_compile": False}  # compiling with XLA would take most of a test's time
ROWS = {
    "matmul": Row({"n": 64, "repeats": 4}),
    "mnist_cnn": Row(
        {**QUICK, "batch_size": 128, "train_samples": 256, "test_samples": 128, "data": "sample"},
        LEARNT | {"wrong_digits"},
        "sample",
        LEFT | {"wrong.png"},
    ),
    "fashion_mnist_cnn": Row(
        {**QUICK, "batch_size": 32, "train_samples": 64, "test_samples": 32, "data": "sample"},
        LEARNT | {"wrong_images"},
        "sample",
        LEFT | {"wrong.png"},
    ),
    "cifar10_cnn": Row(
        {**QUICK, "batch_size": 32, "train_samples": 64, "test_samples": 32, "data": "synthetic"},
        LEARNT | {"wrong_images", "recognised"},
        "synthetic",
        LEFT | {"wrong.png"},
    ),
    "imdb_lstm": Row(
        {**QUICK, "batch_size": 32, "train_samples": 64, "test_samples": 32, "words": 100, "length": 10, "units": 8}
        | {"data": "synthetic"},
        LEARNT | {"rnn_kernel", "predicted_samples"},
        "synthetic",
        LEFT,
    ),
    "weather_gru": Row(
        {**QUICK, "batch_size": 8, "steps_per_epoch": 2, "window": 60, "units": 8, "data": "sample"},
        LEARNT | {"rnn_kernel", "signals"},
        "sample",
        LEFT | {"forecast_temp.png", "forecast_wind_speed.png", "forecast_pressure.png"},
    ),
    "resnet50": Row(
        {**QUICK, "batch_size": 2, "image_size": 32, "classes": 10, "images": 4, "mode": "train"},
        kind="synthetic",
        on_jax={"mode": "inference"},  # XLA compiles its training for half a minute
    ),
    "quantized_inference": Row(
        {"epochs": 1, "batch_size": 32, "train_samples": 64, "test_samples": 32, "data": "sample"},
        frozenset({"engine", "int8"}),
        "sample",
    ),
    "input_pipeline": Row(
        {"batch_size": 8, "train_samples": 32, "file_scale": 32, "prefetch": 0, "data": "sample"},
        frozenset({"source", "file_scale", "input_threads", "prefetch", "held_bytes", "data"}),
        warnings=frozenset({"INPUT_BOUND"}),
    ),
    "device_info": Row(
        {"ask_frameworks": False}, frozenset({"cpu", "frameworks", "listing"}), None, frozenset({"device.txt"})
    ),
    "shakespeare_lstm": Row(
        {**QUICK, "batch_size": 8, "steps_per_epoch": 2, "window": 10, "units": 8, "embedding": 8}
        | {"test_samples": 20, "generate": 20},
        LEARNT | {"rnn_kernel", "generated"},
        "real",  # the bundled text is the complete one
        LEFT | {"generated.txt"},
    ),
}


pytestmark = pytest.mark.timeout(600)  # a test may wait for the jobs of earlier ones
REPLICATED, REPLICAS = "mnist_cnn", 8
TESTS = [(workload, framework, 1) for workload in ROWS for framework in FRAMEWORKS]
TESTS += [(REPLICATED, framework, REPLICAS) for framework in FRAMEWORKS if framework != "torch"]  # no replicas on it


def marked(test: tuple[str, str, int]) -> Any:
    """`make test` has `matmul` on every framework, the others on the default one; `resnet50` compiles for 30 s."""
    quick = test[0] == "matmul" or (test[1] == "tensorflow" and test[0] != "resnet50")
    return test if quick else pytest.param(test, marks=pytest.mark.verify)


@pytest.fixture(scope="module")
def described(http: Any) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in http.get("/v1/workloads").raise_for_status().json()["data"]}


@pytest.fixture(scope="module")
def submitted(
    request: pytest.FixtureRequest, api: Any, described: dict[str, Any]
) -> Iterator[dict[tuple[str, str, int], dict[str, Any]]]:
    """The jobs of the selected tests by (workload, framework, replicas), as far as a worker can run them."""
    devices = api.http.get("/v1/devices").raise_for_status().json()["data"]
    installed = {name for device in devices for name in device["frameworks"]}
    calls = [item.callspec.params.get("test") for item in request.session.items if hasattr(item, "callspec")]
    able = [test for test in TESTS if test in calls and test[1] in described[test[0]]["frameworks"]]
    jobs = {test: api.submit(asked(*test)) for test in able if test[1] in installed}
    yield jobs
    for job in jobs.values():
        api.cancel(job)
    for job in jobs.values():
        finished(api, job)


def asked(workload: str, framework: str, replicas: int) -> dict[str, Any]:
    params = ROWS[workload].params_on(framework)
    if replicas > 1:  # numbers of training and test samples that aren't multiples of the replicas
        params = params | {"train_samples": 260, "test_samples": 125}
    spec = {"workload": workload, "params": params, "measure": MEASURE}
    return spec | {"framework": framework, "replicas": replicas}


def finished(api: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Wait until the job is done; others may be queued before it."""
    while not (now := api.job(job, params={"wait": 60}))["done"]:
        pass
    return now


@pytest.fixture
def result(api: Any, submitted: dict[Any, Any], test: tuple[str, str, int]) -> dict[str, Any]:
    """The result of the test's job, once it has succeeded."""
    if test not in submitted:
        pytest.skip(f"no worker here can run {test[0]} on {test[1]}")
    job = finished(api, submitted[test])
    assert job["status"] == "succeeded", job["failure"]
    found: dict[str, Any] = api.http.get(job["urls"]["result"]).raise_for_status().json()
    return found


def test_every_workload_has_a_row_here(described: dict[str, Any]) -> None:
    assert ROWS.keys() == described.keys()


@pytest.mark.parametrize("test", [marked(test) for test in TESTS], ids=lambda test: "-".join(map(str, test)))
def test_a_workload_runs_to_its_result(
    result: dict[str, Any], submitted: dict[Any, Any], described: dict[str, Any], test: tuple[str, str, int]
) -> None:
    (workload, framework, replicas), row, job = test, ROWS[test[0]], submitted[test]
    assert job["queue"]["name"] == ("any" if framework == "tensorflow" else f"any+{framework}")
    assert job["spec"]["framework"] == result["environment"]["framework"] == framework
    named = {metric["name"]: metric for metric in result["metrics"]}
    for metric in described[workload]["metrics"]:
        value = named[metric["name"]]["value"]
        assert value > 0 or (value == 0 and metric["unit"] == "1"), metric  # a fraction, such as an accuracy
    assert result["details"].keys() >= row.details
    assert {artifact["name"] for artifact in result["artifacts"]} >= row.artifacts
    assert {raised["code"] for raised in result["warnings"]} >= row.warnings
    assert result["memory"]["host_peak_bytes"] > 0
    published = described[workload]["references"]
    learnt = {
        "accuracy",
        "train_accuracy",
        "wrong",
        "recognised_probability",
    }  # learned from real data, so not comparable with ours
    assert result["reference"] == [
        figure for figure in published if row.kind in (None, "real") or figure["metric"] not in learnt
    ]
    trained = described[workload]["trains"] and job["spec"]["params"].get("mode") != "inference"
    assert (result["training"] is not None) == trained
    if result["training"] is not None:
        assert result["training"]["data"]["kind"] == row.kind
        assert len(result["training"]["epochs"]) == row.params["epochs"]
    if row.details >= LEARNT:
        batch_size = row.params["batch_size"]
        assert (result["details"]["batch_size"], result["details"]["replicas"]) == (batch_size, replicas)
        assert result["details"]["batch_size_per_replica"] == batch_size // replicas
