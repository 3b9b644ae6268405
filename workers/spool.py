"""Endings that Redis couldn't take, on disk until it has: for this process, and for whichever comes after it here."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from dyno.job import SCHEMA, Stored
from dyno.spec import MOST_EXPIRES_IN_S
from dyno.store.fitting import VERSION
from dyno.store.leases import Claim
from dyno.store.records import read_spec
from workers.ending import Ending, Failed, HandedBack, Stopped, Succeeded
from workers.log import event

MOST_BYTES: Final = 2**30  # of the whole folder; the largest ending known, 100,000 samples, takes 10 MB
_UNFINISHED_S = 3600  # what is older was begun by a process that died
_ENDING, _ASIDE, _UNFINISHED = ".ending", ".aside", ".part"
_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Succeeded, Failed, Stopped, HandedBack)
}


class _Writer(Stored):
    """What is understood of the first line of a file, however much newer the Dyno is that wrote it."""

    schema_version: int = Field(alias="schema")
    version: str = ""


class _Header(_Writer):
    """The first line of a file: whose ending the second one is."""

    namespace: str
    job: str
    attempt: int
    token: str
    device: str
    queue: str
    spec: str
    kind: str


@dataclass(frozen=True)
class Spooled:
    path: Path
    claim: Claim
    ending: Ending


class Spool:
    """One folder for all workers of a host, who may all write the same ending: the store takes it once.

    What is damaged is set aside (`.aside`), what a newer Dyno wrote is left to one; neither stands in the way of the
    others. `version`: of the Dyno that uses it.
    """

    def __init__(self, folder: Path, namespace: str, most_bytes: int = MOST_BYTES, *, version: str = VERSION) -> None:
        self._folder, self._namespace, self._most_bytes, self._version = folder, namespace, most_bytes, version
        self._passed_over: set[str] = set()

    def keep(self, ending: Ending, claim: Claim) -> Path:
        """The file that the ending is in, safe from a loss of power. Raises OSError where there is no room for it."""
        text = self._text(ending, claim)
        _make(self._folder)
        self._make_room(len(text))
        digest = hashlib.sha256(claim.token.encode()).hexdigest()[:16]
        path = self._folder / f"{claim.job_id}.{claim.attempt}.{digest}{_ENDING}"
        unfinished = path.with_suffix(f".{os.getpid()}{_UNFINISHED}")
        try:
            _write(unfinished, text)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync(self._folder)
        return path

    def waiting(self) -> Iterator[Spooled]:
        """All endings of this namespace, but those that were passed over; none where the folder can't be read."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            event("spool-unreadable", logging.WARNING, folder=self._folder, why=str(error))
            return
        for name in names:
            if name.endswith(_ENDING) and name not in self._passed_over:
                if spooled := self._read(self._folder / name):
                    yield spooled
            elif name.endswith(_UNFINISHED):
                self._drop_left_over(self._folder / name)

    def drop(self, path: Path) -> None:
        """The ending is told, or counts no more."""
        with suppress(OSError):  # another worker was quicker; or it is told once more, which changes nothing
            path.unlink()

    def pass_over(self, path: Path) -> None:
        """Not a matter for this process: another store's, say. It stays for the next one."""
        self._passed_over.add(path.name)

    def _text(self, ending: Ending, claim: Claim) -> bytes:
        header = {
            "schema": SCHEMA,
            "version": self._version,
            "namespace": self._namespace,
            "job": claim.job_id,
            "attempt": claim.attempt,
            "token": claim.token,
            "device": claim.device,
            "queue": claim.queue,
            "spec": claim.spec.model_dump_json(),
            "kind": type(ending).__name__,
        }
        return b"".join(to_json(line, inf_nan_mode="constants") + b"\n" for line in (header, ending))

    def _read(self, path: Path) -> Spooled | None:
        try:
            first, _, second = _content(path, self._most_bytes).partition(b"\n")
            header = self._header(first, path)
            if header is None:
                return None
            return Spooled(path, _claim(header), _KINDS[header.kind].validate_json(second))
        except FileNotFoundError:  # another worker was quicker
            return None
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one file, the others go on
            self._set_aside(path, error)
            return None

    def _header(self, line: bytes, path: Path) -> _Header | None:
        """None for what is passed over: another namespace's, or for a newer Dyno to tell."""
        writer = _Writer.model_validate_json(line)
        newer = writer.schema_version > SCHEMA or _release(writer.version) > _release(self._version)
        header = None if newer else _Header.model_validate_json(line)
        if header is None or header.kind not in _KINDS:
            event("spool-newer", logging.WARNING, file=path, version=writer.version, own=self._version)
        elif header.namespace == self._namespace:
            return header
        self.pass_over(path)
        return None

    def _set_aside(self, path: Path, error: Exception) -> None:
        event("spool-set-aside", logging.ERROR, file=path, why=f"{type(error).__name__}: {error}"[:500])
        self.pass_over(path)  # where it can't be renamed either
        with suppress(OSError):
            path.replace(path.with_suffix(_ASIDE))

    def _make_room(self, size: int) -> None:
        """Endings that wait are kept; files set aside and endings of expired jobs are thrown away, the oldest first."""
        found = [(path, status) for path in self._folder.iterdir() if (status := _status(path))]
        used = sum(status.st_size for _, status in found)
        useless = sorted((status.st_mtime, status.st_size, path) for path, status in found if _useless(path, status))
        for _, freed, path in useless:
            if used + size <= self._most_bytes:
                return
            event("spool-made-room", logging.WARNING, thrown_away=path)
            self.drop(path)
            used -= freed
        if used + size > self._most_bytes:
            raise OSError(f"{self._folder} holds {used} bytes, and may hold {self._most_bytes}")

    def _drop_left_over(self, path: Path) -> None:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNFINISHED_S:
                path.unlink()


def _release(version: str) -> list[int]:
    """[1, 2] of "1.2.dev3"; [] of what says no release."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in found[0].split(".")] if found else []


def _status(path: Path) -> os.stat_result | None:
    """None where another worker has told it, or thrown it away, since it was listed."""
    try:
        return path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _useless(path: Path, status: os.stat_result) -> bool:
    """No job is known for longer than it may ask for, so what nobody has taken until then nobody will."""
    old = time.time() - status.st_mtime > MOST_EXPIRES_IN_S
    return path.suffix == _ASIDE or (path.suffix == _ENDING and old)


def _claim(header: _Header) -> Claim:
    return Claim(
        job_id=header.job,
        spec=read_spec(header.spec),
        attempt=header.attempt,
        token=header.token,
        queue=header.queue,
        left_behind=0,
        cancel_requested=False,
        device=header.device,
    )


def _content(path: Path, most_bytes: int) -> bytes:
    """Raises OSError, also for what is no plain file: a pipe would be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise OSError(f"{path.name} is no file of a spool")
        return file.read()


def _write(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _make(folder: Path) -> None:
    """With all that it lies in. A folder's name is in its parent, as a file's is: see `_sync`."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in new:
        _sync(path.parent)


def _sync(folder: Path) -> None:
    """A file's name is in its folder: without this a loss of power may take it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
