"""Dyno: a dynamometer for CPUs, GPUs and TPUs.

The public names of the client library are imported on first use, because every runner imports this package too and
must not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dyno.client import (
        AsyncClient,
        Client,
        ComparisonNotMade,
        ConnectionBroken,
        DownloadDamaged,
        JobNotSucceeded,
        Refused,
        ServerUnreachable,
    )
    from dyno.errors import DynoError
    from dyno.models.api_key import ApiKey, CreatedKey, Limits, Me
    from dyno.models.comparison import Comparison, UnfinishedComparison
    from dyno.models.inventory import AwayDevice, Cordon, DeviceStatus, WorkerRecord, WorkloadEntry
    from dyno.models.job import Job, Status, Validation
    from dyno.models.result import Artifact, Metric, Result, ResultRow, RunSamples, Verdict
    from dyno.models.spec import Spec
    from dyno.models.webhook import Delivery

_ACCESS, _CLIENT, _FLEET, _RESULT = "dyno.models.api_key", "dyno.client", "dyno.models.inventory", "dyno.models.result"
_WHERE = {
    "ApiKey": _ACCESS,
    "Artifact": _RESULT,
    "AsyncClient": _CLIENT,
    "AwayDevice": _FLEET,
    "Client": _CLIENT,
    "Comparison": "dyno.models.comparison",
    "ComparisonNotMade": _CLIENT,
    "ConnectionBroken": _CLIENT,
    "Cordon": _FLEET,
    "CreatedKey": _ACCESS,
    "Delivery": "dyno.models.webhook",
    "DeviceStatus": _FLEET,
    "DownloadDamaged": _CLIENT,
    "DynoError": "dyno.errors",
    "Job": "dyno.models.job",
    "JobNotSucceeded": _CLIENT,
    "Limits": _ACCESS,
    "Me": _ACCESS,
    "Metric": _RESULT,
    "Refused": _CLIENT,
    "Result": _RESULT,
    "ResultRow": "dyno.models.result",
    "RunSamples": "dyno.models.result",
    "ServerUnreachable": _CLIENT,
    "Spec": "dyno.models.spec",
    "Status": "dyno.models.job",
    "UnfinishedComparison": "dyno.models.comparison",
    "Validation": "dyno.models.job",
    "Verdict": _RESULT,
    "WorkerRecord": _FLEET,
    "WorkloadEntry": "dyno.models.inventory",
}

__all__ = [
    "ApiKey",
    "Artifact",
    "AsyncClient",
    "AwayDevice",
    "Client",
    "Comparison",
    "ComparisonNotMade",
    "ConnectionBroken",
    "Cordon",
    "CreatedKey",
    "Delivery",
    "DeviceStatus",
    "DownloadDamaged",
    "DynoError",
    "Job",
    "JobNotSucceeded",
    "Limits",
    "Me",
    "Metric",
    "Refused",
    "Result",
    "ResultRow",
    "RunSamples",
    "ServerUnreachable",
    "Spec",
    "Status",
    "UnfinishedComparison",
    "Validation",
    "Verdict",
    "WorkerRecord",
    "WorkloadEntry",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
