"""Which attempts may store which files."""

import shutil

import pytest

from tests.service.artifacts.conftest import MAX_BYTES
from tests.waiting import eventually


@pytest.mark.parametrize("header", [None, "", "Basic x", "Bearer"])
def test_without_a_token_nothing_is_stored(http, worker, header):
    claim = worker.claim()
    headers = {} if header is None else {"Authorization": header}
    answer = http.put(f"/v1/jobs/{claim.job_id}/artifacts/a.txt", content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "not-authorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_attempt_that_lost_its_job_stores_nothing(worker, settings):
    lost = worker.claim()
    worker.hand_back(lost)
    assert worker.put(lost, "a.txt", b"late").json()["code"] == "stale-token"
    assert not (settings.artifact_dir / lost.job_id).exists()


def test_an_attempt_that_loses_its_job_during_an_upload_stores_nothing(worker, settings):
    claim = worker.claim()

    def content():
        yield b"first half"
        eventually(lambda: _files(settings))  # so the upload was accepted
        worker.fail(claim)
        yield b"second half"

    assert worker.put(claim, "a.txt", content()).json()["code"] == "stale-token"
    assert _files(settings) == []


def _files(settings):
    return [path for path in settings.artifact_dir.rglob("*") if path.is_file()]


def test_a_file_that_is_too_large_is_refused_with_or_without_a_length(worker, settings):
    claim = worker.claim()
    whole = bytes(MAX_BYTES + 1)
    for content in (whole, iter([whole[:MAX_BYTES], b"x"])):
        answer = worker.put(claim, "a.txt", content)
        assert (answer.status_code, answer.json()["code"]) == (413, "artifact-too-large")
    assert list((settings.artifact_dir / claim.job_id).iterdir()) == []
    assert worker.put(claim, "a.txt", whole[:MAX_BYTES]).status_code == 200


@pytest.mark.parametrize("name", ["..%2fa", ".a", "%00", "a" * 129, "a%20b"])
def test_an_invalid_name_is_not_stored(worker, settings, name):
    claim = worker.claim()
    assert worker.put(claim, name, b"x").status_code == 404
    assert not (settings.artifact_dir / claim.job_id).exists()


def test_an_unwritable_store_is_reported_and_the_service_is_not_ready(http, worker, settings):
    assert http.get("/readyz").status_code == 200
    claim = worker.claim()
    shutil.rmtree(settings.artifact_dir)
    settings.artifact_dir.touch()
    try:
        answer = worker.put(claim, "a.txt", b"x")
        eventually(lambda: http.get("/readyz").status_code == 503, what="the next check finds it")
        ready = http.get("/readyz")
    finally:
        settings.artifact_dir.unlink()
    assert (answer.status_code, answer.json()["code"]) == (503, "artifact-store-unavailable")
    assert str(settings.artifact_dir) in answer.json()["detail"]
    assert (ready.status_code, ready.json()["code"]) == (503, "not-ready")
    assert str(settings.artifact_dir) in ready.json()["detail"]
    eventually(lambda: http.get("/readyz").status_code == 200)
