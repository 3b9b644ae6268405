"""Artifacts behind any other URL that fsspec has a driver for: s3://bucket/path, gs://…, abfs://…, sftp://…"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from dyno.artifacts.folder import FolderStore
from dyno.artifacts.names import stored_name
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, ArtifactStoreUnfit, DynoError
from dyno.result import Artifact

# One process's memory is no place that hosts share, and the web can't be written to.
_NO_STORE = {"memory": "is this process's memory", "http": "can't be written", "https": "can't be written"}


def remote_store(url: str, here: FolderStore) -> RemoteStore:
    """Raises ArtifactStoreUnfit, naming the package to install where a driver is missing."""
    import fsspec  # here: it takes 0.1 s at every start, and most have no such URL

    scheme = url.partition("://")[0]
    if scheme in _NO_STORE:
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}, which {_NO_STORE[scheme]}: hosts can't share it")
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except Exception as error:  # ValueError, ImportError, and whatever a driver raises at its own start
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}: {error}") from error
    return RemoteStore(filesystem, root, url, here)


class RemoteStore:
    """An `ArtifactStore` on an fsspec file system. Drivers write a file whole or not at all, as object stores do;

    what is half there nevertheless is in no result, since a result is written after its last file.
    """

    def __init__(self, filesystem: Any, root: str, url: str, here: FolderStore) -> None:
        """`here`: where files wait on this host until they are whole."""
        self._filesystem, self._root, self._url = filesystem, root.rstrip("/"), url
        self._here = here

    def incoming(self, job_id: str) -> Path:
        return self._here.incoming(job_id)

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
        self._here.drop(job_id)
        with self._errors():
            if self._filesystem.exists(self._folder(job_id)):
                self._filesystem.rm(self._folder(job_id), recursive=True)

    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool:
        swept = self._here.sweep(job_id, None if listed is None else [])
        if listed is not None:
            wanted = {stored_name(each.name, each.sha256) for each in listed}
            with self._errors():
                for path in self._files(job_id):
                    if path.rpartition("/")[2] not in wanted:
                        with suppress(FileNotFoundError):  # others may sweep at the same time
                            self._filesystem.rm_file(path)
        return swept

    def check(self) -> None:
        """Nothing: to ask would cost a request, and every training tries the store before its first run."""

    def _files(self, job_id: str) -> list[str]:
        self._filesystem.invalidate_cache()
        try:
            return [str(path) for path in self._filesystem.ls(self._folder(job_id), detail=False)]
        except FileNotFoundError:
            return []

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
