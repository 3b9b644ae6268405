"""Dyno: a dynamometer for CPUs, GPUs and TPUs.

What programs that ask a Dyno need is here by name, and imported when it is first used: every runner imports this
package, too, and pays for none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dyno.access import ApiKey, CreatedKey, Limits, Me
    from dyno.catalogue import WorkloadEntry
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
    from dyno.comparison import Comparison, UnfinishedComparison
    from dyno.delivery import Delivery
    from dyno.errors import DynoError
    from dyno.fleet import AwayDevice, Cordon, DeviceStatus, WorkerRecord
    from dyno.job import Job, Status, Validation
    from dyno.result import Artifact, Metric, Result, Verdict
    from dyno.rows import ResultRow
    from dyno.samples import RunSamples
    from dyno.spec import Spec

_ACCESS, _CLIENT, _FLEET, _RESULT = "dyno.access", "dyno.client", "dyno.fleet", "dyno.result"
_WHERE = {
    "ApiKey": _ACCESS,
    "Artifact": _RESULT,
    "AsyncClient": _CLIENT,
    "AwayDevice": _FLEET,
    "Client": _CLIENT,
    "Comparison": "dyno.comparison",
    "ComparisonNotMade": _CLIENT,
    "ConnectionBroken": _CLIENT,
    "Cordon": _FLEET,
    "CreatedKey": _ACCESS,
    "Delivery": "dyno.delivery",
    "DeviceStatus": _FLEET,
    "DownloadDamaged": _CLIENT,
    "DynoError": "dyno.errors",
    "Job": "dyno.job",
    "JobNotSucceeded": _CLIENT,
    "Limits": _ACCESS,
    "Me": _ACCESS,
    "Metric": _RESULT,
    "Refused": _CLIENT,
    "Result": _RESULT,
    "ResultRow": "dyno.rows",
    "RunSamples": "dyno.samples",
    "ServerUnreachable": _CLIENT,
    "Spec": "dyno.spec",
    "Status": "dyno.job",
    "UnfinishedComparison": "dyno.comparison",
    "Validation": "dyno.job",
    "Verdict": _RESULT,
    "WorkerRecord": _FLEET,
    "WorkloadEntry": "dyno.catalogue",
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
