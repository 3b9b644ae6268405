"""The weights of another job, fetched before the first run."""

from __future__ import annotations

from pathlib import Path

from dyno.artifact_store import is_artifact_name, is_weights, unsafe_weights_reason
from dyno.client import DownloadDamaged
from dyno.errors import ArtifactNotFound, ArtifactStoreUnavailable, StoreUnavailable
from dyno.models.job import Failure, FailureClass
from dyno.models.result import Artifact
from dyno.models.spec import WeightsRef
from dyno.store.leases import Claim, Leases
from workers.delivery import Delivery

REASON = "weights_unavailable"


def fetch_weights(
    ref: WeightsRef, claim: Claim, leases: Leases, transport: Delivery, folder: Path, max_bytes: int
) -> Path | Failure:
    """A file in `folder`, checked against what the other job's result lists, its name and suffix kept; or why not."""
    try:
        listed = leases.artifacts(ref.job)
        artifact = _named(ref, listed)
        if isinstance(artifact, str):
            return _failure(FailureClass.UNSUPPORTED, artifact)
        if artifact.bytes > max_bytes:
            why = f"{ref.name} has {artifact.bytes} bytes, at most {max_bytes} are loaded"
            return _failure(FailureClass.RESOURCE, why)
        path = folder / artifact.name
        transport.get(claim, ref.job, artifact, path)
    except ArtifactNotFound as error:
        return _failure(FailureClass.UNSUPPORTED, error.detail)
    except (ArtifactStoreUnavailable, StoreUnavailable, DownloadDamaged) as error:
        return _failure(FailureClass.INFRASTRUCTURE, error.detail)
    refused = unsafe_weights_reason(path, max_bytes)
    return path if refused is None else _failure(FailureClass.UNSUPPORTED, refused)


def _named(ref: WeightsRef, listed: list[Artifact] | None) -> Artifact | str:
    """The artifact, or why there is none: the job was there when this one was accepted, and may have expired since."""
    if listed is None:
        return f"{ref.job} and its files are gone"
    if not (is_artifact_name(ref.name) and is_weights(ref.name)):
        return f'"{ref.name}" is no file of weights'
    found = next((artifact for artifact in listed if artifact.name == ref.name), None)
    return found or f"{ref.job} left no {ref.name}"


def _failure(failure_class: FailureClass, message: str) -> Failure:
    return Failure(failure_class=failure_class, reason=REASON, message=f"the weights can't be had: {message}")
