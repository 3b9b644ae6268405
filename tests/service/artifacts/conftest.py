"""Fixtures: a service with an artifact folder, and a worker that stores files without running a job."""

import pytest

from dyno.models.job import Failure, FailureClass
from dyno.models.result import Artifact
from dyno.settings import Settings
from dyno.store.leases import Leases
from dyno.store.redis import Keys, sync_client
from tests.results import a_result
from tests.service.workers import claim_of
from tests.waiting import eventually

MAX_BYTES = 1 << 20


@pytest.fixture(scope="module")
def settings(redis_url, namespace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "artifacts"
    return Settings(
        redis_url=redis_url,
        namespace=namespace,
        device_ttl_s=600,
        reap_every_s=0.3,
        artifact_dir=folder,
        artifact_max_bytes=MAX_BYTES,
    )


class Worker:
    """A worker's actions on a job, without running it."""

    def __init__(self, http, settings, device):
        self._http, self._device = http, device
        self._leases = Leases(sync_client(settings), settings)
        self._claims = []

    def claim(self, **fields):
        body = {"workload": "mnist_cnn", "device": "cpu", "expires_in_s": 60} | fields
        submitted = self._http.post("/v1/jobs", json=body)
        assert submitted.status_code == 202, submitted.text
        self._claims.append(claim := claim_of(self._leases, self._device))
        return claim

    def end(self):
        """Leave no lease and no queued job for the next test."""
        for claim in self._claims:
            self._leases.finish(claim, "stop")
            self._http.post(f"/v1/jobs/{claim.job_id}/cancel")

    def put(self, claim, name, content):
        headers = {"Authorization": f"Bearer {claim.token}"}
        return self._http.put(f"/v1/jobs/{claim.job_id}/artifacts/{name}", content=content, headers=headers)

    def succeed(self, claim, artifacts):
        assert self._leases.finish(claim, "succeed", result=a_result(claim.job_id, artifacts))

    def fail(self, claim):
        failure = Failure(failure_class=FailureClass.BENCHMARK, reason="why", message="why")
        assert self._leases.finish(claim, "fail", failure=failure)

    def hand_back(self, claim):
        assert self._leases.requeue(claim, reason="worker_shutdown", counts_attempt=False)


@pytest.fixture
def worker(http, settings, offered):
    worker = Worker(http, settings, offered)
    yield worker
    worker.end()


@pytest.fixture
def left(worker):
    """Make a succeeded job with files, given as name and content; returns its id."""

    def job(**contents):
        claim = worker.claim()
        kept = [worker.put(claim, name.replace("__", "."), content) for name, content in contents.items()]
        worker.succeed(claim, [Artifact.model_validate(answer.raise_for_status().json()) for answer in kept])
        return claim.job_id

    return job


def until_tidied(client, namespace, job, holds):
    """Wait until `holds`, and let a check be due until then: one that was under way may have put off the next."""

    def looked():
        if holds():
            return True
        client.zadd(Keys(namespace).artifacts, {job: 0}, xx=True)
        return False

    eventually(looked, what="the upkeep of the service has checked the files")
