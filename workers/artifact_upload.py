"""The files of one attempt: its scratch folder, the weights that it starts from, and the upload of its artifacts.

Files go to the shared store if one is configured, else through the API. The upload follows the measurement. If the
store fails during the upload, the files are lost, and the result has a warning. So the worker tests the store before
the first run. The next attempt deletes the scratch folders of killed workers.
"""

import fcntl
import hashlib
import logging
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

from pydantic import JsonValue

from dyno import artifact_store, errors, folders
from dyno.bench.contract import Params
from dyno.bench.measure.warnings import warning
from dyno.bench.training.workload import TrainingParams
from dyno.client import DownloadDamaged, Refused, ServerUnreachable
from dyno.client.client import AttemptClient
from dyno.logging import WORKER_LOG, event
from dyno.models.job import Failure, FailureClass
from dyno.models.result import Artifact, ResultWarning
from dyno.models.spec import WeightsRef
from dyno.settings import Settings
from dyno.store.leases import Claim, Leases
from workers.heartbeat import AttemptEnded, CallTimedOut, Heartbeat, background_call
from workers.outcome import Dropped, Failed, HandedBack


@contextmanager
def scratch_folder(run_dir: Path) -> Iterator[Path]:
    """An empty folder in this user's part of `run_dir`, deleted with its contents at the end of the block.

    This process locks the folder, and its exit ends the lock. Other workers delete folders that aren't locked.
    Raises OSError if the folder can't be created.
    """
    root = folders.private_folder(run_dir) / "scratch"
    root.mkdir(mode=0o700, exist_ok=True)
    with _locked(root):  # otherwise another worker could delete a new folder before its owner locks it
        _delete_left_overs(root)
        folder = Path(tempfile.mkdtemp(dir=root))
        descriptor = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = _lock(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, operation: int = fcntl.LOCK_EX) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _delete_left_overs(root: Path) -> None:
    for folder in root.iterdir():
        try:
            descriptor = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its owner is alive, or has just deleted it
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


TransientErrors = tuple[type[Exception], ...]

_PAUSE_S = 0.5


class ArtifactStoreUnreachable(errors.ArtifactStoreUnavailable):
    """The store didn't respond; it may be restarting."""


class ArtifactTransport(Protocol):
    """Both methods are idempotent.

    They raise ArtifactStoreUnavailable, and StoreUnavailable if Redis is unreachable.
    """

    def put(self, claim: Claim, name: str, sha256: str, source: Path) -> None:
        """Store a file of the claimed job. Raises StaleToken, ArtifactTooLarge."""

    def get(self, claim: Claim, job_id: str, artifact: Artifact, to: Path) -> None:
        """Download and verify a file that the claimed job starts from. Raises ArtifactNotFound, DownloadDamaged."""


def artifact_transport(settings: Settings, leases: Leases) -> ArtifactTransport:
    """The transport to the shared store if one is configured, else to the API. Raises ArtifactStoreUnfit."""
    store = artifact_store.shared_store(settings)
    if store is not None:
        return SharedStoreTransport(store, leases)
    return ApiTransport(settings.api_url or f"http://127.0.0.1:{settings.port}")


@dataclass(frozen=True)
class ArtifactSender:
    """Uploads files of one claimed job, and retries temporary errors."""

    transport: ArtifactTransport
    claim: Claim
    clock: Callable[[], float]

    def send(self, source: Path, patience_s: float, passing: TransientErrors, abandoned: threading.Event) -> Artifact:
        """Upload `source` under its own name.

        After one of the `passing` errors it retries, until `patience_s` after the first failure, and then raises the
        error. Raises other errors at once. A transfer without errors has no time limit.
        """
        name, size_bytes, sha256 = source.name, source.stat().st_size, artifact_store.sha256_of(source)
        deadline_s = math.inf
        while True:
            try:
                self.transport.put(self.claim, name, sha256, source)
                return Artifact(
                    name=name, bytes=size_bytes, sha256=sha256, url=artifact_store.artifact_url(self.claim.job_id, name)
                )
            except passing as error:
                deadline_s = min(deadline_s, self.clock() + patience_s)
                if abandoned.is_set() or self.clock() + _PAUSE_S >= deadline_s:
                    raise
                event("file-not-stored", logging.WARNING, job=self.claim.job_id, file=name, why=str(error))
            abandoned.wait(_PAUSE_S)


