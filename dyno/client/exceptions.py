"""The exceptions that calls of the clients raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyno.errors import DynoError
from dyno.models.comparison import UnfinishedComparison
from dyno.models.job import Job


class ServerUnreachable(DynoError):
    """No answer from the URL, or none that is Dyno's; `status` and `retry_after_s` as of Refused, null without one."""

    code = "server-unreachable"

    def __init__(self, detail: str, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.retry_after_s = status, retry_after_s


class ConnectionBroken(ServerUnreachable):
    """The connection failed; whether the request arrived isn't known."""

    code = "connection-broken"


class Refused(DynoError):
    """The service answered with a problem (RFC 9457); `problem` is the whole of it.

    `status` is the answer's. `retry_after_s`: when it may be otherwise; null where the answer doesn't say.
    """

    code = "refused"

    def __init__(self, problem: Mapping[str, Any], status: int, retry_after_s: float | None = None) -> None:
        super().__init__(_describe(problem))
        self.problem = problem
        self.status, self.retry_after_s = status, retry_after_s


class JobNotSucceeded(DynoError):
    """The job ended without a result; `job` says how."""

    code = "job-not-succeeded"

    def __init__(self, job: Job) -> None:
        failure = f": {job.failure.message}" if job.failure else ""
        super().__init__(f"{job.id} {job.status}" + (f" ({job.status_reason})" if job.status_reason else "") + failure)
        self.job = job


class ComparisonNotMade(DynoError):
    """The two specs still run, or have ended without a comparison; `comparison` says how."""

    code = "comparison-not-made"

    def __init__(self, comparison: UnfinishedComparison) -> None:
        failure = f": {comparison.failure.message}" if comparison.failure else ""
        super().__init__(f"{comparison.id} by {comparison.job} {comparison.status}{failure}")
        self.comparison = comparison


class DownloadDamaged(DynoError):
    """What arrived isn't the file that the result lists."""

    code = "download-damaged"


def _describe(problem: Mapping[str, Any]) -> str:
    """The detail, and a line for each wrong field that it doesn't tell of."""
    detail = str(problem.get("detail") or problem.get("title") or "refused")
    errors = problem.get("errors")
    errors = errors if isinstance(errors, list) else []
    fields = [(e.get("pointer") or "the body", e.get("detail")) for e in errors if isinstance(e, dict)]
    untold = [f"{at}: {told}" for at, told in fields if told != detail and f"{at}: {told}" not in detail]
    return "\n".join([detail, *(f"  {each}" for each in untold)])
