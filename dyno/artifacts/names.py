"""What an artifact may be called, how it is served, and under which name a store keeps it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # no separator, no leading dot: never a path, never hidden
WEIGHTS_SUFFIXES = (".weights.h5", ".keras")

_DIGEST_SHOWN = 16
MEDIA_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
ANY = "application/octet-stream"


def is_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


def is_weights(name: str) -> bool:
    """Whether Keras can load weights from a file of that name."""
    return name.endswith(WEIGHTS_SUFFIXES)


def media_type(name: str) -> str:
    """From a fixed list, by suffix and never by content; everything else is only bytes."""
    return MEDIA_TYPES.get(PurePosixPath(name).suffix.lower(), ANY)


def stored_name(name: str, sha256: str) -> str:
    """By content: two attempts at one job never write to the same file, unless they write the same.

    So the files that an accepted result lists can't be touched by an attempt that lost its lease, whoever it writes to.
    """
    return f"{sha256[:_DIGEST_SHOWN]}-{name}"
