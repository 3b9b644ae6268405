"""Outcomes that Redis couldn't accept: stored on disk and retried, by this process or by later workers on the host.

While Redis is unreachable, the worker retries the write. After the first failure it also stores the outcome in a file.
The first line of the file identifies the attempt, the second line is the outcome. Damaged files are renamed; files that
a newer Dyno wrote stay for that version.
"""

import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis
from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from dyno import errors
from dyno.bench.runner import monitor
from dyno.folders import fsync_path
from dyno.logging import event
from dyno.models.job import SCHEMA, Stored
from dyno.models.spec import MAX_EXPIRES_IN_S
from dyno.store import placement, records
from dyno.store.leases import Claim, Leases
from workers.outcome import Failed, HandedBack, Outcome, Stopped, Succeeded

_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Succeeded, Failed, Stopped, HandedBack)
}


class _Writer(Stored):
    """The fields of a file's first line that all later versions of Dyno keep."""

    schema_version: int = Field(alias="schema")
    version: str = ""


class _Header(_Writer):
    """The first line of a file. It identifies the attempt to which the outcome in the second line belongs."""

    namespace: str
    job: str
    attempt: int
    token: str
    device: str
    queue: str
    spec: str
    kind: str


@dataclass(frozen=True)
class OutboxEntry:
    path: Path
    claim: Claim
    outcome: Outcome


class NewerVersion(Exception):
    """The file was written by a newer Dyno, or has an unknown kind of outcome."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


def encode_entry(outcome: Outcome, claim: Claim, namespace: str, version: str) -> bytes:
    header = {
        "schema": SCHEMA,
        "version": version,
        "namespace": namespace,
        "job": claim.job_id,
        "attempt": claim.attempt,
        "token": claim.token,
        "device": claim.device,
        "queue": claim.queue,
        "spec": claim.spec.model_dump_json(),
        "kind": type(outcome).__name__,
    }
    return b"".join(to_json(line, inf_nan_mode="constants") + b"\n" for line in (header, outcome))


def read_entry(path: Path, namespace: str, most_bytes: int, version: str) -> OutboxEntry | None:
    """Read a file; None if it belongs to another namespace.

    Raises NewerVersion if a Dyno newer than `version` wrote it, OSError, and various errors for a damaged file.
    """
    first, _, second = _content(path, most_bytes).partition(b"\n")
    writer = _Writer.model_validate_json(first)
    if writer.schema_version > SCHEMA or _release(writer.version) > _release(version):
        raise NewerVersion(writer.version)
    header = _Header.model_validate_json(first)
    if header.kind not in _KINDS:
        raise NewerVersion(writer.version)
    if header.namespace != namespace:
        return None
    return OutboxEntry(path, _claim(header), _KINDS[header.kind].validate_json(second))


def _release(version: str) -> list[int]:
    """The release as numbers: [1, 2] for "1.2.dev3"; [] if the text doesn't begin with a release."""
    release = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in release[0].split(".")] if release else []


def _claim(header: _Header) -> Claim:
    return Claim(
        job_id=header.job,
        spec=records.read_spec(header.spec),
        attempt=header.attempt,
        token=header.token,
        queue=header.queue,
        left_behind=0,
        cancel_requested=False,
        device=header.device,
    )


