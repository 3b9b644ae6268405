"""Artifacts behind any other URL that fsspec has a driver for: s3://bucket/path, gs://…, abfs://…, sftp://…"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from dyno.artifacts.names import stored_name
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, ArtifactStoreUnfit, DynoError
from dyno.result import Artifact

# One process's memory is no place that hosts share, and the web can't be written to.
_NO_STORE = {"memory": "is this process's memory", "http": "can't be written", "https": "can't be written"}


def remote_store(url: str) -> RemoteStore:
    """Raises ArtifactStoreUnfit, naming the package to install where a driver is missing."""
    import fsspec  # here: it takes 0.1 s at every start, and most have no such URL

    scheme = url.partition("://")[0]
    if scheme in _NO_STORE:
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}, which {_NO_STORE[scheme]}: hosts can't share it")
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except Exception as error:  # ValueError, ImportError, and whatever a driver raises at its own start
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}: {error}") from error
    return RemoteStore(filesystem, root, url)


class RemoteStore:
    """An `ArtifactStore` on an fsspec file system. Drivers write a file whole or not at all, as object stores do;

    what is half there nevertheless is in no result, since a result is written after its last file.
    """

    def __init__(self, filesystem: Any, root: str, url: str) -> None:
        self._filesystem, self._root, self._url = filesystem, root.rstrip("/"), url

    def spool(self, job_id: str) -> Path:
        return Path(tempfile.gettempdir())

    def keep(self, job_id: str, name: str, sha256: str, source: Path) -> None:
        size_bytes = source.stat().st_size
        path = f"{self._folder(job_id)}/{stored_name(name, sha256)}"
        with self._errors():
            self._filesystem.makedirs(self._folder(job_id), exist_ok=True)
            self._filesystem.put_file(str(source), path)
            there = self._size_bytes(path)
        if there != size_bytes:
            raise ArtifactStoreUnavailable(f"{self._url} kept {there} of the {size_bytes} bytes of {name}")

    def open(self, job_id: str, artifact: Artifact) -> BinaryIO:
        path = f"{self._folder(job_id)}/{stored_name(artifact.name, artifact.sha256)}"
        with self._errors():
            there = self._size_bytes(path)
            if there is None:
                raise ArtifactNotFound(f"the file of {artifact.name} is gone from the artifact store")
            if there != artifact.bytes:
                raise ArtifactNotFound(f"the file of {artifact.name} was damaged in the artifact store")
            return cast(BinaryIO, self._filesystem.open(path, "rb"))

    def drop(self, job_id: str) -> None:
        with self._errors():
            if self._filesystem.exists(self._folder(job_id)):
                self._filesystem.rm(self._folder(job_id), recursive=True)

    def _folder(self, job_id: str) -> str:
        return f"{self._root}/{job_id}"

    def _size_bytes(self, path: str) -> int | None:
        self._filesystem.invalidate_cache()
        return int(self._filesystem.size(path)) if self._filesystem.exists(path) else None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except DynoError:
            raise
        except Exception as error:  # each driver has its own kinds
            detail = f"the artifact store {self._url} can't be used: {type(error).__name__}: {error}"
            raise ArtifactStoreUnavailable(detail) from error
