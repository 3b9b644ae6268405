"""Files that can't be stored only cause a warning; the result is kept."""

import os
import socket
import threading
import time
from itertools import count

import pytest

from dyno.artifact_store import shared_store
from dyno.models.job import Status
from dyno.processes import free_port
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from service.app import create_app
from tests.service.conftest import serving
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.test_attempt import DIGITS
from workers import artifact_upload
from workers.artifact_upload import (
    MAX_FILES,
    JobFiles,
    LostArtifact,
    UploadedArtifacts,
    artifact_transport,
)
from workers.heartbeat import Heartbeat


def fill_up(store):
    """Replace the store's folder by a file, which makes writes fail for root, too."""
    store.rename(store.with_name("aside"))
    store.touch()


@pytest.mark.on_tensorflow
@pytest.mark.verify
def test_a_store_that_fails_after_the_training_costs_the_files_and_neither_the_result_nor_a_second_training(
    shared, store, supervisor_of, forking, before_start, tmp_path
):
    before_start(lambda request: fill_up(tmp_path / "shared"))  # the probe was stored there
    job_id = store.submit(tiny(workload="mnist_cnn", params=DIGITS))
    supervisor_of(shared, forking).serve()
    job, result = store.job(job_id), store.result(job_id)
    assert (job.status, job.attempt) == (Status.SUCCEEDED, 1), job.failure
    assert result.artifacts == []
    [raised] = [each for each in result.warnings if each.code == "ARTIFACTS_NOT_STORED"]
    lost = {each["name"]: each for each in raised.evidence["files"]}
    assert lost["model.weights.h5"]["bytes"] > 0
    assert str(tmp_path / "shared") in lost["model.weights.h5"]["why"]
    assert raised.evidence["count"] == len(lost)
    assert "model.keras" in raised.message


@pytest.mark.provokes("ARTIFACTS_NOT_STORED")
def test_a_file_that_is_too_large_is_reported_and_the_others_are_kept(shared, attempt):
    made = attempt(shared.model_copy(update={"artifact_max_bytes": 3}))
    folder = made.files.empty()
    (folder / "a.txt").write_bytes(b"1234")
    (folder / "b.txt").write_bytes(b"123")
    kept = made.files.deliver(0)
    assert [artifact.name for artifact in kept.artifacts] == ["b.txt"]
    assert kept.not_stored == [LostArtifact("a.txt", 4, "it has 4 bytes, the limit is 3")]
    assert [raised.severity for raised in kept.warnings] == ["C"]


def test_files_beyond_the_limit_are_reported(shared, attempt):
    made = attempt(shared)
    folder = made.files.empty()
    for number in range(MAX_FILES + 5):
        (folder / f"{number:03}.txt").touch()
    (folder / "a folder").mkdir()
    kept = made.files.deliver(0)
    assert (len(kept.artifacts), len(kept.not_stored)) == (MAX_FILES, 6)
    [raised] = kept.warnings
    assert raised.evidence["count"] == 6
    assert "and 3 more" in raised.message
    assert [each.why for each in kept.not_stored if each.name == "a folder"] == ["it is not a regular file"]


def test_a_name_that_is_not_utf_8_can_be_reported_in_json(shared, attempt):
    made = attempt(shared)
    (made.files.empty() / os.fsdecode(b"\xff.txt")).touch()
    [raised] = made.files.deliver(0).warnings
    assert r"\udcff.txt" in raised.model_dump_json().replace("\\\\", "\\")


def test_patience_is_for_the_store_and_not_for_each_file(by_api, attempt, caplog):
    made = attempt(by_api.model_copy(update={"artifact_patience_s": 0.7}))
    folder = made.files.empty()
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).touch()
    assert len(made.files.deliver(0).not_stored) == 3
    again = [record.getMessage() for record in caplog.records if "file-not-stored" in record.getMessage()]
    assert again
    assert all("a.txt" in line for line in again), "each file but the first has one try"


