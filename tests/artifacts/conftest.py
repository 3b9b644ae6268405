"""Both kinds of artifact store, and files for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dyno.artifact_store import ArtifactStore, FolderStore, RemoteStore
from dyno.models.result import Artifact

JOB = "job_01J00000000000000000000000"
Keep = Callable[[ArtifactStore, bytes], Artifact]


def artifact(content: bytes, name: str = "a.txt") -> Artifact:
    return Artifact(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), url="")


def read(store: ArtifactStore, wanted: Artifact) -> bytes:
    with store.open(JOB, wanted) as file:
        return file.read()


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Store content as the job's file a.txt."""

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
    filesystem = fsspec.filesystem("memory")  # hosts can't share it, but its driver works like the others
    return RemoteStore(filesystem, f"/{tmp_path.name}", "memory://test", FolderStore(tmp_path / "incoming"))
