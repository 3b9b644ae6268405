"""NumPy's .npz archives of plain arrays: nothing is unpickled, and whatever is wrong with one is DatasetDamaged."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.errors import DatasetDamaged


def read(path: Path, names: Sequence[str], sha256: str | None = None) -> tuple[dict[str, NDArray[Any]], str]:
    """The arrays `names` of the archive and the sum of its file, which must be `sha256` where that is known."""
    found = checksum(path)
    if sha256 is not None and found != sha256:
        raise DatasetDamaged(f"{path}: not {path.name} as published: sha256 {found}, not {sha256}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}, found
    except Exception as error:  # damaged bytes raise what they happen to lead to: BadZipFile, zlib.error, KeyError, …
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def checksum(path: Path) -> str:
    """The sha256 of a file. Raises DatasetDamaged where it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatasetDamaged(f"{path}: {error}") from error
