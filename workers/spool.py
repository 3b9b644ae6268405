"""Endings that Redis couldn't take, on disk until it has: for this process, and for whichever comes after it here."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from dyno import atomic_files
from dyno.models.spec import MAX_EXPIRES_IN_S
from dyno.store.fitting import VERSION
from dyno.store.leases import Claim
from workers.ending import Ending
from workers.log import event
from workers.spooled import NewerVersion, Spooled, read, text_of

MOST_BYTES: Final = 2**30  # of the whole folder; the largest ending known, 100,000 samples, takes 10 MB
_UNFINISHED_S = 3600  # what is older was begun by a process that died
_ENDING, _ASIDE, _UNFINISHED = ".ending", ".aside", ".part"


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
        text = text_of(ending, claim, self._namespace, self._version)
        atomic_files.make_folder(self._folder)
        self._make_room(len(text))
        digest = hashlib.sha256(claim.token.encode()).hexdigest()[:16]
        path = self._folder / f"{claim.job_id}.{claim.attempt}.{digest}{_ENDING}"
        unfinished = path.with_suffix(f".{os.getpid()}{_UNFINISHED}")
        try:
            atomic_files.write_synced(unfinished, text)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        atomic_files.fsync_path(self._folder)
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

    def _read(self, path: Path) -> Spooled | None:
        try:
            found = read(path, self._namespace, self._most_bytes, self._version)
        except FileNotFoundError:  # another worker was quicker
            return None
        except NewerVersion as error:
            event("spool-newer", logging.WARNING, file=path, version=error.version, own=self._version)
            found = None
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one file, the others go on
            self._set_aside(path, error)
            return None
        if found is None:  # another namespace's, or for a newer Dyno to tell
            self.pass_over(path)
        return found

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


def _status(path: Path) -> os.stat_result | None:
    """None where another worker has told it, or thrown it away, since it was listed."""
    try:
        return path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _useless(path: Path, status: os.stat_result) -> bool:
    """No job is known for longer than it may ask for, so what nobody has taken until then nobody will."""
    old = time.time() - status.st_mtime > MAX_EXPIRES_IN_S
    return path.suffix == _ASIDE or (path.suffix == _ENDING and old)
