"""Dyno: a dynamometer for CPUs, GPUs and TPUs.

The public names of the client library are imported on first use, because every runner imports this package but
doesn't need the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dyno.client import AsyncClient, Client, Refused, ServerUnreachable
    from dyno.client.exceptions import ComparisonNotMade, ConnectionBroken, DownloadDamaged, JobNotSucceeded
    from dyno.errors import DynoError
    from dyno.models.api_key import ApiKey, CreatedKey, Limits, Me
    from dyno.models.baseline import Baseline
    from dyno.models.comparison import Comparison, UnfinishedComparison
    from dyno.models.inventory import AwayDevice, Cordon, DeviceStatus, WorkerRecord, WorkloadEntry
    from dyno.models.job import Job, Status, Validation
    from dyno.models.job_schedule import JobSchedule
    from dyno.models.result import Artifact, Metric, Result, RunSamples, Verdict
    from dyno.models.result_export import ResultRow
    from dyno.models.spec import Spec
    from dyno.models.sweep import Sweep, SweepSummary
    from dyno.models.webhook import Delivery

_NAMES = {
    "dyno.client": "AsyncClient Client ComparisonNotMade ConnectionBroken DownloadDamaged JobNotSucceeded Refused "
    "ServerUnreachable",
    "dyno.errors": "DynoError",
    "dyno.models.api_key": "ApiKey CreatedKey Limits Me",
    "dyno.models.baseline": "Baseline",
    "dyno.models.comparison": "Comparison UnfinishedComparison",
    "dyno.models.inventory": "AwayDevice Cordon DeviceStatus WorkerRecord WorkloadEntry",
    "dyno.models.job": "Job Status Validation",
    "dyno.models.result": "Artifact Metric Result RunSamples Verdict",
    "dyno.models.result_export": "ResultRow",
    "dyno.models.job_schedule": "JobSchedule",
    "dyno.models.spec": "Spec",
    "dyno.models.sweep": "Sweep SweepSummary",
    "dyno.models.webhook": "Delivery",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ApiKey",
    "Artifact",
    "AsyncClient",
    "AwayDevice",
    "Baseline",
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
    "JobSchedule",
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
    "Sweep",
    "SweepSummary",
    "UnfinishedComparison",
    "Validation",
    "Verdict",
    "WorkerRecord",
    "WorkloadEntry",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tensordyno")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
