"""Crash-safe file writes: contents and directory entries are synced, so they survive a loss of power."""

import os
from pathlib import Path


def write_synced(path: Path, text: bytes) -> None:
    """Write and sync the contents. The file's directory entry isn't synced yet: see `fsync_path`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def make_folder(folder: Path) -> None:
    """Create the folder and its parents for this user alone, and sync the directory entry of each new one."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(new):
        path.mkdir(mode=0o700, exist_ok=True)
    for path in new:
        fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """Sync a file or a folder. A power failure can lose a new file until its folder is synced too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
