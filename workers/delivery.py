"""How a worker's files reach the artifact store, and those of other jobs the worker."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dyno.artifact_store import PIECE_BYTES, ArtifactStore, artifact_url, sha256_of, shared_store
from dyno.client import DownloadDamaged, Refused, ServerUnreachable
from dyno.client.client import AttemptClient
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, ArtifactTooLarge, DynoError, StaleToken
from dyno.models.result import Artifact
from dyno.settings import Settings
from dyno.store.leases import Claim, Leases
from workers.log import event

Passing = tuple[type[Exception], ...]

_PAUSE_S = 0.5


class ArtifactStoreUnreachable(ArtifactStoreUnavailable):
    """Nobody answers there: it may just be starting again."""


class Delivery(Protocol):
    """Both may be repeated. They raise ArtifactStoreUnavailable, and StoreUnavailable while Redis is away."""

    def put(self, claim: Claim, name: str, sha256: str, source: Path) -> None:
        """Store a file of the claimed job. Raises StaleToken, ArtifactTooLarge."""

    def get(self, claim: Claim, job_id: str, artifact: Artifact, to: Path) -> None:
        """Fetch a file that the claimed job starts from, and check it. Raises ArtifactNotFound, DownloadDamaged."""


def artifact_transport(settings: Settings, leases: Leases) -> Delivery:
    """To the shared store where there is one, else through the API. Raises ArtifactStoreUnfit."""
    store = shared_store(settings)
    if store is not None:
        return ToSharedStore(store, leases)
    return ThroughApi(settings.api_url or f"http://127.0.0.1:{settings.port}")


@dataclass(frozen=True)
class Sender:
    """Puts files of one claimed job, each again and again for what passes."""

    transport: Delivery
    claim: Claim
    clock: Callable[[], float]

    def send(self, source: Path, patience_s: float, passing: Passing, abandoned: threading.Event) -> Artifact:
        """Under the name of `source`. Raises what is not `passing`, and what still fails `patience_s` after the first
        failure: a transfer that goes well may take as long as it does.
        """
        name, size_bytes, sha256 = source.name, source.stat().st_size, sha256_of(source)
        deadline_s = math.inf
        while True:
            try:
                self.transport.put(self.claim, name, sha256, source)
                return Artifact(name=name, bytes=size_bytes, sha256=sha256, url=artifact_url(self.claim.job_id, name))
            except passing as error:
                deadline_s = min(deadline_s, self.clock() + patience_s)
                if abandoned.is_set() or self.clock() + _PAUSE_S >= deadline_s:
                    raise
                event("file-not-stored", logging.WARNING, job=self.claim.job_id, file=name, why=str(error))
            abandoned.wait(_PAUSE_S)


class ToSharedStore:
    """No token guards the store: names by content do (`dyno.artifact_store.stored_name`)."""

    def __init__(self, store: ArtifactStore, leases: Leases) -> None:
        self._store, self._leases = store, leases

    def put(self, claim: Claim, name: str, sha256: str, source: Path) -> None:
        self._leases.note_artifacts(claim)
        self._store.keep(claim.job_id, name, sha256, source)

    def get(self, claim: Claim, job_id: str, artifact: Artifact, to: Path) -> None:
        digest = hashlib.sha256()
        with self._store.open(job_id, artifact) as source, to.open("wb") as file:
            while piece := source.read(PIECE_BYTES):
                file.write(piece)
                digest.update(piece)
        if digest.hexdigest() != artifact.sha256:
            raise DownloadDamaged(f"{artifact.name} of {job_id} has another SHA-256 than its result lists")


class ThroughApi:
    """The API checks the attempt's token; connections are made anew for each file, so that none is held meanwhile."""

    def __init__(self, url: str) -> None:
        self._url = url

    def put(self, claim: Claim, name: str, sha256: str, source: Path) -> None:
        with self._errors(), self._client(claim) as client:
            kept = client.upload(name, source)
        if kept.sha256 != sha256:
            raise ArtifactStoreUnavailable(f"{self._url} got {name} with another SHA-256 than it has here")

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
                f"the API can't be reached to store or fetch files: {error.detail}. DYNO_API_URL says where it is; "
                "DYNO_ARTIFACT_URL names a store that needs no API"
            ) from error
        except Refused as error:
            raise _meaning(error) from error


_MEANINGS: dict[str, type[DynoError]] = {
    "artifact-not-found": ArtifactNotFound,
    "artifact-too-large": ArtifactTooLarge,
    "job-not-found": StaleToken,
    "no-result": ArtifactNotFound,
    "result-not-ready": ArtifactNotFound,
    "stale-token": StaleToken,
    "store-unavailable": ArtifactStoreUnreachable,
}


def _meaning(error: Refused) -> DynoError:
    kind = _MEANINGS.get(str(error.problem.get("code")), ArtifactStoreUnavailable)
    return kind(error.detail)
