"""Who may store files, which, and when they go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from dyno.settings import Settings
from dyno.store.artifacts import LOOK_AGAIN_S, drop_orphans
from dyno.store.keys import Keys
from tests.service.artifacts.conftest import MAX_BYTES, Worker
from tests.waiting import eventually


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
        eventually(lambda: _files(settings))  # so it was let in
        worker.fail(claim)
        yield b"second half"

    assert worker.put(claim, "a.txt", content()).json()["code"] == "stale-token"
    assert _files(settings) == []


def _files(settings: Settings) -> list[Path]:
    return [path for path in settings.artifact_dir.rglob("*") if path.is_file()]


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
