"""The exceptions that the clients raise."""

from collections.abc import Mapping
from typing import Any

from dyno.errors import DynoError
from dyno.models.comparison import UnfinishedComparison
from dyno.models.job import Job


class ServerUnreachable(DynoError):
    """The URL sent no response, or a response that doesn't come from Dyno.

    `status` and `retry_after_s` have the same meaning as in Refused; both are None without a response.
    """

    code = "server-unreachable"

    def __init__(self, detail: str, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.retry_after_s = status, retry_after_s


class ConnectionBroken(ServerUnreachable):
    """The connection failed. The request may or may not have reached the service."""

    code = "connection-broken"


class Refused(DynoError):
    """The service responded with a problem document (RFC 9457), which is in `problem`.

    `status` is the status of the response. `retry_after_s`: seconds until a retry; None if the response doesn't say.
    """

    code = "refused"

    def __init__(self, problem: Mapping[str, Any], status: int, retry_after_s: float | None = None) -> None:
        super().__init__(_describe(problem))
        self.problem = problem
        self.status, self.retry_after_s = status, retry_after_s


class JobNotSucceeded(DynoError):
    """The job ended without a result. `job` is its record."""

    code = "job-not-succeeded"

    def __init__(self, job: Job) -> None:
        failure = f": {job.failure.message}" if job.failure else ""
        super().__init__(f"{job.id} {job.status}" + (f" ({job.status_reason})" if job.status_reason else "") + failure)
        self.job = job


class ComparisonNotMade(DynoError):
    """The two specs still run, or ended without a comparison. `comparison` has the status and the failure."""

    code = "comparison-not-made"

    def __init__(self, comparison: UnfinishedComparison) -> None:
        failure = f": {comparison.failure.message}" if comparison.failure else ""
        super().__init__(f"{comparison.id} (job {comparison.job}) {comparison.status}{failure}")
        self.comparison = comparison


class DownloadDamaged(DynoError):
    """The downloaded file differs from the file that the result lists."""

    code = "download-damaged"


def _describe(problem: Mapping[str, Any]) -> str:
    """The problem's detail, and a line for each wrong field that the detail doesn't name."""
    detail = str(problem.get("detail") or problem.get("title") or "refused")
    errors = problem.get("errors")
    errors = errors if isinstance(errors, list) else []
    fields = [(e.get("pointer") or "the body", e.get("detail")) for e in errors if isinstance(e, dict)]
    others = [f"{at}: {message}" for at, message in fields if message != detail and f"{at}: {message}" not in detail]
    return "\n".join([detail, *(f"  {line}" for line in others)])
