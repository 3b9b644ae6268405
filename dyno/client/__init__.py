"""The typed clients: submit a job over HTTP, wait for it, read its result.

The clients contain no workload code. They share only the models with the server.
"""

from dyno.client.client import AsyncClient, Client
from dyno.client.exceptions import (
    ComparisonNotMade,
    ConnectionBroken,
    DownloadDamaged,
    JobNotSucceeded,
    Refused,
    ServerUnreachable,
)
from dyno.client.exchange import DEFAULT_URL

__all__ = [
    "DEFAULT_URL",
    "AsyncClient",
    "Client",
    "ComparisonNotMade",
    "ConnectionBroken",
    "DownloadDamaged",
    "JobNotSucceeded",
    "Refused",
    "ServerUnreachable",
]
