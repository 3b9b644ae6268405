"""The files of an attempt: which are stored, and how the attempt ends if the store fails."""

from contextlib import closing

from dyno import folders
from dyno.artifact_store import shared_store
from dyno.models.job import Status
from dyno.store.redis import sync_client
from service.app import create_app
from tests.service.conftest import serving
from tests.waiting import eventually
from tests.workers.conftest import Store, tiny
from tests.workers.files.conftest import Attempted, outcome_of, reason, training
from tests.workers.looking import device_is_free
from workers.artifact_upload import UploadedArtifacts
from workers.outcome import Dropped, Stopped


def test_every_regular_file_with_a_valid_name_is_kept_and_nothing_else(shared, attempt, tmp_path):
    made = attempt(shared)
    folder = made.files.empty()
    (folder / "b.txt").write_bytes(b"later")
    (folder / "a.txt").write_bytes(b"content")
    (folder / ".hidden").touch()
    (folder / "two words").touch()
    (folder / "folder").mkdir()
    (tmp_path / "secret").write_bytes(b"of the host")
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    kept = made.files.deliver(0)
    assert [(artifact.name, artifact.bytes) for artifact in kept.artifacts] == [("a.txt", 7), ("b.txt", 5)]
    assert kept.artifacts[0].url == f"/v1/jobs/{made.job_id}/artifacts/a.txt"
    store = shared_store(shared)
    with store.open(made.job_id, kept.artifacts[0]) as file:
        assert file.read() == b"content"
    assert [each.name for each in kept.not_stored] == [".hidden", "folder", "link.txt", "two words"]
    assert all(each.why for each in kept.not_stored)


def test_a_run_that_is_begun_again_finds_its_folder_empty(shared, attempt):
    made = attempt(shared)
    (made.files.empty() / "of-the-runner-that-died.txt").touch()
    assert list(made.files.empty().iterdir()) == []
    assert made.files.deliver(0) == UploadedArtifacts()


def test_nothing_is_left_on_the_host_afterwards(shared, here):
    made = Attempted(shared, here, training())
    with closing(made.context.launcher), made.files:
        (made.files.empty() / "a.txt").touch()
    assert list((folders.private_folder(shared.run_dir) / "scratch").iterdir()) == []


def blocked(settings, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    return settings.model_copy(update={"artifact_url": f"file://{in_the_way}/store"})


def test_an_unwritable_store_is_detected_before_the_first_run(shared, attempt, tmp_path):
    made = attempt(blocked(shared, tmp_path))
    assert reason(lambda: made.files.prepare(made.params)) == ("infrastructure", "artifact_store_unavailable")


def test_a_job_that_trains_nothing_needs_no_store(shared, attempt, tmp_path):
    made = attempt(blocked(shared, tmp_path), tiny())
    made.files.prepare(made.params)
    made.files.empty()
    assert made.files.deliver(0) == UploadedArtifacts()


def test_a_job_whose_store_is_unavailable_is_tried_twice_and_the_device_is_free_for_the_next(
    shared, supervisor_of, forking, here, tmp_path
):
    settings = blocked(shared, tmp_path)
    store = Store(settings)
    training_id, tiny_id = store.submit(training()), store.submit(tiny())
    supervisor_of(settings, forking).serve()
    job = store.job(training_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, "artifact_store_unavailable", 2)
    assert store.job(tiny_id).status is Status.SUCCEEDED
    with sync_client(settings) as client:
        assert device_is_free(client, settings, here)


def test_files_wait_for_an_api_that_starts_again(by_api, attempt, background):
    made = attempt(by_api)
    (made.files.empty() / "a.txt").write_bytes(b"content")
    delivering = background.submit(made.files.deliver, 0)
    app = create_app(by_api)
    with serving(app, port=int(by_api.api_url.rpartition(":")[2])) as http:
        [kept] = delivering.result(20).artifacts
        made.leases.finish(made.claim, "stop")
        assert http.get(f"/v1/jobs/{made.job_id}").json()["status"] == "canceled"
    assert (kept.name, kept.bytes) == ("a.txt", 7)


def test_an_attempt_that_lost_its_job_is_dropped_with_its_files(by_api, attempt):
    made = attempt(by_api)
    (made.files.empty() / "a.txt").touch()
    made.leases.requeue(made.claim, reason="worker_shutdown", counts_attempt=False)
    assert isinstance(outcome_of(lambda: made.files.deliver(0)), Dropped)


def test_a_cancel_ends_a_delivery_that_waits(by_api, attempt, background):
    made = attempt(by_api)
    (made.files.empty() / "a.txt").touch()
    delivering = background.submit(outcome_of, lambda: made.files.deliver(0))
    Store(by_api).cancel(made.job_id)
    assert isinstance(delivering.result(60), Stopped)


def test_the_lease_is_kept_while_files_are_on_their_way(by_api, attempt, background):
    made = attempt(by_api)
    (made.files.empty() / "a.txt").touch()
    delivering = background.submit(outcome_of, lambda: made.files.deliver(0))
    store = Store(by_api)
    eventually(lambda: (seen := store.job(made.job_id).progress) is not None and seen.phase == "artifacts")
    store.cancel(made.job_id)
    delivering.result(60)