class SharedStoreTransport:
    """Writes directly to the store. This needs no token: stored names derive from the content
    (`dyno.artifact_store.stored_name`)."""

    def __init__(self, store: artifact_store.ArtifactStore, leases: Leases) -> None:
        self._store, self._leases = store, leases

    def put(self, claim: Claim, name: str, sha256: str, source: Path) -> None:
        self._leases.note_artifacts(claim)
        self._store.keep(claim.job_id, name, sha256, source)

    def get(self, claim: Claim, job_id: str, artifact: Artifact, to: Path) -> None:
        digest = hashlib.sha256()
        with self._store.open(job_id, artifact) as source, to.open("wb") as file:
            while piece := source.read(artifact_store.PIECE_BYTES):
                file.write(piece)
                digest.update(piece)
        if digest.hexdigest() != artifact.sha256:
            raise DownloadDamaged(
                f"the SHA-256 of {artifact.name} of {job_id} differs from the one in the job's result"
            )


class ApiTransport:
    """Sends files through the API, which checks the attempt's token. Each file uses a new connection, so that no
    connection stays open during runs.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def put(self, claim: Claim, name: str, sha256: str, source: Path) -> None:
        with self._errors(), self._client(claim) as client:
            kept = client.upload(name, source)
        if kept.sha256 != sha256:
            raise errors.ArtifactStoreUnavailable(
                f"{self._url} received {name} with a different SHA-256 than the local file"
            )

    def get(self, claim: Claim, job_id: str, artifact: Artifact, to: Path) -> None:
        with self._errors(), self._client(claim) as client:
            client.download(job_id, artifact, to)

    def _client(self, claim: Claim) -> AttemptClient:
        return AttemptClient(self._url, claim.job_id, claim.token)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ServerUnreachable as error:
            raise ArtifactStoreUnreachable(
                f"the API can't be reached to store or fetch files: {error.detail}. Set DYNO_API_URL to its address, "
                "or DYNO_ARTIFACT_URL to a shared store"
            ) from error
        except Refused as error:
            raise _error_of(error) from error


_ERROR_TYPES: dict[str, type[errors.DynoError]] = {
    "artifact-not-found": errors.ArtifactNotFound,
    "artifact-too-large": errors.ArtifactTooLarge,
    "job-not-found": errors.StaleToken,
    "no-result": errors.ArtifactNotFound,
    "result-not-ready": errors.ArtifactNotFound,
    "stale-token": errors.StaleToken,
    "store-unavailable": ArtifactStoreUnreachable,
}


def _error_of(error: Refused) -> errors.DynoError:
    kind = _ERROR_TYPES.get(str(error.problem.get("code")), errors.ArtifactStoreUnavailable)
    return kind(error.detail)


WEIGHTS_UNAVAILABLE = "weights_unavailable"


def fetch_weights(
    ref: WeightsRef, claim: Claim, leases: Leases, transport: ArtifactTransport, folder: Path, max_bytes: int
) -> Path | Failure:
    """Download the weights into `folder` under their own name, and verify them by the SHA-256 in their job's result.

    Returns the path of the file, or the failure.
    """
    try:
        listed = leases.artifacts(ref.job)
        artifact = _named(ref, listed)
        if isinstance(artifact, str):
            return _weights_failure(FailureClass.UNSUPPORTED, artifact)
        if artifact.bytes > max_bytes:
            why = f"{ref.name} has {artifact.bytes} bytes, the limit is {max_bytes}"
            return _weights_failure(FailureClass.RESOURCE, why)
        path = folder / artifact.name
        transport.get(claim, ref.job, artifact, path)
    except errors.ArtifactNotFound as error:
        return _weights_failure(FailureClass.UNSUPPORTED, error.detail)
    except (errors.ArtifactStoreUnavailable, errors.StoreUnavailable, DownloadDamaged) as error:
        return _weights_failure(FailureClass.INFRASTRUCTURE, error.detail)
    refused = artifact_store.unsafe_weights_reason(path, max_bytes)
    return path if refused is None else _weights_failure(FailureClass.UNSUPPORTED, refused)


def _named(ref: WeightsRef, listed: list[Artifact] | None) -> Artifact | str:
    """The artifact, or an error message. The job of the weights existed at submit, but may have expired since."""
    if listed is None:
        return f"{ref.job} and its files are gone"
    if not (artifact_store.is_artifact_name(ref.name) and artifact_store.is_weights(ref.name)):
        return f'"{ref.name}" is not a weights file'
    matches = (artifact for artifact in listed if artifact.name == ref.name)
    return next(matches, f"{ref.job} has no file {ref.name}")


def _weights_failure(failure_class: FailureClass, message: str) -> Failure:
    return Failure(
        failure_class=failure_class, reason=WEIGHTS_UNAVAILABLE, message=f"the weights are unavailable: {message}"
    )


MAX_FILES = 100  # per job: its result lists all of them
UPLOAD_PHASE = "artifacts"  # name of the phase in progress reports

_TRANSIENT_ERRORS = (errors.ArtifactStoreUnavailable, errors.StoreUnavailable)
_SLOWEST_BYTES_PER_S = 2**20  # slower transfers are canceled
_LEAST_S = 60.0
_LISTED = 3  # number of files in the warning's message; the evidence lists up to MAX_FILES


@dataclass(frozen=True)
class LostArtifact:
    """A file of the job that wasn't stored. `size_bytes`: None if it isn't a regular file."""

    name: str
    size_bytes: int | None
    why: str


@dataclass
class UploadedArtifacts:
    artifacts: list[Artifact] = field(default_factory=list)
    not_stored: list[LostArtifact] = field(default_factory=list)

    @property
    def warnings(self) -> list[ResultWarning]:
        """The warning ARTIFACTS_NOT_STORED with names, sizes and reasons, if files were lost; otherwise empty."""
        if not self.not_stored:
            return []
        lost, count = self.not_stored, len(self.not_stored)
        reasons = "; ".join(f"{artifact.name}: {artifact.why}" for artifact in lost[:_LISTED])
        more = f"; and {count - _LISTED} more" if count > _LISTED else ""
        files: list[JsonValue] = [
            {"name": artifact.name, "bytes": artifact.size_bytes, "why": artifact.why} for artifact in lost[:MAX_FILES]
        ]
        message = f"{count} of the job's files could not be stored and are lost: {reasons}{more}"
        return [warning("ARTIFACTS_NOT_STORED", message, count=count, files=files)]


class ArtifactUpload:
    """Uploads the files of one attempt; call `keep` once.

    Raises AttemptEnded if the job is canceled meanwhile, or if another attempt owns it.
    """

    def __init__(
        self, sender: Callable[[], ArtifactSender], claim: Claim, heartbeat: Heartbeat, settings: Settings, run: int
    ) -> None:
        """`run`: the number of the last run, for the heartbeats during the upload."""
        self._sender, self._claim, self._heartbeat, self._settings, self._run = sender, claim, heartbeat, settings, run
        self._patience_s = settings.artifact_patience_s
        self._given_up: str | None = None
        self._kept = UploadedArtifacts()

    def keep(self, folder: Path) -> UploadedArtifacts:
        """Store every regular file in `folder` that has a valid name, sorted by name."""
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
        self._kept.not_stored.append(LostArtifact(_printable(path.name), size_bytes, _printable(why)))

    def _store(self, path: Path) -> str | None:
        """Store one file. Returns None, or the reason if it wasn't stored."""
        try:
            self._kept.artifacts.append(self._send(path))
        except errors.StaleToken as error:
            raise AttemptEnded(Dropped()) from error
        except AttemptEnded as early:
            if not isinstance(early.outcome, HandedBack):
                raise
            self._given_up = "the worker shut down before the upload finished"
            return self._given_up
        except errors.ArtifactTooLarge as error:
            return error.detail
        except CallTimedOut as error:
            self._given_up = f"the artifact store doesn't respond: {error}"
            return self._given_up
        except _TRANSIENT_ERRORS as error:
            self._patience_s = 0.0  # used up: send each further file once, without retries
            return error.detail
        except Exception as error:  # noqa: BLE001 - a problem with a file must not lose the result
            WORKER_LOG.exception("file-broke job=%s file=%s", self._claim.job_id, path.name)
            return f"{type(error).__name__}: {error}"
        self._patience_s = self._settings.artifact_patience_s
        return None

    def _send(self, path: Path) -> Artifact:
        size_bytes, limit = path.stat().st_size, self._settings.artifact_max_bytes
        if size_bytes > limit:
            raise errors.ArtifactTooLarge(f"it has {size_bytes} bytes, the limit is {limit}")
        patience_s = self._patience_s
        while True:
            within_s = _LEAST_S + 2 * (patience_s + size_bytes / _SLOWEST_BYTES_PER_S)
            work = partial(self._sender().send, _under_unique_name(path), patience_s, _TRANSIENT_ERRORS)
            try:
                return background_call(work, UPLOAD_PHASE, self._run, self._heartbeat, within_s)
            except (*_TRANSIENT_ERRORS, CallTimedOut):
                if self._heartbeat.heard:
                    raise
                patience_s = (
                    _LEAST_S  # while Redis is unreachable, the result can't be written either: waiting delays nothing
                )


