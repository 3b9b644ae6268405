"""Crash-safe file writes: data and names are synced, so they survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def write_synced(path: Path, text: bytes) -> None:
    """Synced when this returns; the name is not, yet: see `fsync_path`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def make_folder(folder: Path) -> None:
    """With all that it lies in. A folder's name is in its parent, as a file's is: see `fsync_path`."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in new:
        fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """A file, or a folder. A file's name is in its folder: until that is synced, too, a loss of power may take it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
