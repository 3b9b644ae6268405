"""The calls of both clients: one method per thing to ask, as steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from pydantic import JsonValue

from dyno.client.answers import body
from dyno.client.call import call
from dyno.client.devices import DeviceCalls
from dyno.client.errors import (
    ComparisonNotMade,
    ConnectionBroken,
    DownloadDamaged,
    JobNotSucceeded,
    Refused,
    ServerUnreachable,
)
from dyno.client.steps import Ask, Pause, Receive, Steps, asked, once, patiently, sent, text_of
from dyno.comparison import Comparison, UnfinishedComparison
from dyno.job import Job, Status
from dyno.result import Artifact, Result
from dyno.samples import RunSamples, SampleList
from dyno.spec import CONFIDENCE, MARGIN, Spec

LONG_POLL_S = 20  # well under the 60 s that the API allows, so that proxies with a 30 s limit don't cut it off
_ALIVE_WITHIN_S = 2.0  # it asks nobody else; what keeps a port and says nothing is no service

Progress = Callable[[Job], None]
AnySpec = Spec | Mapping[str, JsonValue]


class Calls(DeviceCalls):
    """What Client and AsyncClient have alike; see `dyno.client.call`."""

    @call
    def submit(self, spec: AnySpec) -> Steps[Job]:
        """Queue a job. Raises Refused with every wrong field, or ServerUnreachable."""
        return submitted(spec)

    @call
    def job(self, job_id: str) -> Steps[Job]:
        """The job as it is now."""
        return job_of(job_id)

    @call
    def jobs(self, /, **filters: str | int) -> Steps[list[Job]]:
        """The newest page of jobs; filters as in the API: status, workload, limit, …"""
        page = yield from asked("GET", "/v1/jobs", params=filters)
        return [Job.model_validate(row) for row in page["data"]]

    @call
    def wait(self, job_id: str, progress: Progress | None = None) -> Steps[Job]:
        """Long-poll until the job is done; `progress` is called with each new version of the record."""
        return waited(job_id, progress)

    @call
    def result(self, job_id: str) -> Steps[Result]:
        """Of a job that succeeded. Raises Refused: `result-not-ready` where there is none, or not yet."""
        return result_of(job_id)

    @call
    def run(self, spec: AnySpec, progress: Progress | None = None) -> Steps[Result]:
        """Submit, wait, read the result. Raises JobNotSucceeded when there is none."""
        job = yield from submitted(spec)
        job = yield from waited(job.id, progress)
        if job.status is not Status.SUCCEEDED:
            raise JobNotSucceeded(job)
        return (yield from result_of(job.id))

    @call
    def samples(self, job_id: str) -> Steps[list[RunSamples]]:
        """Every reading that the result rests on, run by run."""
        return SampleList.model_validate((yield from asked("GET", f"/v1/jobs/{job_id}/samples"))).data

    @call
    def logs(self, job_id: str) -> Steps[str]:
        """What the job's runners have printed, the last 256 KiB at most."""
        return text_of(f"/v1/jobs/{job_id}/logs")

    @call
    def artifacts(self, job_id: str) -> Steps[list[Artifact]]:
        """The files that a job has left behind."""
        listed = yield from asked("GET", f"/v1/jobs/{job_id}/artifacts")
        return [Artifact.model_validate(row) for row in listed["data"]]

    @call
    def download(self, job_id: str, artifact: Artifact, to: Path) -> Steps[None]:
        """One of them, written to the file `to`. Raises DownloadDamaged where size or SHA-256 aren't as listed."""
        unchecked = to.with_name(f"{to.name}.part")
        try:
            with unchecked.open("wb") as file:
                digest = yield Receive(file_path(job_id, artifact.name), file)
            if digest != artifact.sha256:
                raise DownloadDamaged(f"{artifact.name} of {job_id} arrived with another SHA-256 than its result lists")
            unchecked.replace(to)
        finally:
            unchecked.unlink(missing_ok=True)

    @call
    def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
    ) -> Steps[Comparison]:
        """The results of these jobs, each beside the first's. Raises Refused: `not-comparable` says what differs."""
        wanted = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence}
        return Comparison.model_validate((yield from asked("POST", "/v1/comparisons", json=wanted)))

    @call
    def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: Progress | None = None, **options: JsonValue
    ) -> Steps[Comparison]:
        """Run both in turns on one device, wait, and compare them; options as in `begin_comparison`.

        Raises Refused (`not-comparable` says what differs), and ComparisonNotMade where the job fails or is canceled.
        """
        begun = yield from begun_comparison(first, second, options)
        yield from waited(begun.job, progress)
        return (yield from comparison_of(begun.id))

    @call
    def begin_comparison(self, /, first: AnySpec, second: AnySpec, **options: JsonValue) -> Steps[UnfinishedComparison]:
        """Queue the job that runs both in turns. Options, as in the API: pairs, control, metric, margin, confidence."""
        return begun_comparison(first, second, options)

    @call
    def comparison(self, comparison_id: str) -> Steps[Comparison]:
        """Raises ComparisonNotMade where its specs still run, or have failed."""
        return comparison_of(comparison_id)

    @call
    def bars(self, comparison_id: str) -> Steps[str]:
        """The comparison as a picture: SVG."""
        return text_of(f"/v1/comparisons/{comparison_id}/bars.svg")

    @call
    def cancel(self, job_id: str) -> Steps[Job]:
        """A queued job at once, a running one within 5 s. Raises Refused: `job-finished` where it is done."""
        return Job.model_validate((yield from asked("POST", f"/v1/jobs/{job_id}/cancel")))

    @call
    def rerun(self, job_id: str) -> Steps[Job]:
        """Queue the job's spec once more, as a new job. Raises as `submit` does."""
        return Job.model_validate((yield from once(f"/v1/jobs/{job_id}/rerun")))

    @call
    def delete(self, job_id: str) -> Steps[None]:
        """Delete a done job with all that it left. Raises Refused: `job-live` while it isn't done."""
        answer = yield from sent("DELETE", f"/v1/jobs/{job_id}")
        if answer.is_error:
            body(answer)

    @call
    def workloads(self) -> Steps[list[dict[str, Any]]]:
        """What there is to run, as the API says it."""
        data: list[dict[str, Any]] = (yield from asked("GET", "/v1/workloads"))["data"]
        return data

    @call
    def alive(self) -> Steps[bool]:
        """Whether the service answers at all, and soon. It isn't told the key: another program may have its port."""
        try:
            answer: httpx.Response = yield Ask("GET", "/livez", {"timeout": _ALIVE_WITHIN_S}, to_strangers=True)
        except ConnectionBroken:
            return False
        return answer.status_code == httpx.codes.OK

    @call
    def not_ready_because(self) -> Steps[str | None]:
        """Why not to rely on the service now: Redis is away, or keeps nothing; None if it is ready."""
        try:
            yield from asked("GET", "/readyz")
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None


