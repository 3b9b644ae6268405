"""Weights from another job: fetched and verified before the first run, or the job ends with the reason."""

import pytest

from dyno.artifact_store import stored_name
from tests.results import a_result
from tests.workers.files.conftest import reason, training


@pytest.fixture
def trained(shared, attempt):
    """Creates a job with a weights file of this content and name. Returns its id and the artifact in its result."""

    def job(content, name="model.weights.h5"):
        made = attempt(shared)
        (made.files.empty() / name).write_bytes(content)
        [artifact] = made.files.deliver(0).artifacts
        made.leases.finish(made.claim, "succeed", result=a_result(made.job_id, [artifact]))
        return made.job_id, artifact

    return job


def test_weights_of_another_job_are_fetched_under_their_name(shared, attempt, trained):
    job_id, artifact = trained(b"numbers")
    made = attempt(shared, training(weights={"job": job_id, "name": artifact.name}))
    made.files.prepare(made.params)
    assert made.files.weights.name == artifact.name
    assert made.files.weights.read_bytes() == b"numbers"


def test_weights_that_were_changed_in_the_store_are_not_used(shared, attempt, trained, tmp_path):
    job_id, artifact = trained(b"numbers")
    (tmp_path / "shared" / job_id / stored_name(artifact.name, artifact.sha256)).write_bytes(b"Numbers")
    made = attempt(shared, training(weights={"job": job_id, "name": artifact.name}))
    assert reason(lambda: made.files.prepare(made.params)) == ("infrastructure", "weights_unavailable")


def test_weights_of_an_expired_job_fail_the_job_permanently(shared, attempt):
    gone = {"job": "job_01J00000000000000000000000", "name": "model.weights.h5"}
    made = attempt(shared, training(weights=gone))
    assert reason(lambda: made.files.prepare(made.params)) == ("unsupported", "weights_unavailable")


def test_an_invalid_archive_is_not_given_to_a_runner(shared, attempt, trained):
    job_id, artifact = trained(b"no zip", "model.keras")
    made = attempt(shared, training(weights={"job": job_id, "name": artifact.name}))
    assert reason(lambda: made.files.prepare(made.params)) == ("unsupported", "weights_unavailable")
