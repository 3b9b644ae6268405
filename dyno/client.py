"""The typed client: submit a job over HTTP, wait for it, read its result. Knows no workload and no server code."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpx
from pydantic import JsonValue

from dyno.errors import DynoError
from dyno.job import Job, Status
from dyno.result import Artifact, Result
from dyno.spec import Spec

LONG_POLL_S = 20  # well under the 60 s that the API allows, so that proxies with a 30 s limit don't cut it off
SUBMIT_TRIES = 3
PATIENCE_S = 60.0  # how long `wait` goes on without an answer: the service comes back, and the job runs meanwhile
RETRY_S = 0.5
UPLOAD_S = 60.0  # for each piece, and for the answer: the service writes the file to its disk first


class ServerUnreachable(DynoError):
    """No answer from the URL, or none that is Dyno's."""

    code = "server-unreachable"


class ConnectionBroken(ServerUnreachable):
    """The connection failed; whether the request arrived isn't known."""

    code = "connection-broken"


class Refused(DynoError):
    """The service answered with a problem (RFC 9457); `problem` is the whole of it."""

    code = "refused"

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(_describe(problem))
        self.problem = problem
        self.status = int(problem.get("status", 0))


class JobNotSucceeded(DynoError):
    """The job ended without a result; `job` says how."""

    code = "job-not-succeeded"

    def __init__(self, job: Job) -> None:
        failure = f": {job.failure.message}" if job.failure else ""
        super().__init__(f"{job.id} {job.status}" + (f" ({job.status_reason})" if job.status_reason else "") + failure)
        self.job = job


class DownloadDamaged(DynoError):
    """What arrived isn't the file that the result lists."""

    code = "download-damaged"


class Client:
    """One connection pool to one Dyno. Use it as a context manager.

    A submit is retried when the connection breaks, under one idempotency key, so that it makes one job at most.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", *, timeout_s: float = 10.0) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=timeout_s, transport=httpx.HTTPTransport(retries=1))

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
        body = spec.model_dump(mode="json") if isinstance(spec, Spec) else dict(spec)
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        for tries_left in reversed(range(SUBMIT_TRIES)):
            try:
                return Job.model_validate(self._call("POST", "/v1/jobs", json=body, headers=headers))
            except ConnectionBroken:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def job(self, job_id: str) -> Job:
        return Job.model_validate(self._call("GET", f"/v1/jobs/{job_id}"))

    def jobs(self, **filters: str | int) -> list[Job]:
        """The newest page of jobs; filters as in the API: status, workload, limit, …"""
        return [Job.model_validate(row) for row in self._call("GET", "/v1/jobs", params=filters)["data"]]

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
        """Ask again while the service is away or says 503, a minute at most."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except (ConnectionBroken, Refused) as error:
                away = isinstance(error, ConnectionBroken) or error.status == httpx.codes.SERVICE_UNAVAILABLE
                if not away or time.monotonic() >= deadline_s:
                    raise
            time.sleep(RETRY_S)

    def _changed(self, job: Job) -> Job:
        answer = self._send(
            "GET",
            f"/v1/jobs/{job.id}",
            params={"wait": LONG_POLL_S},
            headers={"If-None-Match": f'"{job.version}"'},
            timeout=LONG_POLL_S + 10,
        )
        return job if answer.status_code == httpx.codes.NOT_MODIFIED else Job.model_validate(_body(answer))

    def result(self, job_id: str) -> Result:
        return Result.model_validate(self._call("GET", f"/v1/jobs/{job_id}/result"))

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files that a job has left behind."""
        return [Artifact.model_validate(row) for row in self._call("GET", f"/v1/jobs/{job_id}/artifacts")["data"]]

    def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        """One of them, written to the file `to`. Raises DownloadDamaged where size or SHA-256 aren't as listed."""
        partial = to.with_name(f"{to.name}.part")
        try:
            with partial.open("wb") as file, self._answers():
                digest = self._receive(_file_path(job_id, artifact.name), file)
            if digest != artifact.sha256:
                raise DownloadDamaged(f"{artifact.name} of {job_id} arrived with another SHA-256 than its result lists")
            partial.replace(to)
        finally:
            partial.unlink(missing_ok=True)

    def _receive(self, path: str, file: BinaryIO) -> str:
        digest = hashlib.sha256()
        with self._http.stream("GET", path) as answer:
            if answer.is_error:
                answer.read()
                _body(answer)
            for piece in answer.iter_bytes():
                file.write(piece)
                digest.update(piece)
        return digest.hexdigest()

    def upload(self, job_id: str, name: str, token: str, source: Path) -> Artifact:
        """For workers: store a file of the job that the attempt's token holds."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        path = _file_path(job_id, name)
        with source.open("rb") as file:
            sent = self._call("PUT", path, content=file, headers=headers, timeout=UPLOAD_S)
        return Artifact.model_validate(sent)

    def run(self, spec: Spec | Mapping[str, JsonValue], progress: Callable[[Job], None] | None = None) -> Result:
        """Submit, wait, read the result. Raises JobNotSucceeded when there is none."""
        job = self.wait(self.submit(spec).id, progress)
        if job.status is not Status.SUCCEEDED:
            raise JobNotSucceeded(job)
        return self.result(job.id)

    def cancel(self, job_id: str) -> Job:
        return Job.model_validate(self._call("POST", f"/v1/jobs/{job_id}/cancel"))

    def devices(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self._call("GET", "/v1/devices")["data"]
        return data

    def workloads(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self._call("GET", "/v1/workloads")["data"]
        return data

    def alive(self) -> bool:
        """Whether the service answers at all."""
        try:
            return self._http.get("/livez").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def not_ready_because(self) -> str | None:
        """Why not to rely on the service now: Redis is away, or keeps nothing; None if it is ready."""
        try:
            self._call("GET", "/readyz")
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None

    def _call(self, method: str, path: str, **options: Any) -> Any:
        return _body(self._send(method, path, **options))

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        with self._answers():
            return self._http.request(method, path, **options)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionBroken(f"{self.url}: {error or type(error).__name__}") from error


def _file_path(job_id: str, name: str) -> str:
    return f"/v1/jobs/{job_id}/artifacts/{name}"


def _body(answer: httpx.Response) -> Any:
    try:
        body = answer.json()
    except json.JSONDecodeError as error:
        raise ServerUnreachable(f"{answer.url} answered {answer.status_code} without JSON: not Dyno?") from error
    if answer.is_error:
        raise Refused(body if isinstance(body, dict) else {"title": str(body), "status": answer.status_code})
    return body


def _describe(problem: Mapping[str, Any]) -> str:
    errors = problem.get("errors") or []
    lines = [f"  {e.get('pointer') or '/'}: {e.get('detail')}" for e in errors if isinstance(e, dict)]
    return "\n".join([str(problem.get("detail") or problem.get("title") or "refused"), *lines])
