"""Weights from another job: fetched and verified before the first run, or the job ends with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dyno.artifact_store import stored_name
from dyno.models.result import Artifact
from dyno.settings import Settings
from tests.results import a_result
from tests.workers.files.conftest import Attempted, reason, training


@pytest.fixture
def trained(shared: Settings, attempt: Callable[..., Attempted]) -> Callable[[bytes, str], tuple[str, Artifact]]:
    """Creates a job with a weights file of this content and name. Returns its id and the artifact in its result."""

    def job(content: bytes, name: str = "model.weights.h5") -> tuple[str, Artifact]:
        made = attempt(shared)
        (made.files.empty() / name).write_bytes(content)
        [artifact] = made.files.deliver(0).artifacts
        made.leases.finish(made.claim, "succeed", result=a_result(made.job_id, [artifact]))
        return made.job_id, artifact

    return job


def test_weights_of_another_job_are_fetched_under_their_name(
    shared: Settings, attempt: Callable[..., Attempted], trained: Callable[..., tuple[str, Artifact]]
) -> None:
    job_id, artifact = trained(b"numbers")
    made = attempt(shared, training(weights={"job": job_id, "name": artifact.name}))
    made.files.prepare(made.params)
    assert made.files.weights is not None
    assert made.files.weights.name == artifact.name
    assert made.files.weights.read_bytes() == b"numbers"


def test_weights_that_were_changed_in_the_store_are_not_used(
    shared: Settings, attempt: Callable[..., Attempted], trained: Callable[..., tuple[str, Artifact]], tmp_path: Path
) -> None:
    job_id, artifact = trained(b"numbers")
    (tmp_path / "shared" / job_id / stored_name(artifact.name, artifact.sha256)).write_bytes(b"Numbers")
    made = attempt(shared, training(weights={"job": job_id, "name": artifact.name}))
    assert reason(lambda: made.files.prepare(made.params)) == ("infrastructure", "weights_unavailable")


def test_weights_of_an_expired_job_fail_the_job_permanently(
    shared: Settings, attempt: Callable[..., Attempted]
) -> None:
    gone = {"job": "job_01J00000000000000000000000", "name": "model.weights.h5"}
    made = attempt(shared, training(weights=gone))
    assert reason(lambda: made.files.prepare(made.params)) == ("unsupported", "weights_unavailable")


def test_an_invalid_archive_is_not_given_to_a_runner(
    shared: Settings, attempt: Callable[..., Attempted], trained: Callable[..., tuple[str, Artifact]]
) -> None:
    job_id, artifact = trained(b"no zip", "model.keras")
    made = attempt(shared, training(weights={"job": job_id, "name": artifact.name}))
    assert reason(lambda: made.files.prepare(made.params)) == ("unsupported", "weights_unavailable")
