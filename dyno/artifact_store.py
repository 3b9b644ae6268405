"""Artifacts, the files that jobs leave behind: their names, and the stores that keep them.

A store is a folder (<root>/<job>/<digest>-<name>), local or mounted by all hosts, or any URL with an fsspec driver:
s3://bucket/path, gs://…, abfs://…, sftp://…

`unsafe_weights_reason` checks weights before Keras loads them. Dyno reads weights only with Keras' `load_weights`. From
a `.keras` archive, it opens only the HDF5 file of variables. It builds no layer from the archive's configuration, so
code in the archive (of a Lambda layer) can't run. Keras itself rejects HDF5 links and data sets that lie outside the
file, and data sets that declare a thousand times their actual size.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from dyno import folders
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, ArtifactStoreUnfit, DynoError
from dyno.models.result import Artifact
from dyno.settings import Settings

ARTIFACT_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
)  # without a separator or a leading dot, so that a name is neither a path nor hidden
WEIGHTS_SUFFIXES = (".weights.h5", ".keras")

_DIGEST_SHOWN = 16
MEDIA_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
OCTET_STREAM = "application/octet-stream"


def is_artifact_name(text: str) -> bool:
    return ARTIFACT_NAME.fullmatch(text) is not None


def is_weights(name: str) -> bool:
    """Whether Keras can load weights from a file with this name."""
    return name.endswith(WEIGHTS_SUFFIXES)


def media_type(name: str) -> str:
    """The media type by suffix, never by content. Files with other suffixes are served as bytes."""
    return MEDIA_TYPES.get(PurePosixPath(name).suffix.lower(), OCTET_STREAM)


def stored_name(name: str, sha256: str) -> str:
    """The file's name in a store. It contains the digest, so two attempts share a file only if the content is equal.

    So an attempt that lost its lease can't overwrite the files that an accepted result lists, in any store.
    """
    return f"{sha256[:_DIGEST_SHOWN]}-{name}"


PIECE_BYTES = 1 << 20
ABANDONED_S = 3600.0  # longer than a live upload pauses, and more than the clocks of two hosts differ


class DiskSpace(NamedTuple):
    total_bytes: int
    free_bytes: int


class ArtifactStore(Protocol):
    """Callers validate job ids and names. Every method may block for as long as a disk or network does.

    Methods raise ArtifactStoreUnavailable if the store can't be read or written now.
    """

    def incoming(self, job_id: str) -> Path:
        """A folder for uploads in progress, from which `keep` can move files instead of copying them."""

    def keep(self, job_id: str, name: str, sha256: str, source: Path) -> None:
        """Store the file `source` atomically and durably. `keep` may move it, and leaves it untouched on an error."""

    def open(self, job_id: str, artifact: Artifact) -> BinaryIO:
        """Open the file for reading. Raises ArtifactNotFound if it is missing or doesn't have the listed size."""

    def drop(self, job_id: str) -> None:
        """Delete all files of the job, if there are any."""

    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool:
        """Delete partial files that were last written more than ABANDONED_S ago. For a done job, also delete files
        that aren't `listed`. Returns False if a younger partial file remains; call again later, as an upload may
        still be writing it."""

    def check(self) -> None:
        """Raises ArtifactStoreUnavailable if a cheap check shows that the store can't keep a file now."""

    def disk(self) -> DiskSpace | None:
        """The space on the disk of the store; None if it is unknown, as for a remote store."""


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def artifact_url(job_id: str, name: str) -> str:
    """The file's URL, relative to the API's."""
    return f"/v1/jobs/{job_id}/artifacts/{name}"