def _content(path: Path, most_bytes: int) -> bytes:
    """The file's content. Raises OSError, also for a file that isn't regular, because reading a pipe would block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise OSError(f"{path.name} is not a regular file of at most {most_bytes} bytes")
        return file.read()


MAX_OUTBOX_BYTES: Final = 2**30  # for the whole folder; the largest known outcome, with 100,000 samples, takes 10 MB
_UNFINISHED_S = 3600  # older unfinished files come from a process that died
_OUTCOME, _ASIDE, _UNFINISHED = ".ending", ".aside", ".part"


class Outbox:
    """The folder of undelivered outcomes, shared by all workers of a host.

    Several workers may write the same outcome, because the store accepts it only once. The outbox renames damaged files
    to `.aside`, and ignores files of a newer Dyno; neither blocks other files. `version`: this Dyno's version.
    """

    def __init__(
        self, folder: Path, namespace: str, most_bytes: int = MAX_OUTBOX_BYTES, *, version: str = placement.DYNO_VERSION
    ) -> None:
        self._folder, self._namespace, self._most_bytes, self._version = folder, namespace, most_bytes, version
        self._passed_over: set[str] = set()

    def keep(self, outcome: Outcome, claim: Claim) -> Path:
        """Store the outcome in a crash-safe file and return its path. Raises OSError if there is no room for it."""
        text = encode_entry(outcome, claim, self._namespace, self._version)
        _make_folder(self._folder)
        self._make_room(len(text))
        digest = hashlib.sha256(claim.token.encode()).hexdigest()[:16]
        path = self._folder / f"{claim.job_id}.{claim.attempt}.{digest}{_OUTCOME}"
        unfinished = path.with_suffix(f".{os.getpid()}{_UNFINISHED}")
        try:
            _write_synced(unfinished, text)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        fsync_path(self._folder)
        return path

    def waiting(self) -> Iterator[OutboxEntry]:
        """All outcomes of this namespace, except those in ignored files; none if the folder can't be read."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            event("spool-unreadable", logging.WARNING, folder=self._folder, why=str(error))
            return
        for name in names:
            if name.endswith(_OUTCOME) and name not in self._passed_over:
                if entry := self._read(self._folder / name):
                    yield entry
            elif name.endswith(_UNFINISHED):
                self._drop_left_over(self._folder / name)

    def count(self) -> int:
        """The number of outcomes of all namespaces and of damaged files; 0 if the folder can't be read."""
        try:
            return sum(path.suffix in (_OUTCOME, _ASIDE) for path in self._folder.iterdir())
        except OSError:
            return 0

    def drop(self, path: Path) -> None:
        """Delete the file: the store has the outcome, or doesn't accept it any more."""
        with suppress(OSError):  # if the file stays, its outcome is delivered again, which does no harm
            path.unlink()

    def pass_over(self, path: Path) -> None:
        """Ignore the file in this process; another process may handle it, for example with another store."""
        self._passed_over.add(path.name)

    def _read(self, path: Path) -> OutboxEntry | None:
        try:
            entry = read_entry(path, self._namespace, self._most_bytes, self._version)
        except FileNotFoundError:  # another worker has handled it
            return None
        except NewerVersion as error:
            event("spool-newer", logging.WARNING, file=path, version=error.version, own=self._version)
            entry = None
        except Exception as error:  # noqa: BLE001 - a damaged file mustn't block the others
            self._set_aside(path, error)
            return None
        if entry is None:  # the file belongs to another namespace or a newer Dyno
            self.pass_over(path)
        return entry

    def _set_aside(self, path: Path, error: Exception) -> None:
        event("spool-set-aside", logging.ERROR, file=path, why=f"{type(error).__name__}: {error}"[:500])
        self.pass_over(path)  # in case the file can't be renamed
        with suppress(OSError):
            path.replace(path.with_suffix(_ASIDE))

    def _make_room(self, size: int) -> None:
        """Delete damaged files and outcomes of expired jobs, oldest first, until `size` bytes fit. Keeps the rest."""
        files = [(path, status) for path in self._folder.iterdir() if (status := _status(path))]
        used = sum(status.st_size for _, status in files)
        useless = sorted((status.st_mtime, status.st_size, path) for path, status in files if _useless(path, status))
        for _, freed, path in useless:
            if used + size <= self._most_bytes:
                return
            event("spool-made-room", logging.WARNING, thrown_away=path)
            self.drop(path)
            used -= freed
        if used + size > self._most_bytes:
            raise OSError(f"{self._folder} is full: it holds {used} bytes, the limit is {self._most_bytes}")

    def _drop_left_over(self, path: Path) -> None:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNFINISHED_S:
                path.unlink()