def test_a_worker_that_has_to_end_keeps_the_result_and_hands_nothing_back(by_api, attempt):
    made = attempt(by_api)
    folder = made.files.empty()
    for name in ("a.txt", "b.txt"):
        (folder / name).touch()
    made.context.stop.stop(time.monotonic() + 0.3)
    kept = made.files.deliver(0)
    assert [each.name for each in kept.not_stored] == ["a.txt", "b.txt"]
    assert all("the worker shut down" in each.why for each in kept.not_stored)


def test_while_redis_is_away_no_file_is_given_up(by_api, attempt, background):
    """The result couldn't be written either, so waiting costs nothing."""
    made = attempt(by_api)
    away = by_api.model_copy(update={"artifact_patience_s": 0.7, "redis_url": f"redis://127.0.0.1:{free_port()}/0"})
    leases = Leases(sync_client(away), away)
    heartbeat = Heartbeat(made.claim, leases, away.heartbeat_s, made.context.clock, made.context.stop)
    with JobFiles(made.claim, heartbeat, made.leases, away) as files:
        (files.empty() / "a.txt").touch()
        delivering = background.submit(files.deliver, 0)
        eventually(lambda: not heartbeat.heard)
        with pytest.raises(TimeoutError):
            delivering.result(1.5)  # twice its patience
        with serving(create_app(by_api), port=int(by_api.api_url.rpartition(":")[2])):
            assert [artifact.name for artifact in delivering.result(20).artifacts] == ["a.txt"]
            made.leases.finish(made.claim, "stop")


def test_an_upload_to_a_hanging_store_is_abandoned(by_api, attempt, monkeypatch):
    monkeypatch.setattr(artifact_upload, "_LEAST_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        made = attempt(by_api.model_copy(update={"artifact_patience_s": 0.1, "api_url": api_url}))
        folder = made.files.empty()
        for name in ("a.txt", "b.txt"):
            (folder / name).touch()
        kept = made.files.deliver(0)
    assert [(each.name, each.why.partition(":")[0]) for each in kept.not_stored] == [
        ("a.txt", "the artifact store doesn't respond"),
        ("b.txt", "the artifact store doesn't respond"),
    ]


class HangingOnce:
    """An upload whose first `put` continues only when the second has begun, and then takes the file first."""

    def __init__(self, real):
        self._real, self._puts = real, count()
        self._second, self._taken = threading.Event(), threading.Event()
        self.get = real.get

    def put(self, claim, name, sha256, source):
        if next(self._puts) == 0:
            assert self._second.wait(20)
            self._real.put(claim, name, sha256, source)
            self._taken.set()
            return
        self._second.set()
        assert self._taken.wait(20)
        self._real.put(claim, name, sha256, source)


def test_an_abandoned_try_does_not_take_the_file_of_the_next_one(shared, attempt, monkeypatch):
    monkeypatch.setattr(artifact_upload, "_LEAST_S", 0.5)
    made = attempt(shared.model_copy(update={"artifact_patience_s": 0.1}))
    hanging = HangingOnce(artifact_transport(made.context.settings, made.leases))
    monkeypatch.setattr(artifact_upload, "artifact_transport", lambda *_: hanging)
    away = shared.model_copy(update={"redis_url": f"redis://127.0.0.1:{free_port()}/0"})
    leases = Leases(sync_client(away), away)
    heartbeat = Heartbeat(made.claim, leases, shared.heartbeat_s, made.context.clock, made.context.stop)
    heartbeat.beat(None, 0)
    with JobFiles(made.claim, heartbeat, made.leases, made.context.settings) as files:
        (files.empty() / "a.txt").write_text("the weights")
        kept = files.deliver(0)
    assert [artifact.name for artifact in kept.artifacts] == ["a.txt"], kept.not_stored
    store = shared_store(shared)
    with store.open(made.job_id, kept.artifacts[0]) as stored:
        assert stored.read() == b"the weights"


@pytest.mark.silent("ARTIFACTS_NOT_STORED")
def test_without_files_there_is_no_warning():
    assert UploadedArtifacts().warnings == []
