"""Whether files can be kept in a folder that need not exist yet."""

from __future__ import annotations

import tempfile
from pathlib import Path


def nearest(folder: Path) -> Path:
    """`folder`, or the nearest of its parents that exists. Raises OSError where that can't be seen."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def write_error(folder: Path) -> str | None:
    """Why nothing can be written there, None where it can. Tried for real, since root may write where modes say no."""
    there = folder
    try:
        there = nearest(folder)
        if not there.is_dir():
            return "it is not a folder" if there == folder else f"{there} is not a folder"
        with tempfile.TemporaryDirectory(prefix=".dyno-", dir=there):
            return None
    except OSError as error:
        return f"nothing can be written to {there}: {error.strerror}"
