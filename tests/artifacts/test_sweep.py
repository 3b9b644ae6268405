"""A sweep deletes unused files, and keeps files that an upload may still write."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dyno.artifact_store import ABANDONED_S, ArtifactStore
from dyno.errors import ArtifactNotFound
from dyno.models.result import Artifact
from tests.artifacts.conftest import JOB, Keep, read


def there(store: ArtifactStore, wanted: Artifact) -> bool:
    try:
        read(store, wanted)
    except ArtifactNotFound:
        return False
    return True


def half_written(store: ArtifactStore, age_s: float = 0.0) -> Path:
    """A partial file, as an API leaves it if it is killed during an upload."""
    path = store.incoming(JOB) / ".0123456789abcdef"
    path.write_bytes(b"half of")
    changed_s = time.time() - age_s
    os.utime(path, (changed_s, changed_s))
    return path


def test_a_done_job_keeps_only_the_files_that_its_result_lists(store: ArtifactStore, keep: Keep) -> None:
    listed, stray = keep(store, b"of the attempt that counts"), keep(store, b"of one before")
    for _ in range(2):
        assert store.sweep(JOB, [listed])
        assert (there(store, listed), there(store, stray)) == (True, False)


def test_a_done_job_without_artifacts_keeps_no_file(store: ArtifactStore, keep: Keep) -> None:
    kept = keep(store, b"content")
    assert store.sweep(JOB, [])
    assert not there(store, kept)
    assert store.sweep(JOB, [])


def test_a_live_job_keeps_complete_files(store: ArtifactStore, keep: Keep) -> None:
    kept = keep(store, b"content")
    assert store.sweep(JOB, None)
    assert there(store, kept)


def test_an_abandoned_partial_file_is_deleted(store: ArtifactStore) -> None:
    abandoned = half_written(store, ABANDONED_S + 60)
    assert store.sweep(JOB, None)
    assert not abandoned.exists()


def test_a_recent_partial_file_is_kept_for_a_later_sweep(store: ArtifactStore) -> None:
    for listed in (None, []):
        live = half_written(store, ABANDONED_S / 2)
        assert not store.sweep(JOB, listed)
        assert live.exists()


def test_a_done_job_without_files_leaves_no_folder(store: ArtifactStore) -> None:
    folder = store.incoming(JOB)
    store.sweep(JOB, [])
    assert not folder.exists()