_CHECKED_BYTES = 4096  # size of the file that `check` writes; even a full disk can hold an empty file
_NO_SUCH_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class FolderStore:
    """An `ArtifactStore` in a folder. A file gets its final name by a rename, so it is complete under that name.

    The folders are readable only by the user who runs Dyno.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def incoming(self, job_id: str) -> Path:
        folder = self._root / job_id
        with self._errors():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def keep(self, job_id: str, name: str, sha256: str, source: Path) -> None:
        folder = self.incoming(job_id)
        with self._errors():
            _move(source, folder / stored_name(name, sha256))
            _sync_entries(folder)

    def open(self, job_id: str, artifact: Artifact) -> BinaryIO:
        path = self._root / job_id / stored_name(artifact.name, artifact.sha256)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise ArtifactNotFound(f"the file {artifact.name} is gone from the artifact store") from None
        except OSError as error:
            raise self._unavailable(error) from error
        if os.fstat(file.fileno()).st_size != artifact.bytes:
            file.close()
            raise ArtifactNotFound(f"the file {artifact.name} was damaged in the artifact store")
        return file

    def drop(self, job_id: str) -> None:
        try:
            shutil.rmtree(self._root / job_id)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable(error) from error

    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool:
        folder, swept = self._root / job_id, True
        kept = None if listed is None else {stored_name(artifact.name, artifact.sha256) for artifact in listed}
        with self._errors():
            for path in _entries(folder):
                if path.name.startswith("."):
                    swept &= _delete_if_abandoned(path)
                elif kept is not None and path.name not in kept:
                    path.unlink(missing_ok=True)
            if kept is not None:
                _delete_if_empty(folder)
        return swept

    def check(self) -> None:
        """Write a file that has no name, so that no crash can leave it behind."""
        with self._errors():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root) as file:
                file.write(bytes(_CHECKED_BYTES))

    def disk(self) -> DiskSpace | None:
        try:
            usage = shutil.disk_usage(self._root)
        except OSError:
            return None
        return DiskSpace(usage.total, usage.free)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError) -> ArtifactStoreUnavailable:
        return ArtifactStoreUnavailable(f"the artifact store {self._root} can't be used: {error.strerror or error}")


def _move(source: Path, target: Path) -> None:
    """Sync the file, then rename it. Between two file systems, copy it first."""
    try:
        folders.fsync_path(source)
        source.rename(target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    partial = target.with_name(f".{secrets.token_hex(8)}")
    try:
        shutil.copyfile(source, partial)
        folders.fsync_path(partial)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _delete_if_abandoned(path: Path) -> bool:
    """Returns whether the file is gone. Other processes may sweep at the same time."""
    try:
        if time.time() - path.stat().st_mtime < ABANDONED_S:
            return False
        path.unlink()
    except FileNotFoundError:
        pass
    return True


def _delete_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise


def _sync_entries(folder: Path) -> None:
    """Sync the folder's entries. Ignores the error of network mounts that can't sync a folder."""
    try:
        folders.fsync_path(folder)
    except OSError as error:
        if error.errno not in _NO_SUCH_SYNC:
            raise


# fsspec has drivers for these schemes, but hosts can't share one process's memory, and HTTP is read-only.
_NO_STORE = {"memory": "is this process's memory", "http": "can't be written", "https": "can't be written"}


def remote_store(url: str, here: FolderStore) -> "RemoteStore":
    """The store at an fsspec URL. Raises ArtifactStoreUnfit, which names the package of a missing driver."""
    import fsspec  # imported here because it takes 0.1 s, and most deployments set no such URL

    scheme = url.partition("://")[0]
    if scheme in _NO_STORE:
        raise ArtifactStoreUnfit(
            f"DYNO_ARTIFACT_URL is {url}, which {_NO_STORE[scheme]}; name a place that all hosts can write to"
        )
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except Exception as error:  # ValueError, ImportError, and anything that a driver raises while it starts
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}: {error}") from error
    return RemoteStore(filesystem, root, url, here)


class RemoteStore:
    """An `ArtifactStore` on an fsspec file system. Most drivers write a file completely or not at all.

    No result lists a partial file, because a worker writes the result after its last file.
    """

    def __init__(self, filesystem: Any, root: str, url: str, here: FolderStore) -> None:
        """`here`: the local folder that holds uploads until they are complete."""
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
            stored_bytes = self._size_bytes(path)
        if stored_bytes != size_bytes:
            raise ArtifactStoreUnavailable(f"{self._url} stored {stored_bytes} of the {size_bytes} bytes of {name}")

    def open(self, job_id: str, artifact: Artifact) -> BinaryIO:
        path = f"{self._folder(job_id)}/{stored_name(artifact.name, artifact.sha256)}"
        with self._errors():
            stored_bytes = self._size_bytes(path)
            if stored_bytes is None:
                raise ArtifactNotFound(f"the file {artifact.name} is gone from the artifact store")
            if stored_bytes != artifact.bytes:
                raise ArtifactNotFound(f"the file {artifact.name} was damaged in the artifact store")
            return cast(BinaryIO, self._filesystem.open(path, "rb"))

    def drop(self, job_id: str) -> None:
        self._here.drop(job_id)
        with self._errors():
            if self._filesystem.exists(self._folder(job_id)):
                self._filesystem.rm(self._folder(job_id), recursive=True)

    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool:
        swept = self._here.sweep(job_id, None if listed is None else [])
        if listed is not None:
            kept = {stored_name(artifact.name, artifact.sha256) for artifact in listed}
            with self._errors():
                for path in self._files(job_id):
                    if path.rpartition("/")[2] not in kept:
                        with suppress(FileNotFoundError):  # other processes may sweep at the same time
                            self._filesystem.rm_file(path)
        return swept

    def check(self) -> None:
        """Does nothing: a check would cost a request, and every training checks the store before its first run."""

    def disk(self) -> DiskSpace | None:
        return None

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
        except Exception as error:  # each driver has exceptions of its own
            detail = f"the artifact store {self._url} can't be used: {type(error).__name__}: {error}"
            raise ArtifactStoreUnavailable(detail) from error


_FILE_SCHEMES = ("file://", "local://")


def shared_store(settings: Settings) -> ArtifactStore | None:
    """The store at DYNO_ARTIFACT_URL, which the API and all workers share; None if the setting is unset.

    Writes nothing to the store. Raises ArtifactStoreUnfit if the URL has no driver, if hosts can't share the place, or
    if this host has no private folder for files that wait for their upload.
    """
    url = settings.artifact_url
    if url is None:
        return None
    scheme = next((scheme for scheme in _FILE_SCHEMES if url.startswith(scheme)), None)
    if scheme is None:
        return remote_store(url, FolderStore(_incoming(settings)))
    path = url.removeprefix(scheme)
    if not path.startswith("/"):
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}; use an absolute path, as in file:///srv/x")
    return FolderStore(Path(path))


def _incoming(settings: Settings) -> Path:
    try:
        return folders.private_folder(settings.run_dir) / "incoming"
    except OSError as error:
        folder = error.filename or settings.run_dir
        raise ArtifactStoreUnfit(
            f"files can't wait in {folder} for DYNO_ARTIFACT_URL: {error.strerror}; set DYNO_RUN_DIR to another folder"
        ) from error


def service_store(settings: Settings) -> ArtifactStore:
    """The API's store: the shared one, or else its own folder."""
    return shared_store(settings) or FolderStore(settings.artifact_dir)


KERAS_SUFFIX = ".keras"


def unsafe_weights_reason(path: Path, max_bytes: int) -> str | None:
    """Why Keras must not load the file; None if it may. `max_bytes` limits the unpacked size of an archive.

    Checking the declared size is enough, as unpacking an archive never yields more bytes than it declares.
    """
    if not path.name.endswith(KERAS_SUFFIX):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked_bytes = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        return f"{path.name} is not a zip archive: {error}"
    if unpacked_bytes > max_bytes:
        return f"{path.name} unpacks to {unpacked_bytes} bytes, the limit is {max_bytes}"
    return None
