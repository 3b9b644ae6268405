"""Files are deleted at their job's end unless its result lists them, else with its record; never while it runs."""

import os
import time
from pathlib import Path

import pytest

from dyno.artifact_store import ABANDONED_S, FolderStore
from dyno.models.result import Artifact
from dyno.settings import Settings
from dyno.store.artifacts import LOOK_AGAIN_S, SETTLED_S, tidy_files
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script
from tests.service.artifacts.conftest import until_tidied
from tests.waiting import eventually


def later(client, namespace, job, by_s):
    """Act as if `by_s` had passed since the job's end, and a check of its files were due."""
    keys = Keys(namespace)
    finished_s = float(client.hget(keys.job(job), "finished_at") or 0)
    client.hset(keys.job(job), "finished_at", finished_s - by_s)
    client.zadd(keys.artifacts, {job: 0})


def due_in_s(client, namespace, job):
    score = client.zscore(Keys(namespace).artifacts, job)
    return float(score) / 1000 - float(client.time()[0])


def names(settings, job):
    """Names of a job's files, without the leading digest."""
    folder = settings.artifact_dir / job
    return sorted(path.name.partition("-")[2] for path in folder.iterdir()) if folder.exists() else []


def test_files_are_deleted_with_the_record_of_their_job(client, http, left, settings, namespace):
    gone, kept = left(a__txt=b"content"), left(a__txt=b"content")
    keys = Keys(namespace)
    client.delete(keys.job(gone), keys.result(gone))  # as Redis does on expiry
    client.zadd(keys.artifacts, {kept: 0})
    until_tidied(client, namespace, gone, lambda: not (settings.artifact_dir / gone).exists())
    assert http.get(f"/v1/jobs/{kept}/artifacts/a.txt").content == b"content"
    eventually(lambda: client.zscore(keys.artifacts, gone) is None)


def test_files_of_a_failed_job_are_deleted_after_it_has_settled(client, worker, settings, namespace):
    claim = worker.claim(expires_in_s=86400)
    worker.put(claim, "a.txt", b"content")
    worker.fail(claim)
    later(client, namespace, claim.job_id, SETTLED_S / 2)
    settles_in_s = SETTLED_S / 2 + 1
    until_tidied(client, namespace, claim.job_id, lambda: 0 < due_in_s(client, namespace, claim.job_id) <= settles_in_s)
    assert names(settings, claim.job_id) == ["a.txt"]
    later(client, namespace, claim.job_id, SETTLED_S)
    until_tidied(client, namespace, claim.job_id, lambda: not (settings.artifact_dir / claim.job_id).exists())
    eventually(lambda: due_in_s(client, namespace, claim.job_id) > LOOK_AGAIN_S, what="next when the record ends")


def test_a_succeeded_job_keeps_only_the_files_of_its_result(client, http, worker, settings, namespace):
    claim = worker.claim(expires_in_s=86400)
    worker.put(claim, "probe", b"tried before the first run")
    kept = Artifact.model_validate(worker.put(claim, "a.txt", b"content").json())
    worker.succeed(claim, [kept])
    later(client, namespace, claim.job_id, SETTLED_S + 1)
    until_tidied(client, namespace, claim.job_id, lambda: names(settings, claim.job_id) == ["a.txt"])
    assert http.get(f"/v1/jobs/{claim.job_id}/artifacts/a.txt").content == b"content"


def test_a_running_job_keeps_its_files_but_not_remains_of_a_killed_service(client, worker, settings, namespace):
    claim = worker.claim()
    worker.put(claim, "a.txt", b"content")
    folder = settings.artifact_dir / claim.job_id
    dead, live = folder / ".dead", folder / ".live"
    dead.touch()
    live.touch()
    os.utime(dead, (time.time(), time.time() - ABANDONED_S - 60))
    until_tidied(client, namespace, claim.job_id, lambda: not dead.exists())
    assert live.exists()
    live.unlink()
    assert names(settings, claim.job_id) == ["a.txt"]


def test_an_unreadable_result_deletes_no_file(client, left, settings, namespace):
    job = left(a__txt=b"content")
    client.set(Keys(namespace).result(job), '{"of": "a newer version"}', keepttl=True)
    later(client, namespace, job, SETTLED_S + 1)
    eventually(lambda: due_in_s(client, namespace, job) > 0)
    assert names(settings, job) == ["a.txt"]


class Stuck(FolderStore):
    """A store that can't delete the files of one job."""

    def __init__(self):
        super().__init__(Path("/nonexistent"))
        self.tried = []

    def drop(self, job_id):
        self.tried.append(job_id)
        if job_id == "stuck":
            raise OSError

    def sweep(self, job_id, listed):
        raise AssertionError("no job of these has a record")


def test_failed_deletions_are_retried_and_block_no_others(client, redis_url):
    settings, files = Settings(redis_url=redis_url, namespace="test-stuck"), Stuck()
    client.zadd(Keys(settings.namespace).artifacts, {"stuck": 0, "other": 1})
    with pytest.raises(OSError):  # noqa: PT011
        tidy_files(client, settings, files)
    assert tidy_files(client, settings, files) == ["other"]
    assert files.tried == ["stuck", "other"]
    assert 0 < due_in_s(client, settings.namespace, "stuck") <= LOOK_AGAIN_S + 1


class Deleting(FolderStore):
    """A store in which a job and another one are deleted while the files of the first are checked."""

    def __init__(self, delete):
        super().__init__(Path("/nonexistent"))
        self.delete, self.dropped = delete, list[str]()

    def drop(self, job_id):
        self.dropped.append(job_id)

    def sweep(self, job_id, listed):
        for each in ("looked at", "next"):
            self.delete(each)
        return True


def test_files_of_a_job_deleted_meanwhile_are_due_at_the_time_of_its_deletion(client, redis_url):
    settings = Settings(redis_url=redis_url, namespace="test-deleting")
    keys, now_s = Keys(settings.namespace), client.time()[0]
    script = client.register_script(SCRIPT_SOURCES[Script.DELETE])
    for job, finished_s in (("looked at", now_s - 2 * SETTLED_S), ("next", now_s)):
        client.hset(keys.job(job), mapping={"status": "failed", "workload": "matmul", "finished_at": finished_s})
        client.pexpire(keys.job(job), 10 * 86400 * 1000)
    client.zadd(keys.artifacts, {"looked at": 0, "next": 1})
    files = Deleting(
        lambda job: script(keys=[keys.job(job), keys.artifacts], args=[keys.namespace, job, SETTLED_S * 1000])
    )
    assert tidy_files(client, settings, files) == files.dropped == []
    assert due_in_s(client, settings.namespace, "looked at") <= LOOK_AGAIN_S + 1
    assert 0 < due_in_s(client, settings.namespace, "next") <= SETTLED_S + 1
