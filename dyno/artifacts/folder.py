"""Artifacts in a folder of this host, or one that all hosts mount: <root>/<job>/<digest>-<name>."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dyno.artifacts.names import stored_name
from dyno.artifacts.store import ABANDONED_S
from dyno.durable import sync
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable
from dyno.result import Artifact

_CHECKED_BYTES = 4096  # an empty file would have room on a full disk
_NO_SUCH_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class FolderStore:
    """An `ArtifactStore`. Files appear by a rename, so that what has its final name is whole; folders are our own's."""

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
            raise ArtifactNotFound(f"the file of {artifact.name} is gone from the artifact store") from None
        except OSError as error:
            raise self._unavailable(error) from error
        if os.fstat(file.fileno()).st_size != artifact.bytes:
            file.close()
            raise ArtifactNotFound(f"the file of {artifact.name} was damaged in the artifact store")
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
        wanted = None if listed is None else {stored_name(each.name, each.sha256) for each in listed}
        with self._errors():
            for path in _entries(folder):
                if path.name.startswith("."):
                    swept &= _delete_if_abandoned(path)
                elif wanted is not None and path.name not in wanted:
                    path.unlink(missing_ok=True)
            if wanted is not None:
                _delete_if_empty(folder)
        return swept

    def check(self) -> None:
        """Writes a file that has no name, so that nothing can be left of it."""
        with self._errors():
            self._root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root) as file:
                file.write(bytes(_CHECKED_BYTES))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError) -> ArtifactStoreUnavailable:
        return ArtifactStoreUnavailable(f"the artifact store {self._root} can't be used: {error.strerror or error}")


def _move(source: Path, target: Path) -> None:
    """By one rename, after what is moved is on disk; over a copy where they are on two file systems."""
    try:
        sync(source)
        source.rename(target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    partial = target.with_name(f".{secrets.token_hex(8)}")
    try:
        shutil.copyfile(source, partial)
        sync(partial)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _delete_if_abandoned(path: Path) -> bool:
    """Whether it is gone. Others may sweep at the same time."""
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
    """Mounts over a network may know no such thing for a folder: a file that is whole there isn't lost for that."""
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in _NO_SUCH_SYNC:
            raise