def _status(path: Path) -> os.stat_result | None:
    """The file's status; None if another worker has deleted the file meanwhile."""
    try:
        return path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _useless(path: Path, status: os.stat_result) -> bool:
    """Whether the file is damaged, or is older than any job, so that no store can accept its outcome."""
    old = time.time() - status.st_mtime > MAX_EXPIRES_IN_S
    return path.suffix == _ASIDE or (path.suffix == _OUTCOME and old)


_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def deliver_outcome(
    outcome: Outcome,
    claim: Claim,
    leases: Leases,
    outbox: Outbox,
    stop: monitor.StopSwitch,
    clock: Callable[[], float],
    send_log: Callable[[], None] = lambda: None,
) -> bool:
    """Write the outcome, with retries while Redis is unreachable. Returns False if the store rejected the outcome, or
    if the worker had to end first.

    Each try first calls `send_log`, to write the rest of the attempt's log. After the first failure, the outcome is
    also stored in the outbox, so that another worker can deliver it if this worker dies.
    """
    pause_s, kept = _FIRST_PAUSE_S, None
    while True:
        try:
            send_log()
            counted = outcome.write(leases, claim)
        except errors.StoreUnavailable as error:
            event("ending-not-written", logging.WARNING, job=claim.job_id, why=error.detail, again_s=pause_s)
        except redis.RedisError:  # such as missing rights: keep the outcome until an operator fixes this
            _keep(outcome, claim, outbox)
            raise
        else:
            if kept is not None:
                outbox.drop(kept)
            return counted
        kept = kept or _keep(outcome, claim, outbox)
        if clock() + pause_s >= stop.deadline_s:
            _leave(outcome, claim, kept)
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def deliver_waiting(outbox: Outbox, leases: Leases) -> None:
    """Write all outcomes in the outbox. Outcomes that can't be written now stay there."""
    for entry in outbox.waiting():
        try:
            _write(entry, outbox, leases)
        except errors.StoreUnavailable as error:
            event("spool-not-written", logging.WARNING, why=error.detail)
            return
        except redis.RedisError as error:  # Redis refuses this outcome, but may accept the others
            outbox.pass_over(entry.path)
            event("spool-refused", logging.ERROR, file=entry.path, why=repr(error))


def _write(entry: OutboxEntry, outbox: Outbox, leases: Leases) -> None:
    claim = entry.claim
    counted = entry.outcome.write(leases, claim)
    if not counted and not leases.knows(claim.job_id):
        outbox.pass_over(entry.path)  # another store with this namespace has the job, or this store lost the job
        event("spool-foreign", logging.WARNING, job=claim.job_id, file=entry.path)
        return
    outbox.drop(entry.path)
    level = logging.INFO if counted else logging.WARNING  # not counted: another attempt owns or ended the job
    event("unspooled", level, job=claim.job_id, ending=type(entry.outcome).__name__, counted=counted)


def _keep(outcome: Outcome, claim: Claim, outbox: Outbox) -> Path | None:
    try:
        return outbox.keep(outcome, claim)
    except OSError as error:  # the disk is full; the next retry may still succeed
        event("not-spooled", logging.ERROR, job=claim.job_id, why=str(error))
        return None


def _leave(outcome: Outcome, claim: Claim, kept: Path | None) -> None:
    if kept is not None:
        event("ending-spooled", logging.WARNING, job=claim.job_id, ending=type(outcome).__name__, file=kept)
    else:
        event("ending-lost", logging.ERROR, job=claim.job_id, ending=type(outcome).__name__)


def _write_synced(path: Path, text: bytes) -> None:
    """Write and sync the contents. The caller must sync the directory entry: see `fsync_path`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _make_folder(folder: Path) -> None:
    """Create the folder and its parents for this user alone, and sync the directory entry of each new one."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(new):
        path.mkdir(mode=0o700, exist_ok=True)
    for path in new:
        fsync_path(path.parent)
