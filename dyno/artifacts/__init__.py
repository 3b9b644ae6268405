"""The files that jobs leave behind: what they may be called, and the places that keep them."""

from __future__ import annotations

from pathlib import Path

from dyno.artifacts.folder import FolderStore
from dyno.artifacts.remote import remote_store
from dyno.artifacts.store import ArtifactStore
from dyno.errors import ArtifactStoreUnfit
from dyno.settings import Settings

_FILE = ("file://", "local://")


def shared_store(settings: Settings) -> ArtifactStore | None:
    """What DYNO_ARTIFACT_URL names, for the API and every worker alike; None where it names nothing.

    Writes nothing. Raises ArtifactStoreUnfit for a URL that can't be used: no driver, or no place that hosts share.
    """
    url = settings.artifact_url
    if url is None:
        return None
    scheme = next((scheme for scheme in _FILE if url.startswith(scheme)), None)
    if scheme is None:
        return remote_store(url, FolderStore(settings.run_dir / "incoming"))
    path = url.removeprefix(scheme)
    if not path.startswith("/"):
        raise ArtifactStoreUnfit(f"DYNO_ARTIFACT_URL is {url}: a folder's path has to be absolute, as in file:///srv/x")
    return FolderStore(Path(path))


def service_store(settings: Settings) -> ArtifactStore:
    """What the API keeps artifacts in: the shared store, or else a folder of its own."""
    return shared_store(settings) or FolderStore(settings.artifact_dir)
