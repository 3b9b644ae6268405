"""What a place that keeps artifacts can do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from dyno.result import Artifact

PIECE_BYTES = 1 << 20
ABANDONED_S = 3600.0  # an upload that lives writes every few seconds; clocks of two hosts differ by less


class ArtifactStore(Protocol):
    """Job ids and names are checked by the caller. Every method may block for as long as a disk or network does.

    Raises ArtifactStoreUnavailable where it can't be read or written now.
    """

    def incoming(self, job_id: str) -> Path:
        """A folder for files on their way in: `keep` can then move them instead of copying."""

    def keep(self, job_id: str, name: str, sha256: str, source: Path) -> None:
        """Take the file `source`, which may be gone afterwards; untouched if this raises. Whole and durable, or not."""

    def open(self, job_id: str, artifact: Artifact) -> BinaryIO:
        """To read it from its start. Raises ArtifactNotFound where it is gone, or not of the size it should have."""

    def drop(self, job_id: str) -> None:
        """Delete all files of the job; nothing where there are none."""

    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool:
        """Delete half-written files that nobody has touched for ABANDONED_S and, of a job that is done, those that
        aren't `listed`. False where one is younger: somebody may still write it, so look again later."""

    def check(self) -> None:
        """Raises ArtifactStoreUnavailable where it is known at little cost that no file can be kept now."""


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def url_of(job_id: str, name: str) -> str:
    """Where the API has it, relative to the API."""
    return f"/v1/jobs/{job_id}/artifacts/{name}"
