"""Dyno: a dynamometer for CPUs, GPUs and TPUs.

What programs that ask a Dyno need is here by name, and imported when it is first used: every runner imports this
package, too, and pays for none of it.
"""

from __future__ import annotations

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
    from dyno.comparison import Comparison
    from dyno.errors import DynoError
    from dyno.job import Job, Status
    from dyno.result import Artifact, Metric, Result, Verdict
    from dyno.samples import RunSamples
    from dyno.spec import Spec

_CLIENT, _RESULT = "dyno.client", "dyno.result"
_WHERE = {
    "Artifact": _RESULT,
    "AsyncClient": _CLIENT,
    "Client": _CLIENT,
    "Comparison": "dyno.comparison",
    "ComparisonNotMade": _CLIENT,
    "ConnectionBroken": _CLIENT,
    "DownloadDamaged": _CLIENT,
    "DynoError": "dyno.errors",
    "Job": "dyno.job",
    "JobNotSucceeded": _CLIENT,
    "Metric": _RESULT,
    "Refused": _CLIENT,
    "Result": _RESULT,
    "RunSamples": "dyno.samples",
    "ServerUnreachable": _CLIENT,
    "Spec": "dyno.spec",
    "Status": "dyno.job",
    "Verdict": _RESULT,
}

__all__ = [
    "Artifact",
    "AsyncClient",
    "Client",
    "Comparison",
    "ComparisonNotMade",
    "ConnectionBroken",
    "DownloadDamaged",
    "DynoError",
    "Job",
    "JobNotSucceeded",
    "Metric",
    "Refused",
    "Result",
    "RunSamples",
    "ServerUnreachable",
    "Spec",
    "Status",
    "Verdict",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
