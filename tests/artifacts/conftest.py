"""Both kinds of artifact store, and files for them."""

import hashlib

import pytest

from dyno.artifact_store import FolderStore, RemoteStore
from dyno.models.result import Artifact

JOB = "job_01J00000000000000000000000"


def artifact(content, name="a.txt"):
    return Artifact(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), url="")


def read(store, wanted):
    with store.open(JOB, wanted) as file:
        return file.read()


@pytest.fixture
def keep(tmp_path):
    """Store content as the job's file a.txt."""

    def kept(store, content):
        source = tmp_path / "source"
        source.write_bytes(content)
        wanted = artifact(content)
        store.keep(JOB, wanted.name, wanted.sha256, source)
        return wanted

    return kept


@pytest.fixture(params=["folder", "remote"])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")  # hosts can't share it, but its driver works like the others
    return RemoteStore(filesystem, f"/{tmp_path.name}", "memory://test", FolderStore(tmp_path / "incoming"))
