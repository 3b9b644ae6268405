"""Stores keep complete files, under names that no other content can have."""

import errno
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from dyno.artifact_store import FolderStore, RemoteStore, remote_store, service_store, shared_store
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, ArtifactStoreUnfit
from dyno.settings import Settings
from tests.artifacts.conftest import JOB, artifact, read

OTHER_FILE_SYSTEM = Path("/dev/shm")


def test_a_stored_file_can_be_read(store, keep):
    assert read(store, keep(store, b"content")) == b"content"
    assert read(store, keep(store, b"")) == b""


def test_another_attempt_cannot_change_a_stored_file(store, keep):
    accepted = keep(store, b"of the attempt that counts")
    late = keep(store, b"of one that lost its lease")
    assert read(store, accepted) == b"of the attempt that counts"
    assert read(store, late) == b"of one that lost its lease"


def test_the_same_file_may_be_kept_twice(store, keep):
    assert keep(store, b"same") == keep(store, b"same")
    assert read(store, artifact(b"same")) == b"same"


def test_dropping_a_job_deletes_its_files_and_may_be_repeated(store, keep):
    kept = keep(store, b"content")
    store.drop(JOB)
    store.drop(JOB)
    with pytest.raises(ArtifactNotFound, match="gone"):
        store.open(JOB, kept)


def test_a_file_of_another_size_than_listed_is_not_given_out(store, keep):
    kept = keep(store, b"content")
    with pytest.raises(ArtifactNotFound, match="damaged"):
        store.open(JOB, kept.model_copy(update={"bytes": 3}))


@pytest.mark.skipif(not OTHER_FILE_SYSTEM.is_dir(), reason="no second file system here")
def test_a_file_of_another_file_system_is_copied_and_leaves_nothing_half_done(tmp_path):
    store = FolderStore(tmp_path)
    source = OTHER_FILE_SYSTEM / f"dyno-{tmp_path.name}"
    source.write_bytes(b"far")
    try:
        wanted = artifact(b"far")
        store.keep(JOB, wanted.name, wanted.sha256, source)
    finally:
        source.unlink(missing_ok=True)
    assert read(store, wanted) == b"far"
    assert len(list((tmp_path / JOB).iterdir())) == 1


def test_a_folder_that_can_not_be_written_is_unavailable_and_the_file_still_there(tmp_path, keep):
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(ArtifactStoreUnavailable, match=str(in_the_way)):
        keep(FolderStore(in_the_way), b"content")
    assert (tmp_path / "source").read_bytes() == b"content"


def test_a_mount_that_syncs_no_folders_keeps_files(monkeypatch, tmp_path, keep):
    sync = os.fsync

    def refuse(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    store = FolderStore(tmp_path / "mount")
    assert read(store, keep(store, b"content")) == b"content"


def test_a_driver_that_fails_is_a_store_that_is_unavailable(tmp_path, keep):
    fsspec = pytest.importorskip("fsspec")
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(ArtifactStoreUnavailable, match=r"NotADirectoryError|FileExistsError"):
        keep(RemoteStore(fsspec.filesystem("file"), str(in_the_way), "test", FolderStore(tmp_path)), b"content")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://x", "memory"),
        ("https://example.org/x", "can't be written"),
        ("nonesuch://x", "nonesuch"),
        ("file://relative/x", "absolute"),
    ],
)
def test_an_unusable_url_is_refused_with_the_reason(url, why):
    with pytest.raises(ArtifactStoreUnfit, match=why):
        service_store(Settings(artifact_url=url))


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)  # as if it were not installed
    with pytest.raises(ArtifactStoreUnfit, match="s3fs"):
        remote_store("s3://bucket/path", FolderStore(Path("unused")))


def test_without_a_url_nothing_is_shared_and_the_service_has_a_folder(tmp_path, keep):
    settings = Settings(artifact_dir=tmp_path / "own")
    assert shared_store(settings) is None
    keep(service_store(settings), b"content")
    assert (tmp_path / "own" / JOB).is_dir()


def test_a_folder_that_hosts_mount_is_a_url_too(tmp_path, keep):
    store = shared_store(Settings(artifact_url=f"file://{tmp_path}/mounted"))
    assert store is not None
    assert read(store, keep(store, b"content")) == b"content"


def test_a_folder_is_checked_by_writing_to_it_and_nothing_is_left(tmp_path):
    FolderStore(tmp_path / "new").check()
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactStoreUnavailable, match=str(tmp_path / "file")):
        FolderStore(tmp_path / "file").check()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_disk_is_unavailable(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Path("/dev/full").open("wb"))  # noqa: SIM115
    with pytest.raises(ArtifactStoreUnavailable, match="No space left"):
        FolderStore(tmp_path).check()
