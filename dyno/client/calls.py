"""The calls of the client: one method per thing to ask."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from pydantic import JsonValue

from dyno.client.devices import DeviceCalls
from dyno.client.errors import (
    ComparisonNotMade,
    ConnectionBroken,
    DownloadDamaged,
    JobNotSucceeded,
    Refused,
    ServerUnreachable,
)
from dyno.client.following import PASSING, follow
from dyno.client.transport import Transport, body
from dyno.comparison import Comparison, UnfinishedComparison
from dyno.events import AnyEvent
from dyno.job import Job, Status
from dyno.result import Artifact, Result
from dyno.samples import RunSamples, SampleList
from dyno.spec import CONFIDENCE, MARGIN, Spec

LONG_POLL_S = 20  # well under the 60 s that the API allows, so that proxies with a 30 s limit don't cut it off
SUBMIT_TRIES = 3
PATIENCE_S = 60.0  # how long `wait` goes on without an answer: the service comes back, and the job runs meanwhile
RETRY_S = 0.5


class Client(DeviceCalls):
    """One connection pool to one Dyno, with an API key: `key`, or that of `DYNO_API_KEY`. Use it as a context manager.

    A submit is retried when the connection breaks, under one idempotency key, so that it makes one job at most.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", key: str | None = None, *, timeout_s: float = 10.0) -> None:
        self.url = url
        key = key or os.environ.get("DYNO_API_KEY")
        self._http = Transport(url, timeout_s, {"Authorization": f"Bearer {key.strip()}"} if key else {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(self, spec: Spec | Mapping[str, JsonValue]) -> Job:
        """Queue a job. Raises Refused with every wrong field, or ServerUnreachable."""
        return Job.model_validate(self._once("/v1/jobs", _document(spec)))

    def _once(self, path: str, document: JsonValue = None) -> Any:
        """POST it, again where the connection breaks, under one idempotency key."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        for tries_left in reversed(range(SUBMIT_TRIES)):
            try:
                return self._http.call("POST", path, json=document, headers=headers)
            except ConnectionBroken:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def job(self, job_id: str) -> Job:
        return Job.model_validate(self._http.call("GET", f"/v1/jobs/{job_id}"))

    def jobs(self, **filters: str | int) -> list[Job]:
        """The newest page of jobs; filters as in the API: status, workload, limit, …"""
        return [Job.model_validate(row) for row in self._http.call("GET", "/v1/jobs", params=filters)["data"]]

    def wait(self, job_id: str, progress: Callable[[Job], None] | None = None) -> Job:
        """Long-poll until the job is done; `progress` is called with each new version of the record."""
        job = self._patiently(lambda: self.job(job_id))
        while True:
            if progress:
                progress(job)
            if job.done:
                return job
            job = self._patiently(partial(self._changed, job))

    def _patiently(self, ask: Callable[[], Job]) -> Job:
        """Ask again while the service is away, or says 503 or 429, a minute at most."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except (ConnectionBroken, Refused) as error:
                away = isinstance(error, ConnectionBroken) or error.status in PASSING
                if not away or time.monotonic() >= deadline_s:
                    raise
            time.sleep(RETRY_S)

    def _changed(self, job: Job) -> Job:
        answer = self._http.send(
            "GET",
            f"/v1/jobs/{job.id}",
            params={"wait": LONG_POLL_S},
            headers={"If-None-Match": f'"{job.version}"'},
            timeout=LONG_POLL_S + 10,
        )
        return job if answer.status_code == httpx.codes.NOT_MODIFIED else Job.model_validate(body(answer))

    def result(self, job_id: str) -> Result:
        return Result.model_validate(self._http.call("GET", f"/v1/jobs/{job_id}/result"))

    def samples(self, job_id: str) -> list[RunSamples]:
        """Every reading that the result rests on, run by run."""
        return SampleList.model_validate(self._http.call("GET", f"/v1/jobs/{job_id}/samples")).data

    def logs(self, job_id: str) -> str:
        """What the job's runners have printed, the last 256 KiB at most."""
        return self._http.text(f"/v1/jobs/{job_id}/logs")

    def events(self, job_id: str | None = None, after: str | None = None) -> Iterator[AnyEvent]:
        """What happens to the job until it is done, or without one to any, for ever; each event once.

        A connection that breaks is made anew, behind the last event; `after` is the `id` of one to begin behind.
        Without it a job is told from its beginning, and all jobs from now on. Raises as `wait` does.
        """
        path = f"/v1/jobs/{job_id}/events" if job_id is not None else "/v1/events"
        return follow(self._http, path, after, ends=job_id is not None)

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files that a job has left behind."""
        return [Artifact.model_validate(row) for row in self._http.call("GET", f"/v1/jobs/{job_id}/artifacts")["data"]]

    def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        """One of them, written to the file `to`. Raises DownloadDamaged where size or SHA-256 aren't as listed."""
        unchecked = to.with_name(f"{to.name}.part")
        try:
            with unchecked.open("wb") as file:
                digest = self._http.receive(file_path(job_id, artifact.name), file)
            if digest != artifact.sha256:
                raise DownloadDamaged(f"{artifact.name} of {job_id} arrived with another SHA-256 than its result lists")
            unchecked.replace(to)
        finally:
            unchecked.unlink(missing_ok=True)

    def run(self, spec: Spec | Mapping[str, JsonValue], progress: Callable[[Job], None] | None = None) -> Result:
        """Submit, wait, read the result. Raises JobNotSucceeded when there is none."""
        job = self.wait(self.submit(spec).id, progress)
        if job.status is not Status.SUCCEEDED:
            raise JobNotSucceeded(job)
        return self.result(job.id)

    def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
    ) -> Comparison:
        """The results of these jobs, each beside the first's. Raises Refused: `not-comparable` says what differs."""
        asked = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence}
        return Comparison.model_validate(self._http.call("POST", "/v1/comparisons", json=asked))

    def compare_specs(
        self,
        first: Spec | Mapping[str, JsonValue],
        second: Spec | Mapping[str, JsonValue],
        progress: Callable[[Job], None] | None = None,
        **options: JsonValue,
    ) -> Comparison:
        """Run both in turns on one device, wait, and compare them; options as in `begin_comparison`.

        Raises Refused (`not-comparable` says what differs), and ComparisonNotMade where the job fails or is canceled.
        """
        begun = self.begin_comparison(first, second, **options)
        self.wait(begun.job, progress)
        return self.comparison(begun.id)

    def begin_comparison(
        self, first: Spec | Mapping[str, JsonValue], second: Spec | Mapping[str, JsonValue], **options: JsonValue
    ) -> UnfinishedComparison:
        """Queue the job that runs both in turns. Options, as in the API: pairs, control, metric, margin, confidence."""
        specs: list[JsonValue] = [_document(each, exclude_unset=True) for each in (first, second)]
        asked: dict[str, JsonValue] = {"specs": specs, **options}
        return UnfinishedComparison.model_validate(self._once("/v1/comparisons", asked))

    def comparison(self, comparison_id: str) -> Comparison:
        """Raises ComparisonNotMade where its specs still run, or have failed."""
        answer = self._http.call("GET", f"/v1/comparisons/{comparison_id}")
        if answer.get("status") != "done":
            raise ComparisonNotMade(UnfinishedComparison.model_validate(answer))
        return Comparison.model_validate(answer)

    def bars(self, comparison_id: str) -> str:
        """The comparison as a picture: SVG."""
        return self._http.text(f"/v1/comparisons/{comparison_id}/bars.svg")

    def cancel(self, job_id: str) -> Job:
        return Job.model_validate(self._http.call("POST", f"/v1/jobs/{job_id}/cancel"))

    def rerun(self, job_id: str) -> Job:
        """Queue the job's spec once more, as a new job. Raises as `submit` does."""
        return Job.model_validate(self._once(f"/v1/jobs/{job_id}/rerun"))

    def delete(self, job_id: str) -> None:
        """Delete a done job with all that it left. Raises Refused: `job-live` while it isn't done."""
        answer = self._http.send("DELETE", f"/v1/jobs/{job_id}")
        if answer.is_error:
            body(answer)

    def workloads(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self._http.call("GET", "/v1/workloads")["data"]
        return data

    def alive(self) -> bool:
        """Whether the service answers at all."""
        return self._http.alive()

    def not_ready_because(self) -> str | None:
        """Why not to rely on the service now: Redis is away, or keeps nothing; None if it is ready."""
        try:
            self._http.call("GET", "/readyz")
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None


def file_path(job_id: str, name: str) -> str:
    """Of a file that a job left."""
    return f"/v1/jobs/{job_id}/artifacts/{name}"


def _document(spec: Spec | Mapping[str, JsonValue], *, exclude_unset: bool = False) -> dict[str, JsonValue]:
    """`exclude_unset`: a second spec of two takes what it leaves out from the first."""
    return spec.model_dump(mode="json", exclude_unset=exclude_unset) if isinstance(spec, Spec) else dict(spec)
