"""After the last run: its files go to the store, and what doesn't get there is a warning.

By now the work is done and measured. To do it again because a disk is full would cost as long once more and change
nothing, so a store that fails costs the files alone and never the result.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from dyno.artifact_store import is_artifact_name
from dyno.errors import ArtifactStoreUnavailable, ArtifactTooLarge, StaleToken, StoreUnavailable
from dyno.measure.warnings import warning
from dyno.models.result import Artifact, ResultWarning
from dyno.store.leases import Claim
from workers.delivery import Sender
from workers.ending import Dropped, HandedBack
from workers.equipment import WorkerContext
from workers.errand import AttemptEnded, CallTimedOut, errand
from workers.log import LOG, event
from workers.pulse import Pulse

MAX_FILES = 100  # of one job: every one of them is in its result
PHASE = "artifacts"  # as progress shows it

_PASSING = (ArtifactStoreUnavailable, StoreUnavailable)
_SLOWEST_BYTES_PER_S = 2**20  # a transfer that is slower than this is taken for one that hangs
_LEAST_S = 60.0
_NAMED = 3  # files in the warning's sentence; its evidence has up to MAX_FILES


@dataclass(frozen=True)
class NotStored:
    """A file that the job left and nobody will find; `size_bytes` is null for what is no regular file."""

    name: str
    size_bytes: int | None
    why: str


@dataclass
class Kept:
    artifacts: list[Artifact] = field(default_factory=list)
    not_stored: list[NotStored] = field(default_factory=list)

    @property
    def warnings(self) -> list[ResultWarning]:
        """ARTIFACTS_NOT_STORED with names, sizes and reasons, where there are any."""
        if not self.not_stored:
            return []
        lost, count = self.not_stored, len(self.not_stored)
        told = "; ".join(f"{each.name}: {each.why}" for each in lost[:_NAMED])
        more = f"; and {count - _NAMED} more" if count > _NAMED else ""
        files: list[JsonValue] = [
            {"name": each.name, "bytes": each.size_bytes, "why": each.why} for each in lost[:MAX_FILES]
        ]
        message = f"{count} of the files that the job left could not be stored and are lost: {told}{more}"
        return [warning("ARTIFACTS_NOT_STORED", message, count=count, files=files)]


class Keeping:
    """`keep` once. Raises AttemptEnded where the job is canceled meanwhile, or another attempt has it."""

    def __init__(
        self, sender: Callable[[], Sender], claim: Claim, heartbeat: Pulse, context: WorkerContext, run: int
    ) -> None:
        """`run`: the number of the last one, for the heartbeats that go on."""
        self._sender, self._claim, self._heartbeat, self._context, self._run = sender, claim, heartbeat, context, run
        self._patience_s = context.settings.artifact_patience_s
        self._given_up: str | None = None
        self._kept = Kept()

    def keep(self, folder: Path) -> Kept:
        """Store every regular file in `folder` that has a valid name, in the order of names."""
        try:
            entries = _entries(folder)
        except OSError as error:
            self._lose(folder, f"the folder of the job's files can't be read: {error.strerror or error}")
            return self._kept
        for path, refused in entries:
            why = refused or self._given_up or self._store(path)
            if why is not None:
                self._lose(path, why)
        return self._kept

    def _lose(self, path: Path, why: str) -> None:
        event("file-lost", logging.ERROR, job=self._claim.job_id, file=path.name, why=why)
        size_bytes = path.lstat().st_size if path.is_file() and not path.is_symlink() else None
        self._kept.not_stored.append(NotStored(_printable(path.name), size_bytes, _printable(why)))

    def _store(self, path: Path) -> str | None:
        """None once it is stored, or else why it isn't."""
        try:
            self._kept.artifacts.append(self._send(path))
        except StaleToken as error:
            raise AttemptEnded(Dropped()) from error
        except AttemptEnded as early:
            if not isinstance(early.ending, HandedBack):
                raise
            self._given_up = "the worker had to end before the store had taken it"
            return self._given_up
        except ArtifactTooLarge as error:
            return error.detail
        except CallTimedOut as error:
            self._given_up = f"the store hangs: {error}"
            return self._given_up
        except _PASSING as error:
            self._patience_s = 0.0  # spent: each further file has one try
            return error.detail
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file, the measurement stands
            LOG.exception("file-broke job=%s file=%s", self._claim.job_id, path.name)
            return f"{type(error).__name__}: {error}"
        self._patience_s = self._context.settings.artifact_patience_s
        return None

    def _send(self, path: Path) -> Artifact:
        size_bytes, limit = path.stat().st_size, self._context.settings.artifact_max_bytes
        if size_bytes > limit:
            raise ArtifactTooLarge(f"it has {size_bytes} bytes, at most {limit} are kept")
        patience_s = self._patience_s
        while True:
            within_s = _LEAST_S + 2 * (patience_s + size_bytes / _SLOWEST_BYTES_PER_S)
            work = partial(self._sender().send, _named_again(path), patience_s, _PASSING)
            try:
                return errand(work, PHASE, self._run, self._heartbeat, self._context, within_s)
            except (*_PASSING, CallTimedOut):
                if self._heartbeat.heard:
                    raise
                patience_s = _LEAST_S  # while Redis is away the result can't be written either: nothing is lost by this


def _named_again(path: Path) -> Path:
    """The file under a name that only one try has.

    A store may rename away what it is given, and a try that was left behind may do so while the next one is at it.
    """
    try:
        own = Path(tempfile.mkdtemp(prefix=".", dir=path.parent)) / path.name
        own.hardlink_to(path)
    except OSError:  # a full disk, or a file system without such links: then at least the first try may succeed
        return path
    return own


def _entries(folder: Path) -> list[tuple[Path, str | None]]:
    """What is in the folder, by name, and why not to store it."""
    found: list[tuple[Path, str | None]] = []
    fit = 0
    for path in sorted(folder.iterdir()):
        refused = _refusal(path)
        fit += refused is None
        over = f"at most {MAX_FILES} files of a job are kept" if fit > MAX_FILES else None
        found.append((path, refused or over))
    return found


def _refusal(path: Path) -> str | None:
    if not path.is_file() or path.is_symlink():  # a link could lead anywhere on this host
        return "it is no regular file"
    if not is_artifact_name(path.name):
        return "its name is none: letters, digits, dot, dash and underscore, a letter or digit first"
    return None


def _printable(text: str) -> str:
    """A file's name can hold bytes that are no UTF-8, and a result is JSON."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
