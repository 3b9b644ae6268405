"""A folder keeps files whole, under names that no other content can take."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dyno.artifacts import service_store, shared_store
from dyno.artifacts.folder import FolderStore
from dyno.artifacts.remote import RemoteStore, remote_store
from dyno.artifacts.store import ArtifactStore
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, ArtifactStoreUnfit
from dyno.result import Artifact
from dyno.settings import Settings

JOB = "job_01J00000000000000000000000"
OTHER_FILE_SYSTEM = Path("/dev/shm")


def artifact(content: bytes, name: str = "a.txt") -> Artifact:
    return Artifact(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), url="")


Keep = Callable[[ArtifactStore, bytes], Artifact]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Store some content as a.txt of the job."""

    def kept(store: ArtifactStore, content: bytes) -> Artifact:
        source = tmp_path / "source"
        source.write_bytes(content)
        wanted = artifact(content)
        store.keep(JOB, wanted.name, wanted.sha256, source)
        return wanted

    return kept


@pytest.fixture(params=["folder", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")  # no place for several hosts, but a driver like any other
    return RemoteStore(filesystem, f"/{tmp_path.name}", "memory://test")


def read(store: ArtifactStore, wanted: Artifact) -> bytes:
    with store.open(JOB, wanted) as file:
        return file.read()


def test_what_was_kept_is_read_again(store: ArtifactStore, keep: Keep) -> None:
    assert read(store, keep(store, b"content")) == b"content"
    assert read(store, keep(store, b"")) == b""


def test_another_attempt_can_not_touch_what_was_kept(store: ArtifactStore, keep: Keep) -> None:
    accepted = keep(store, b"of the attempt that counts")
    late = keep(store, b"of one that lost its lease")
    assert read(store, accepted) == b"of the attempt that counts"
    assert read(store, late) == b"of one that lost its lease"


def test_the_same_file_may_be_kept_twice(store: ArtifactStore, keep: Keep) -> None:
    assert keep(store, b"same") == keep(store, b"same")
    assert read(store, artifact(b"same")) == b"same"


def test_dropping_a_job_deletes_its_files_and_may_be_repeated(store: ArtifactStore, keep: Keep) -> None:
    kept = keep(store, b"content")
    store.drop(JOB)
    store.drop(JOB)
    with pytest.raises(ArtifactNotFound, match="gone"):
        store.open(JOB, kept)


def test_a_file_of_another_size_than_listed_is_not_given_out(store: ArtifactStore, keep: Keep) -> None:
    kept = keep(store, b"content")
    with pytest.raises(ArtifactNotFound, match="damaged"):
        store.open(JOB, kept.model_copy(update={"bytes": 3}))


@pytest.mark.skipif(not OTHER_FILE_SYSTEM.is_dir(), reason="no second file system here")
def test_a_file_of_another_file_system_is_copied_and_leaves_nothing_half_done(tmp_path: Path) -> None:
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


def test_a_folder_that_can_not_be_written_is_unavailable_and_the_file_still_there(tmp_path: Path, keep: Keep) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(ArtifactStoreUnavailable, match=str(in_the_way)):
        keep(FolderStore(in_the_way), b"content")
    assert (tmp_path / "source").read_bytes() == b"content"


def test_a_driver_that_fails_is_a_store_that_is_unavailable(tmp_path: Path, keep: Keep) -> None:
    fsspec = pytest.importorskip("fsspec")
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(ArtifactStoreUnavailable, match=r"NotADirectoryError|FileExistsError"):
        keep(RemoteStore(fsspec.filesystem("file"), str(in_the_way), "test"), b"content")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://x", "memory"),
        ("https://example.org/x", "can't be written"),
        ("nonesuch://x", "nonesuch"),
        ("file://relative/x", "absolute"),
    ],
)
def test_a_url_that_can_be_no_store_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ArtifactStoreUnfit, match=why):
        service_store(Settings(artifact_url=url))


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)  # as if it were not installed, where it is
    with pytest.raises(ArtifactStoreUnfit, match="s3fs"):
        remote_store("s3://bucket/path")


def test_without_a_url_nothing_is_shared_and_the_service_has_a_folder(tmp_path: Path, keep: Keep) -> None:
    settings = Settings(artifact_dir=tmp_path / "own")
    assert shared_store(settings) is None
    keep(service_store(settings), b"content")
    assert (tmp_path / "own" / JOB).is_dir()


def test_a_folder_that_hosts_mount_is_a_url_too(tmp_path: Path, keep: Keep) -> None:
    store = shared_store(Settings(artifact_url=f"file://{tmp_path}/mounted"))
    assert store is not None
    assert read(store, keep(store, b"content")) == b"content"