def _under_unique_name(path: Path) -> Path:
    """A hard link to the file, for one try only.

    A store may move the file that it gets. An abandoned try may move it while the next try reads the same file.
    """
    try:
        link = Path(tempfile.mkdtemp(prefix=".", dir=path.parent)) / path.name
        link.hardlink_to(path)
    except OSError:  # full disk, or no hard links: without the link, at least the first try can succeed
        return path
    return link


def _entries(folder: Path) -> list[tuple[Path, str | None]]:
    """The folder's entries sorted by name, each with the reason not to store it, or None."""
    entries: list[tuple[Path, str | None]] = []
    fit = 0
    for path in sorted(folder.iterdir()):
        refused = _refusal(path)
        fit += refused is None
        over = f"the limit is {MAX_FILES} files per job" if fit > MAX_FILES else None
        entries.append((path, refused or over))
    return entries


def _refusal(path: Path) -> str | None:
    if not path.is_file() or path.is_symlink():  # a link could lead anywhere on this host
        return "it is not a regular file"
    if not artifact_store.is_artifact_name(path.name):
        return "invalid name: use letters, digits, dot, dash and underscore, beginning with a letter or digit"
    return None


def _printable(text: str) -> str:
    """Escape bytes that aren't UTF-8: a file's name can contain them, but the result is JSON."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


T = TypeVar("T")

_PREPARE_PHASE = "files"  # name of the phase in progress reports
_PROBE = "probe"  # no result lists this file, so cleanup deletes it when the job is done
_PROBE_BYTES = 64 * 1024  # an empty file would fit on a full disk
_PROBE_PATIENCE_S = 5.0  # enough for a restart of the API; an attempt that fails before its first run loses little


class JobFiles:
    """The local files of one attempt, deleted at the end of the block. Methods raise AttemptEnded with the outcome."""

    def __init__(self, claim: Claim, heartbeat: Heartbeat, leases: Leases, settings: Settings) -> None:
        self._claim, self._heartbeat, self._leases, self._settings = claim, heartbeat, leases, settings
        self._stack = ExitStack()
        self.weights: Path | None = None

    def __enter__(self) -> Self:
        try:
            self._folder = self._stack.enter_context(scratch_folder(self._settings.run_dir))
        except OSError as error:
            detail = f"can't create a folder for the job's files in {self._settings.run_dir}: {error}"
            raise AttemptEnded(_failed(FailureClass.INFRASTRUCTURE, "artifact_store_unavailable", detail)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def _transport(self) -> ArtifactTransport:
        return artifact_transport(self._settings, self._leases)

    @property
    def scratch(self) -> Path:
        """The folder of all files, deleted with the attempt."""
        return self._folder

    def empty(self) -> Path:
        """The folder for the files of run 0, emptied: a failed start of run 0 may have left files."""
        folder = self._folder / "artifacts"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    @contextmanager
    def room(self) -> Iterator[Path]:
        """An empty folder for temporary files of one run, deleted after the run, so that files don't accumulate."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prepare(self, params: Params, *, leaves_files: bool = True) -> None:
        """Before the first run, test the store if the job will upload files, and fetch the job's initial weights.

        If the store fails this test, the attempt fails now. Hours later, after the training, `deliver` could only warn.
        """
        if isinstance(params, TrainingParams):
            if leaves_files:
                self._on_a_thread(self._probe)
            if params.weights is not None:
                self._fetch(params.weights)

    def _probe(self, abandoned: threading.Event) -> None:
        source = self._folder / _PROBE
        source.write_bytes(bytes(min(_PROBE_BYTES, self._settings.artifact_max_bytes)))
        patience_s = min(_PROBE_PATIENCE_S, self._settings.artifact_patience_s)
        self._sender().send(source, patience_s, (ArtifactStoreUnreachable, errors.StoreUnavailable), abandoned)

    def _fetch(self, ref: WeightsRef) -> None:
        folder = self._folder / "weights"
        folder.mkdir()
        leases, max_bytes = self._leases, self._settings.artifact_max_bytes

        def fetch(_: threading.Event) -> Path | Failure:
            return fetch_weights(ref, self._claim, leases, self._transport, folder, max_bytes)

        weights = self._on_a_thread(fetch)
        if isinstance(weights, Failure):
            raise AttemptEnded(Failed(weights))
        self.weights = weights

    def deliver(self, run: int) -> UploadedArtifacts:
        """After the last run (number `run`), store the files of run 0. If the store fails, the attempt continues."""
        return ArtifactUpload(self._sender, self._claim, self._heartbeat, self._settings, run).keep(
            self._folder / "artifacts"
        )

    def _sender(self) -> ArtifactSender:
        return ArtifactSender(self._transport, self._claim, self._heartbeat.clock)

    def _on_a_thread(self, work: Callable[[threading.Event], T]) -> T:
        try:
            return background_call(work, _PREPARE_PHASE, 0, self._heartbeat)
        except errors.StaleToken as error:
            raise AttemptEnded(Dropped()) from error
        except (errors.ArtifactStoreUnavailable, errors.ArtifactTooLarge, errors.StoreUnavailable) as error:
            detail = f"the job's files can't be stored: {error.detail}"
            raise AttemptEnded(_failed(FailureClass.INFRASTRUCTURE, "artifact_store_unavailable", detail)) from error


def _failed(failure_class: FailureClass, reason: str, message: str) -> Failed:
    return Failed(Failure(failure_class=failure_class, reason=reason, message=message))
