"""Every workload on every framework of a live worker, with params so small that a job takes seconds.

Nearly all of that time is compilation. The jobs of all tests are submitted at once. A workload's file declares its job
and what the result has (`Workload.smoke`).
"""

import pytest

from dyno.bench.registry import registry, validate_params

FRAMEWORKS = ("tensorflow", "jax", "torch")
MEASURE = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.2}
SMOKE = {name: workload.smoke for name, workload in registry().items()}
pytestmark = pytest.mark.timeout(600)  # a test may wait for the jobs of earlier ones
REPLICATED, REPLICAS = "mnist_cnn", 8
ON_A_CPU = {name: smoke for name, smoke in SMOKE.items() if name != "transfer"}
TESTS = [(workload, framework, smoke.replicas) for workload, smoke in ON_A_CPU.items() for framework in FRAMEWORKS]
TESTS += [(REPLICATED, framework, REPLICAS) for framework in FRAMEWORKS if framework != "torch"]  # no replicas on it


# Beside `matmul`: one that trains, and one that isn't timed.
QUICK = ("mnist_cnn", "device_info")


def marked(test):
    """`make test` has `matmul` on every framework, QUICK on the default one and without replicas."""
    quick = test[0] == "matmul" or (test[1:] == ("tensorflow", 1) and test[0] in QUICK)
    return test if quick else pytest.param(test, marks=pytest.mark.verify)


@pytest.fixture(scope="module")
def described(http):
    return {entry["name"]: entry for entry in http.get("/v1/workloads").raise_for_status().json()["data"]}


@pytest.fixture(scope="module")
def submitted(request, api, described):
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


def asked(workload, framework, replicas):
    params = {**SMOKE[workload].params, **(SMOKE[workload].on_jax if framework == "jax" else {})}
    if (workload, replicas) == (
        REPLICATED,
        REPLICAS,
    ):  # numbers of training and test samples that aren't multiples of the replicas
        params |= {"train_samples": 260, "test_samples": 125}
    spec = {"workload": workload, "params": params, "measure": MEASURE}
    return spec | {"framework": framework, "replicas": replicas}


def finished(api, job):
    """Wait until the job is done; others may be queued before it."""
    while not (now := api.job(job, params={"wait": 60}))["done"]:
        pass
    return now


@pytest.fixture
def result(api, submitted, test):
    """The result of the test's job, once it has succeeded."""
    if test not in submitted:
        pytest.skip(f"no worker here can run {test[0]} on {test[1]}")
    job = finished(api, submitted[test])
    assert job["status"] == "succeeded", job["failure"]
    return api.http.get(job["urls"]["result"]).raise_for_status().json()


def test_every_workload_is_served_and_declares_a_small_job(described):
    assert described.keys() == SMOKE.keys()
    assert all(smoke.params for smoke in SMOKE.values())


@pytest.mark.parametrize("test", [marked(test) for test in TESTS], ids=lambda test: "-".join(map(str, test)))
def test_a_workload_runs_to_its_result(result, submitted, described, test):
    (workload, framework, replicas), smoke, job = test, SMOKE[test[0]], submitted[test]
    assert job["queue"]["name"] == ("any" if framework == "tensorflow" else f"any+{framework}")
    assert job["spec"]["framework"] == result["environment"]["framework"] == framework
    named = {metric["name"]: metric for metric in result["metrics"]}
    params, training = job["spec"]["params"], result["training"]
    trained = described[workload]["trains"] and params.get("mode", "train") == "train"
    declared = registry()[workload]
    for spec in declared.metrics_for(validate_params(declared, params, replicas, framework)):
        metric = named[spec.name]
        if metric["value"] is None and spec.name.startswith("latency_"):
            assert "call" in metric["reason"], metric  # too few in 0.2 s, or none
            continue
        assert metric["value"] > 0 or (metric["value"] == 0 and spec.unit == "1"), metric  # such as an accuracy
    assert result["details"].keys() >= smoke.details
    assert {artifact["name"] for artifact in result["artifacts"]} >= smoke.artifacts
    assert {raised["code"] for raised in result["warnings"]} >= smoke.warnings
    assert result["memory"]["host_peak_bytes"] > 0
    assert (training is not None) == trained
    if training is not None:
        assert training["data"]["kind"] == smoke.params.get("data", training["data"]["kind"])
        assert len(training["epochs"]) == params["epochs"]
    learnt = {"accuracy", "train_accuracy", "wrong", "recognised_probability"}  # comparable on the real data only
    real = training is None or training["data"]["kind"] == "real"
    published = described[workload]["references"]
    assert result["reference"] == [figure for figure in published if real or figure["metric"] not in learnt]
    if "batch_size_per_replica" in smoke.details:
        batch_size = params["batch_size"]
        assert (result["details"]["batch_size"], result["details"]["replicas"]) == (batch_size, replicas)
        assert result["details"]["batch_size_per_replica"] == batch_size // replicas
