"""The calls that are about jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

import httpx
from pydantic import JsonValue

from dyno.client.answers import check, read
from dyno.client.call import call
from dyno.client.errors import JobNotSucceeded
from dyno.client.pages import LIMIT, Page, browsed
from dyno.client.paths import in_path
from dyno.client.steps import Pause, Steps, asked, once, patiently, sent
from dyno.job import Job, Status, Validation
from dyno.result import Result
from dyno.spec import Spec

LONG_POLL_S = 20  # well under the 60 s that the API allows, so that proxies with a 30 s limit don't cut it off

Progress = Callable[[Job], None]
AnySpec = Spec | Mapping[str, JsonValue]


class JobPage(Page[Job]):
    """Of a list of jobs."""


class JobCalls:
    """Of both clients."""

    @call
    def submit(self, spec: AnySpec, *, idempotency_key: str | None = None) -> Steps[Job]:
        """Queue a job; with a key of the caller's own, the one that an earlier submit of it has made.

        Goes on for some seconds while the service is away. Raises Refused with every wrong field, or ServerUnreachable.
        """
        return submitted(spec, idempotency_key)

    @call
    def validate(self, spec: AnySpec) -> Steps[Validation]:
        """The spec as it would run, what that would take, and what there is to say of it. Raises as `submit` does."""
        return asked(Validation, "POST", "/v1/jobs", json=document(spec), params={"validate_only": True})

    @call
    def job(self, job_id: str) -> Steps[Job]:
        """The job as it is now."""
        return job_of(job_id)

    @call
    def jobs(
        self,
        *,
        status: Status | str | None = None,
        workload: str | None = None,
        device: str | None = None,
        framework: str | None = None,
        label: str | None = None,
        created_after: datetime | str | None = None,
        created_before: datetime | str | None = None,
        limit: int | None = LIMIT,
    ) -> Steps[list[Job]]:
        """The newest `limit` jobs that fit all filters, null for all of them; a label as `name` or `name=value`."""
        filters = {"status": status, "workload": workload, "device": device, "framework": framework, "label": label}
        times = {"created_after": created_after, "created_before": created_before}
        return browsed(JobPage, "/v1/jobs", filters | times, limit)

    @call
    def wait(self, job_id: str, progress: Progress | None = None) -> Steps[Job]:
        """Long-poll until the job is done; `progress` is called with each new version of the record.

        Goes on for a minute while nobody answers.
        """
        return waited(job_id, progress)

    @call
    def result(self, job_id: str) -> Steps[Result]:
        """Of a job that succeeded. Raises Refused: `result-not-ready` before, `no-result` where it ended otherwise."""
        return _result_of(job_id)

    @call
    def run(
        self, spec: AnySpec, progress: Progress | None = None, *, idempotency_key: str | None = None
    ) -> Steps[Result]:
        """Submit, wait, read the result. Raises JobNotSucceeded when there is none."""
        return (yield from _outcome((yield from submitted(spec, idempotency_key)), progress))

    @call
    def outcome(self, job_id: str, progress: Progress | None = None) -> Steps[Result]:
        """Wait, read the result. Raises JobNotSucceeded when there is none."""
        return (yield from _outcome((yield from patiently(partial(job_of, job_id))), progress))

    @call
    def cancel(self, job_id: str) -> Steps[Job]:
        """A queued job at once, a running one within 5 s. Raises Refused: `job-finished` where it is done."""
        return asked(Job, "POST", f"/v1/jobs/{in_path(job_id)}/cancel")

    @call
    def rerun(self, job_id: str, *, idempotency_key: str | None = None) -> Steps[Job]:
        """Queue the job's spec once more, as a new job; otherwise as `submit`."""
        return once(Job, f"/v1/jobs/{in_path(job_id)}/rerun", key=idempotency_key)

    @call
    def delete(self, job_id: str) -> Steps[None]:
        """Delete a done job with all that it left. Raises Refused: `job-live` while it isn't done."""
        check((yield from sent("DELETE", f"/v1/jobs/{in_path(job_id)}")))


def submitted(spec: AnySpec, idempotency_key: str | None = None) -> Steps[Job]:
    return once(Job, "/v1/jobs", document(spec), idempotency_key)


def job_of(job_id: str) -> Steps[Job]:
    return asked(Job, "GET", f"/v1/jobs/{in_path(job_id)}")


def waited(job_id: str, progress: Progress | None) -> Steps[Job]:
    return (yield from _followed((yield from patiently(partial(job_of, job_id))), progress))


def document(spec: AnySpec, *, exclude_unset: bool = False) -> dict[str, JsonValue]:
    """As it is sent. `exclude_unset`: a second spec of two takes what it leaves out from the first."""
    return spec.model_dump(mode="json", exclude_unset=exclude_unset) if isinstance(spec, Spec) else dict(spec)


def _result_of(job_id: str) -> Steps[Result]:
    return asked(Result, "GET", f"/v1/jobs/{in_path(job_id)}/result")


def _outcome(job: Job, progress: Progress | None) -> Steps[Result]:
    job = yield from _followed(job, progress)
    if job.status is not Status.SUCCEEDED:
        raise JobNotSucceeded(job)
    return (yield from patiently(partial(_result_of, job.id)))


def _followed(job: Job, progress: Progress | None) -> Steps[Job]:
    """The job once it is done."""
    while True:
        if progress:
            progress(job)
        if job.done:
            return job
        job = yield from patiently(partial(_changed, job))


def _changed(job: Job) -> Steps[Job]:
    """As it is at its next version, or after a while. A proxy may not wait for so long."""
    answer = yield from sent(
        "GET",
        f"/v1/jobs/{job.id}",
        params={"wait": LONG_POLL_S},
        headers={"If-None-Match": f'"{job.version}"'},
        timeout=LONG_POLL_S + 10,
    )
    if answer.status_code == httpx.codes.GATEWAY_TIMEOUT:
        return (yield from job_of(job.id))
    changed = job if answer.status_code == httpx.codes.NOT_MODIFIED else read(Job, answer)
    if not answer.is_error and (after_s := answer.headers.get("retry-after", "")).isdigit():
        yield Pause(float(after_s))  # too many wait already, so it was answered at once
    return changed
