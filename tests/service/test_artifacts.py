"""Files of a job over HTTP: who may store them, what is given out, when they go."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from dyno.devices.device import Device
from dyno.job import Failure, FailureClass, WorkerRef
from dyno.result import Artifact
from dyno.settings import Settings
from dyno.store.artifacts import LOOK_AGAIN_S, drop_orphans
from dyno.store.connect import sync_client
from dyno.store.keys import Keys
from dyno.store.leases import Claim, Leases
from dyno.store.queues import queues_served
from tests.results import a_result
from tests.waiting import eventually

MAX_BYTES = 1 << 20
HTML = b"<script>alert(1)</script>"


@pytest.fixture(scope="module")
def settings(redis_url: str, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
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
    """What a worker does with a job, without running it."""

    def __init__(self, http: httpx.Client, settings: Settings, device: Device) -> None:
        self._http, self._device = http, device
        self._leases = Leases(sync_client(settings), settings)
        self._claims: list[Claim] = []

    def claim(self, **fields: Any) -> Claim:
        body = {"workload": "mnist_cnn", "device": "cpu", "expires_in_s": 60} | fields
        submitted = self._http.post("/v1/jobs", json=body)
        assert submitted.status_code == 202, submitted.text
        ref = WorkerRef(id="w", device=self._device.id, host=self._device.host)
        claim = self._leases.claim(self._device.full_id, queues_served(self._device), ref)
        assert claim is not None
        self._claims.append(claim)
        return claim

    def end(self) -> None:
        """Leave no lease and no waiting job to the next test."""
        for claim in self._claims:
            self._leases.finish(claim, "stop")
            self._http.post(f"/v1/jobs/{claim.job_id}/cancel")

    def put(self, claim: Claim, name: str, content: bytes) -> httpx.Response:
        headers = {"Authorization": f"Bearer {claim.token}"}
        return self._http.put(f"/v1/jobs/{claim.job_id}/artifacts/{name}", content=content, headers=headers)

    def succeed(self, claim: Claim, artifacts: list[Artifact]) -> None:
        assert self._leases.finish(claim, "succeed", result=a_result(claim.job_id, artifacts))

    def fail(self, claim: Claim) -> None:
        failure = Failure(failure_class=FailureClass.BENCHMARK, reason="why", message="why")
        assert self._leases.finish(claim, "fail", failure=failure)

    def hand_back(self, claim: Claim) -> None:
        assert self._leases.requeue(claim, reason="worker_shutdown", counts_attempt=False)


@pytest.fixture
def worker(http: httpx.Client, settings: Settings, offered: Device) -> Iterator[Worker]:
    worker = Worker(http, settings, offered)
    yield worker
    worker.end()


@pytest.fixture
def left(worker: Worker) -> Callable[..., str]:
    """A job that succeeded and left files, given as name and content; its id."""

    def job(**contents: bytes) -> str:
        claim = worker.claim()
        kept = [worker.put(claim, name.replace("__", "."), content) for name, content in contents.items()]
        worker.succeed(claim, [Artifact.model_validate(answer.raise_for_status().json()) for answer in kept])
        return claim.job_id

    return job


def test_what_a_worker_stores_is_given_out_once_its_job_has_succeeded(http: httpx.Client, worker: Worker) -> None:
    claim = worker.claim()
    kept = worker.put(claim, "a.txt", b"content")
    url = f"/v1/jobs/{claim.job_id}/artifacts/a.txt"
    assert kept.json() == {
        "name": "a.txt",
        "bytes": 7,
        "sha256": hashlib.sha256(b"content").hexdigest(),
        "url": url,
    }
    assert http.get(url).json()["code"] == "result-not-ready"
    worker.succeed(claim, [Artifact.model_validate(kept.json())])
    assert http.get(url).content == b"content"


def test_what_is_in_no_result_is_not_given_out(http: httpx.Client, worker: Worker) -> None:
    claim = worker.claim()
    worker.put(claim, "stray.txt", b"content")
    worker.succeed(claim, [])
    assert http.get(f"/v1/jobs/{claim.job_id}/artifacts").json() == {"data": []}
    assert http.get(f"/v1/jobs/{claim.job_id}/artifacts/stray.txt").json()["code"] == "artifact-not-found"


def test_a_page_that_calls_itself_a_picture_stays_harmless(http: httpx.Client, left: Callable[..., str]) -> None:
    answer = http.get(f"/v1/jobs/{left(gallery__png=HTML)}/artifacts/gallery.png")
    assert answer.content == HTML
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_file_that_the_caller_has_is_not_sent_again(http: httpx.Client, left: Callable[..., str]) -> None:
    url = f"/v1/jobs/{left(a__txt=b'content')}/artifacts/a.txt"
    again = http.get(url, headers={"If-None-Match": http.get(url).headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("header", [None, "", "Basic x", "Bearer"])
def test_without_a_token_nothing_is_stored(http: httpx.Client, worker: Worker, header: str | None) -> None:
    claim = worker.claim()
    headers = {} if header is None else {"Authorization": header}
    answer = http.put(f"/v1/jobs/{claim.job_id}/artifacts/a.txt", content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "not-authorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_attempt_that_lost_its_job_stores_nothing(worker: Worker, settings: Settings) -> None:
    lost = worker.claim()
    worker.hand_back(lost)
    assert worker.put(lost, "a.txt", b"late").json()["code"] == "stale-token"
    assert not (settings.artifact_dir / lost.job_id).exists()


def test_an_attempt_that_loses_its_job_while_it_sends_stores_nothing(worker: Worker, settings: Settings) -> None:
    claim = worker.claim()

    def content() -> Any:
        yield b"first half"
        worker.fail(claim)
        yield b"second half"

    assert worker.put(claim, "a.txt", content()).json()["code"] == "stale-token"
    assert list((settings.artifact_dir / claim.job_id).iterdir()) == []


def test_a_file_that_is_too_large_is_refused_whether_it_says_so_or_not(worker: Worker, settings: Settings) -> None:
    claim = worker.claim()
    whole = bytes(MAX_BYTES + 1)
    for content in (whole, iter([whole[:MAX_BYTES], b"x"])):
        answer = worker.put(claim, "a.txt", content)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["code"]) == (413, "artifact-too-large")
    assert list((settings.artifact_dir / claim.job_id).iterdir()) == []
    assert worker.put(claim, "a.txt", whole[:MAX_BYTES]).status_code == 200


@pytest.mark.parametrize("name", ["..%2fa", ".a", "%00", "a" * 129, "a%20b"])
def test_a_name_that_is_none_is_not_stored(worker: Worker, settings: Settings, name: str) -> None:
    claim = worker.claim()
    assert worker.put(claim, name, b"x").status_code == 404
    assert not (settings.artifact_dir / claim.job_id).exists()


def test_a_store_that_can_not_be_written_says_so(worker: Worker, settings: Settings) -> None:
    claim = worker.claim()
    shutil.rmtree(settings.artifact_dir, ignore_errors=True)
    settings.artifact_dir.touch()
    try:
        answer = worker.put(claim, "a.txt", b"x")
    finally:
        settings.artifact_dir.unlink()
    assert (answer.status_code, answer.json()["code"]) == (503, "artifact-store-unavailable")
    assert str(settings.artifact_dir) in answer.json()["detail"]


def test_a_file_that_is_gone_from_the_store_is_a_404(
    http: httpx.Client, left: Callable[..., str], settings: Settings
) -> None:
    job = left(a__txt=b"content")
    shutil.rmtree(settings.artifact_dir / job)
    assert http.get(f"/v1/jobs/{job}/artifacts/a.txt").json()["code"] == "artifact-not-found"


def test_files_go_with_the_record_of_their_job(
    client: redis.Redis, http: httpx.Client, left: Callable[..., str], settings: Settings, namespace: str
) -> None:
    gone, kept = left(a__txt=b"content"), left(a__txt=b"content")
    keys = Keys(namespace)
    client.delete(keys.job(gone), keys.result(gone))  # as Redis does it when it expires
    client.zadd(keys.artifacts, {gone: 0, kept: 0})
    eventually(lambda: not (settings.artifact_dir / gone).exists(), what="the upkeep of the service has deleted it")
    assert http.get(f"/v1/jobs/{kept}/artifacts/a.txt").content == b"content"
    assert client.zscore(keys.artifacts, gone) is None


def test_files_that_can_not_be_deleted_now_stop_no_others_and_are_tried_again(
    client: redis.Redis, redis_url: str
) -> None:
    settings = Settings(redis_url=redis_url, namespace="test-stuck")
    keys, tried = Keys(settings.namespace), list[str]()

    def drop(job_id: str) -> None:
        tried.append(job_id)
        if job_id == "stuck":
            raise OSError

    client.zadd(keys.artifacts, {"stuck": 0, "other": 1})
    with pytest.raises(OSError):  # noqa: PT011
        drop_orphans(client, settings, drop)
    assert drop_orphans(client, settings, drop) == ["other"]
    assert tried == ["stuck", "other"]
    seconds, _ = client.time()
    again_s = float(client.zscore(keys.artifacts, "stuck") or 0) / 1000
    assert seconds < again_s <= seconds + LOOK_AGAIN_S + 1


def test_weights_of_a_job_that_failed_are_refused_with_its_status(http: httpx.Client, worker: Worker) -> None:
    claim = worker.claim()
    worker.fail(claim)
    weights = {"job": claim.job_id, "name": "model.weights.h5"}
    refused = http.post("/v1/jobs", json={"workload": "mnist_cnn", "params": {"weights": weights}})
    [error] = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/params/weights/job", "not-succeeded")
    assert "failed" in error["detail"]


def test_weights_that_are_there_are_accepted(http: httpx.Client, left: Callable[..., str]) -> None:
    weights = {"job": left(model__keras=b"not opened before it runs"), "name": "model.keras"}
    body = {"workload": "mnist_cnn", "params": {"weights": weights}}
    assert http.post("/v1/jobs", json=body, params={"validate_only": True}).status_code == 200
