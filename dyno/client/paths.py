"""Names in paths: what somebody else gave a caller for an id stays one segment, and leads nowhere else."""

from __future__ import annotations

from urllib.parse import quote


def in_path(name: str) -> str:
    """`name` as one segment. HTTPX takes `..` for the way back, so dots alone are written out, too."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")
