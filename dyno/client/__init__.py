"""The typed client: submit a job over HTTP, wait for it, read its result. Knows no workload and no server code."""

from __future__ import annotations

from dyno.client.calls import Client
from dyno.client.errors import (
    ComparisonNotMade,
    ConnectionBroken,
    DownloadDamaged,
    JobNotSucceeded,
    Refused,
    ServerUnreachable,
)

__all__ = [
    "Client",
    "ComparisonNotMade",
    "ConnectionBroken",
    "DownloadDamaged",
    "JobNotSucceeded",
    "Refused",
    "ServerUnreachable",
]
