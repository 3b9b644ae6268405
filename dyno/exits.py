"""Exit codes that scripts rely on, and whoever starts a worker; 0, 1 (it broke) and 2 (wrong usage) are everybody's."""

from __future__ import annotations

from enum import IntEnum


class OfCommand(IntEnum):
    """Of `dyno …`, where it asks an API."""

    FAILED = 1
    REFUSED = 3
    UNREACHABLE = 4
    SLOWER = 5  # `dyno compare`: than the first


class OfWorker(IntEnum):
    """Of `dyno worker`, which becomes a worker."""

    NOT_STARTED = 3
    DEVICE_GONE = 4  # it was there at the start
