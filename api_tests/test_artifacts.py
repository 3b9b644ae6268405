"""Files of jobs: listed, downloaded, and used by other jobs."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.cores import THERE, two_cores

WEIGHTS = "model.weights.h5"
IMAGE = 3  # index of the test image to recognize
TRAINING = {
    "workload": "mnist_cnn",
    "params": {
        **{"epochs": 2, "batch_size": 32, "train_samples": 512, "test_samples": 64, "data": "sample"},
        **{"jit_compile": False, "recognise": IMAGE},
    },
    "measure": {"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 1},
}


def starting_from(job, name=WEIGHTS):
    return TRAINING | {"params": TRAINING["params"] | {"weights": {"job": job, "name": name}}}


def result(api, job):
    ended = api.finished(job)
    assert ended["status"] == "succeeded", ended["failure"]
    return api.http.get(ended["urls"]["result"]).json()


@pytest.fixture(scope="module")
def trained(api):
    """The result of a job that stored its weights."""
    return result(api, api.submit(TRAINING))


@pytest.fixture
def weights(trained):
    [found] = [artifact for artifact in trained["artifacts"] if artifact["name"] == WEIGHTS]
    return dict(found)


def test_files_of_a_job_are_listed_and_download_unchanged(api, trained, weights):
    listed = api.http.get(f"/v1/jobs/{trained['job']}/artifacts").json()
    assert listed == {"data": trained["artifacts"]}
    file = api.http.get(weights["url"])
    assert file.status_code == 200
    assert int(file.headers["content-length"]) == len(file.content) == weights["bytes"] > 0
    assert hashlib.sha256(file.content).hexdigest() == weights["sha256"]
    assert file.headers["etag"] == f'"{weights["sha256"]}"'
    assert file.headers["content-disposition"] == f'attachment; filename="{WEIGHTS}"'
    assert file.headers["x-content-type-options"] == "nosniff"
    told = api.http.head(weights["url"])
    assert (told.status_code, told.content) == (200, b"")
    same = ("etag", "content-length", "content-type")
    assert [told.headers[name] for name in same] == [file.headers[name] for name in same]


@pytest.mark.parametrize("framework", ["tensorflow", pytest.param("jax", marks=pytest.mark.verify)])
def test_a_job_that_starts_from_weights_starts_where_they_ended(api, trained, framework):
    """On another framework, too: weights belong to the model, not to the framework.

    The learning rate is too small to change any weight."""
    if framework not in offered(api):
        pytest.skip(f"no worker here has {framework}")
    asked = starting_from(trained["job"]) | {"framework": framework}
    asked["params"] |= {"learning_rate": 1e-30, "epochs": 1}
    again = result(api, api.submit(asked))["training"]
    assert again["test"]["loss"] == pytest.approx(trained["training"]["test"]["loss"], rel=1e-3)


@two_cores
@pytest.mark.verify
def test_another_worker_reaches_the_same_accuracy_from_the_weights(api, house, trained):
    params = {"model": "mnist_cnn", "engine": "keras", "recognise": IMAGE}
    params |= {name: TRAINING["params"][name] for name in ("data", "train_samples", "test_samples")}
    another = "jax" if "jax" in offered(api) else "tensorflow"
    asked = starting_from(trained["job"]) | {"workload": "quantized_inference", "framework": another}
    asked |= {"params": params | {"weights": asked["params"]["weights"]}, "device": THERE}
    with house.another_worker():
        found = result(api, api.submit(asked))
    assert found["device"]["id"] == THERE
    of = {metric["name"]: metric["value"] for metric in found["metrics"]}
    one = 1.01 / TRAINING["params"]["test_samples"]
    assert of["accuracy_float32"] == pytest.approx(trained["training"]["accuracy"], abs=one)  # one image may be a tie
    there, here = found["details"]["recognised"], trained["details"]["recognised"]
    assert there["predicted_name"] == here["predicted_name"]
    assert there["probabilities"] == pytest.approx(here["probabilities"], abs=1e-4)


def offered(api):
    return {name for device in api.http.get("/v1/devices").json()["data"] for name in device["frameworks"]}


def test_missing_weights_are_named_before_queueing(api, trained):
    queued = api.submit(TRAINING | {"device": "tpu", "queue_if_absent": True})
    try:
        for job, name, at in (
            ("job_01J00000000000000000000000", WEIGHTS, "job"),
            ("nonsense", WEIGHTS, "job"),
            (queued["id"], WEIGHTS, "job"),
            (trained["job"], "other.weights.h5", "name"),
            (trained["job"], "training.png", "name"),
            (trained["job"], "../result.keras", "name"),
        ):
            for query in ({}, {"validate_only": "true"}):
                refused = api.http.post("/v1/jobs", json=starting_from(job, name), params=query)
                assert refused.status_code == 422, refused.text
                assert [e["pointer"] for e in refused.json()["errors"]] == [f"/params/weights/{at}"]
    finally:
        api.cancel(queued)


@pytest.mark.parametrize(
    "name",
    ["nothing.png", "..%2fresult", "..%5cresult", "%2fetc%2fpasswd", "%00", "a%00b", "a" * 5000, ".hidden", "%ff%fe"],
)
def test_an_invalid_name_is_not_found(api, trained, name):
    answer = api.http.get(f"/v1/jobs/{trained['job']}/artifacts/{name}")
    assert answer.status_code == 404
    assert answer.json()["code"] in ("artifact-not-found", "not-found")


@pytest.fixture
def unwritable(house):
    """A file in place of the store's folder, which also stops the superuser."""
    folder = Path(house.env["DYNO_ARTIFACT_DIR"])
    aside = folder.with_name("aside")
    folder.mkdir(exist_ok=True)
    folder.rename(aside)
    folder.touch()
    yield
    folder.unlink()
    shutil.move(aside, folder)


def test_an_unwritable_store_fails_the_job_at_once_and_the_next_job_runs(api, unwritable, tiny):
    ended = api.finished(api.submit(TRAINING))
    assert (ended["status"], ended["status_reason"]) == ("failed", "artifact_store_unavailable")
    assert ended["failure"]["class"] == "infrastructure"
    assert "artifact store" in ended["failure"]["message"]
    ready = api.http.get("/readyz")
    assert ready.status_code == 503
    assert "artifact store" in ready.json()["detail"]
    assert api.finished(api.submit(tiny))["status"] == "succeeded"