def file_path(job_id: str, name: str) -> str:
    """Of a file that a job left."""
    return f"/v1/jobs/{job_id}/artifacts/{name}"


def submitted(spec: AnySpec) -> Steps[Job]:
    return Job.model_validate((yield from once("/v1/jobs", _document(spec))))


def job_of(job_id: str) -> Steps[Job]:
    return Job.model_validate((yield from asked("GET", f"/v1/jobs/{job_id}")))


def result_of(job_id: str) -> Steps[Result]:
    return Result.model_validate((yield from asked("GET", f"/v1/jobs/{job_id}/result")))


def waited(job_id: str, progress: Progress | None) -> Steps[Job]:
    job = yield from patiently(partial(job_of, job_id))
    while True:
        if progress:
            progress(job)
        if job.done:
            return job
        job = yield from patiently(partial(_changed, job))


def begun_comparison(first: AnySpec, second: AnySpec, options: Mapping[str, JsonValue]) -> Steps[UnfinishedComparison]:
    specs: list[JsonValue] = [_document(each, exclude_unset=True) for each in (first, second)]
    return UnfinishedComparison.model_validate((yield from once("/v1/comparisons", {"specs": specs, **options})))


def comparison_of(comparison_id: str) -> Steps[Comparison]:
    answer = yield from asked("GET", f"/v1/comparisons/{comparison_id}")
    if answer.get("status") != "done":
        raise ComparisonNotMade(UnfinishedComparison.model_validate(answer))
    return Comparison.model_validate(answer)


def _changed(job: Job) -> Steps[Job]:
    answer = yield from sent(
        "GET",
        f"/v1/jobs/{job.id}",
        params={"wait": LONG_POLL_S},
        headers={"If-None-Match": f'"{job.version}"'},
        timeout=LONG_POLL_S + 10,
    )
    changed = job if answer.status_code == httpx.codes.NOT_MODIFIED else Job.model_validate(body(answer))
    if not answer.is_error and (after_s := answer.headers.get("retry-after", "")).isdigit():
        yield Pause(float(after_s))  # too many wait already, so it was answered at once
    return changed


def _document(spec: AnySpec, *, exclude_unset: bool = False) -> dict[str, JsonValue]:
    """`exclude_unset`: a second spec of two takes what it leaves out from the first."""
    return spec.model_dump(mode="json", exclude_unset=exclude_unset) if isinstance(spec, Spec) else dict(spec)
