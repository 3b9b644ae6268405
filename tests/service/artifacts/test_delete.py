"""Files of a deleted job are deleted at once, or when the artifact store is back."""

import pytest

from dyno.artifact_store import FolderStore
from dyno.client import Client, Refused
from dyno.errors import ArtifactStoreUnavailable
from dyno.store.redis import Keys
from tests.service.artifacts.conftest import until_tidied


def test_a_job_is_deleted_with_its_files(http, left, settings):
    gone, kept = left(a__txt=b"content"), left(a__txt=b"content")
    with Client(str(http.base_url)) as dyno:
        dyno.delete(gone)
        with pytest.raises(Refused, match="there is no job"):
            dyno.delete(gone)
    assert http.get(f"/v1/jobs/{gone}/artifacts/a.txt").json()["code"] == "job-not-found"
    assert not (settings.artifact_dir / gone).exists()
    assert http.get(f"/v1/jobs/{kept}/artifacts/a.txt").content == b"content"


def test_a_running_job_keeps_its_files(http, worker, settings):
    claim = worker.claim()
    worker.put(claim, "a.txt", b"content")
    assert http.delete(f"/v1/jobs/{claim.job_id}").json()["code"] == "job-live"
    assert [path.name[-5:] for path in (settings.artifact_dir / claim.job_id).iterdir()] == ["a.txt"]


def test_maintenance_deletes_files_that_could_not_be_deleted(http, left, settings, client, namespace, monkeypatch):
    job = left(a__txt=b"content")
    with monkeypatch.context() as away:
        away.setattr(FolderStore, "drop", lambda self, job_id: _away())
        assert http.delete(f"/v1/jobs/{job}").status_code == 204
    assert (settings.artifact_dir / job).exists()
    index = Keys(namespace).artifacts
    assert client.zscore(index, job) is not None
    until_tidied(client, namespace, job, lambda: client.zscore(index, job) is None)  # as if an hour had passed
    assert not (settings.artifact_dir / job).exists()


def _away():
    raise ArtifactStoreUnavailable("it is away")
