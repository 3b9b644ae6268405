"""A sweep deletes unused files, and keeps files that an upload may still write."""

import os
import time

from dyno.artifact_store import ABANDONED_S
from dyno.errors import ArtifactNotFound
from tests.artifacts.conftest import JOB, read


def there(store, wanted):
    try:
        read(store, wanted)
    except ArtifactNotFound:
        return False
    return True


def half_written(store, age_s=0.0):
    """A partial file, as an API leaves it if it is killed during an upload."""
    path = store.incoming(JOB) / ".0123456789abcdef"
    path.write_bytes(b"half of")
    changed_s = time.time() - age_s
    os.utime(path, (changed_s, changed_s))
    return path


def test_a_done_job_keeps_only_the_files_that_its_result_lists(store, keep):
    listed, stray = keep(store, b"of the attempt that counts"), keep(store, b"of one before")
    for _ in range(2):
        assert store.sweep(JOB, [listed])
        assert (there(store, listed), there(store, stray)) == (True, False)


def test_a_done_job_without_artifacts_keeps_no_file(store, keep):
    kept = keep(store, b"content")
    assert store.sweep(JOB, [])
    assert not there(store, kept)
    assert store.sweep(JOB, [])


def test_a_live_job_keeps_complete_files(store, keep):
    kept = keep(store, b"content")
    assert store.sweep(JOB, None)
    assert there(store, kept)


def test_an_abandoned_partial_file_is_deleted(store):
    abandoned = half_written(store, ABANDONED_S + 60)
    assert store.sweep(JOB, None)
    assert not abandoned.exists()


def test_a_recent_partial_file_is_kept_for_a_later_sweep(store):
    for listed in (None, []):
        live = half_written(store, ABANDONED_S / 2)
        assert not store.sweep(JOB, listed)
        assert live.exists()


def test_a_done_job_without_files_leaves_no_folder(store):
    folder = store.incoming(JOB)
    store.sweep(JOB, [])
    assert not folder.exists()
