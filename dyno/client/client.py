"""The clients: `Client` blocks, `AsyncClient` is awaited, workers use `AttemptClient`.

The mixins have one method per route, written as steps (see `dyno.client.http_transport`), so that all clients have the
same methods.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import httpx
from pydantic import Field, JsonValue, RootModel

from dyno.client.exceptions import (
    ComparisonNotMade,
    ConnectionBroken,
    DownloadDamaged,
    JobNotSucceeded,
    Refused,
    ServerUnreachable,
)
from dyno.client.http_transport import (
    DEFAULT_LIMIT,
    ApiRequest,
    AsyncTransport,
    Awaiting,
    Blocking,
    Download,
    ListPage,
    OnRetry,
    Pause,
    Steps,
    Transport,
    call,
    check_status,
    list_pages,
    list_rows,
    path_segment,
    post_once,
    read_model,
    request_model,
    request_text,
    send_request,
    with_retries,
)
from dyno.client.streams import EventFollower, follow_events, follow_events_async, follow_log, follow_log_async
from dyno.models.api_key import ApiKey, CreatedKey, KeyList, Limits, Me, Scope
from dyno.models.comparison import Comparison, UnfinishedComparison
from dyno.models.event import AnyEvent
from dyno.models.inventory import (
    AwayDevice,
    Cordon,
    DeviceList,
    DeviceStatus,
    WorkerList,
    WorkerRecord,
    WorkloadEntry,
    WorkloadList,
)
from dyno.models.job import Job, Status, Validation
from dyno.models.result import Artifact, ArtifactList, Result, ResultRow, RunSamples, SampleList
from dyno.models.spec import CONFIDENCE, MARGIN, Spec
from dyno.models.webhook import Delivery, DeliveryStatus
from dyno.settings import WrongSettings

LONG_POLL_S = 20  # below the 60 s that the API allows, so that proxies with a 30 s limit don't cut it off

OnProgress = Callable[[Job], None]
AnySpec = Spec | Mapping[str, JsonValue]


class JobPage(ListPage[Job]):
    """A page of the list of jobs."""


class JobCalls:
    """Calls about jobs, for all clients."""

    @call
    def submit(self, spec: AnySpec, *, idempotency_key: str | None = None) -> Steps[Job]:
        """Queue a job. If an earlier submit had the same `idempotency_key`, returns that submit's job.

        Retries for some seconds while the service is away. Raises Refused with every wrong field, or ServerUnreachable.
        """
        return submit_job(spec, idempotency_key)

    @call
    def validate(self, spec: AnySpec) -> Steps[Validation]:
        """Check a spec without queueing it: the spec as it would run, its estimated cost and warnings.

        Raises as `submit` does.
        """
        return request_model(Validation, "POST", "/v1/jobs", json=spec_document(spec), params={"validate_only": True})

    @call
    def job(self, job_id: str) -> Steps[Job]:
        """The job's current record."""
        return get_job(job_id)

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
        limit: int | None = DEFAULT_LIMIT,
    ) -> Steps[list[Job]]:
        """The newest `limit` jobs (None: all) that match all filters. A label is `name` or `name=value`."""
        filters = {"status": status, "workload": workload, "device": device, "framework": framework, "label": label}
        times = {"created_after": created_after, "created_before": created_before}
        return list_pages(JobPage, "/v1/jobs", filters | times, limit)

    @call
    def wait(self, job_id: str, progress: OnProgress | None = None) -> Steps[Job]:
        """Long-poll until the job is done, and call `progress` with each new version of the record.

        Retries for a minute while the service is away.
        """
        return wait_for_job(job_id, progress)

    @call
    def result(self, job_id: str) -> Steps[Result]:
        """The result of a job that succeeded.

        Raises Refused: `result-not-ready` while the job isn't done, `no-result` if it failed or was canceled.
        """
        return _result_of(job_id)

    @call
    def run(
        self, spec: AnySpec, progress: OnProgress | None = None, *, idempotency_key: str | None = None
    ) -> Steps[Result]:
        """Submit a job, wait for it, and read its result. Raises JobNotSucceeded if it has none."""
        return (yield from _outcome((yield from submit_job(spec, idempotency_key)), progress))

    @call
    def outcome(self, job_id: str, progress: OnProgress | None = None) -> Steps[Result]:
        """Wait for a job and read its result. Raises JobNotSucceeded if it has none."""
        return (yield from _outcome((yield from with_retries(partial(get_job, job_id))), progress))

    @call
    def cancel(self, job_id: str) -> Steps[Job]:
        """Cancel a queued job at once, a running one within 5 s. Raises Refused: `job-finished` if it is done."""
        return request_model(Job, "POST", f"/v1/jobs/{path_segment(job_id)}/cancel")

    @call
    def rerun(self, job_id: str, *, idempotency_key: str | None = None) -> Steps[Job]:
        """Queue the job's spec again, as a new job. Otherwise like `submit`."""
        return post_once(Job, f"/v1/jobs/{path_segment(job_id)}/rerun", key=idempotency_key)

    @call
    def delete(self, job_id: str) -> Steps[None]:
        """Delete a done job with its result and files. Raises Refused: `job-live` while it isn't done."""
        check_status((yield from send_request("DELETE", f"/v1/jobs/{path_segment(job_id)}")))


def submit_job(spec: AnySpec, idempotency_key: str | None = None) -> Steps[Job]:
    return post_once(Job, "/v1/jobs", spec_document(spec), idempotency_key)


def get_job(job_id: str) -> Steps[Job]:
    return request_model(Job, "GET", f"/v1/jobs/{path_segment(job_id)}")


def wait_for_job(job_id: str, progress: OnProgress | None) -> Steps[Job]:
    return (yield from _wait_until_done((yield from with_retries(partial(get_job, job_id))), progress))


def spec_document(spec: AnySpec, *, exclude_unset: bool = False) -> dict[str, JsonValue]:
    """The spec as JSON. `exclude_unset`: the second of two specs takes the fields that it omits from the first."""
    return spec.model_dump(mode="json", exclude_unset=exclude_unset) if isinstance(spec, Spec) else dict(spec)


def _result_of(job_id: str) -> Steps[Result]:
    return request_model(Result, "GET", f"/v1/jobs/{path_segment(job_id)}/result")


def _outcome(job: Job, progress: OnProgress | None) -> Steps[Result]:
    job = yield from _wait_until_done(job, progress)
    if job.status is not Status.SUCCEEDED:
        raise JobNotSucceeded(job)
    return (yield from with_retries(partial(_result_of, job.id)))


def _wait_until_done(job: Job, progress: OnProgress | None) -> Steps[Job]:
    """The job once it is done."""
    while True:
        if progress:
            progress(job)
        if job.done:
            return job
        job = yield from with_retries(partial(_next_version, job))


def _next_version(job: Job) -> Steps[Job]:
    """The job at its next version, or after the long poll. Proxies may end the long poll earlier."""
    answer = yield from send_request(
        "GET",
        f"/v1/jobs/{job.id}",
        params={"wait": LONG_POLL_S},
        headers={"If-None-Match": f'"{job.version}"'},
        timeout=LONG_POLL_S + 10,
    )
    if answer.status_code == httpx.codes.GATEWAY_TIMEOUT:
        return (yield from get_job(job.id))
    changed = job if answer.status_code == httpx.codes.NOT_MODIFIED else read_model(Job, answer)
    if not answer.is_error and (after_s := answer.headers.get("retry-after", "")).isdigit():
        yield Pause(float(after_s))  # the service has too many waiting requests, so it answered at once
    return changed


class FileCalls:
    """Calls about a job's files, for all clients."""

    @call
    def samples(self, job_id: str) -> Steps[list[RunSamples]]:
        """All readings behind the result, run by run."""
        return (yield from request_model(SampleList, "GET", f"/v1/jobs/{path_segment(job_id)}/samples")).data

    @call
    def logs(self, job_id: str) -> Steps[str]:
        """The output of the job's runners, the last 256 KiB at most."""
        return request_text(f"/v1/jobs/{path_segment(job_id)}/logs")

    @call
    def artifacts(self, job_id: str) -> Steps[list[Artifact]]:
        """The files that a job has stored."""
        return (yield from request_model(ArtifactList, "GET", f"/v1/jobs/{path_segment(job_id)}/artifacts")).data

    @call
    def download(self, job_id: str, artifact: Artifact, to: Path) -> Steps[None]:
        """Download an artifact to the file `to`. Raises DownloadDamaged if its SHA-256 isn't the listed one."""
        unchecked = to.with_name(f"{to.name}.part")
        try:
            with unchecked.open("wb") as file:
                digest = yield Download(file_path(job_id, artifact.name), file)
            if digest != artifact.sha256:
                raise DownloadDamaged(
                    f"the download of {artifact.name} of {job_id} has another SHA-256 than the result lists; try again"
                )
            unchecked.replace(to)
        finally:
            unchecked.unlink(missing_ok=True)


def file_path(job_id: str, name: str) -> str:
    """The path of a job's file in the API."""
    return f"/v1/jobs/{path_segment(job_id)}/artifacts/{path_segment(name)}"


class AnyComparison(RootModel[Annotated[Comparison | UnfinishedComparison, Field(discriminator="status")]]):
    """A comparison, finished or not."""


class ComparisonCalls:
    """Calls about comparisons, for all clients."""

    @call
    def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
    ) -> Steps[Comparison]:
        """Compare the jobs' results with the first one's. Raises Refused: `not-comparable` names the differences."""
        wanted = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence}
        return request_model(Comparison, "POST", "/v1/comparisons", json=wanted)

    @call
    def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: OnProgress | None = None, **options: JsonValue
    ) -> Steps[Comparison]:
        """Run both specs in turns on one device, wait, and compare them. Options as in `begin_comparison`.

        Raises Refused (`not-comparable` names the differences), or ComparisonNotMade if the job fails or is canceled.
        """
        begun = yield from begun_comparison(first, second, options)
        yield from wait_for_job(begun.job, progress)
        return (yield from with_retries(partial(comparison_of, begun.id)))

    @call
    def begin_comparison(
        self, /, first: AnySpec, second: AnySpec, *, idempotency_key: str | None = None, **options: JsonValue
    ) -> Steps[UnfinishedComparison]:
        """Queue a job that runs both specs in turns. Options: pairs, control, metric, margin, confidence."""
        return begun_comparison(first, second, options, idempotency_key)

    @call
    def comparison(self, comparison_id: str) -> Steps[Comparison]:
        """A comparison. Raises ComparisonNotMade if its specs still run, failed or were canceled."""
        return comparison_of(comparison_id)

    @call
    def bars(self, comparison_id: str) -> Steps[str]:
        """The comparison as an SVG chart."""
        return request_text(f"/v1/comparisons/{path_segment(comparison_id)}/bars.svg")


def begun_comparison(
    first: AnySpec, second: AnySpec, options: Mapping[str, JsonValue], key: str | None = None
) -> Steps[UnfinishedComparison]:
    specs: list[JsonValue] = [spec_document(each, exclude_unset=True) for each in (first, second)]
    return post_once(UnfinishedComparison, "/v1/comparisons", {"specs": specs, **options}, key)


def comparison_of(comparison_id: str) -> Steps[Comparison]:
    found = (yield from request_model(AnyComparison, "GET", f"/v1/comparisons/{path_segment(comparison_id)}")).root
    if isinstance(found, UnfinishedComparison):
        raise ComparisonNotMade(found)
    return found


class FleetCalls:
    """Calls about workloads, devices and workers, for all clients."""

    @call
    def workloads(self) -> Steps[list[WorkloadEntry]]:
        """All workloads."""
        return (yield from request_model(WorkloadList, "GET", "/v1/workloads")).data

    @call
    def workload(self, name: str) -> Steps[WorkloadEntry]:
        """One workload, with its params. Raises Refused for an unknown name."""
        return request_model(WorkloadEntry, "GET", f"/v1/workloads/{path_segment(name)}")

    @call
    def devices(self) -> Steps[list[DeviceStatus]]:
        """The devices of the live workers."""
        return (yield from request_model(DeviceList, "GET", "/v1/devices")).data

    @call
    def cordoned_away(self) -> Steps[list[AwayDevice]]:
        """The cordoned devices without a live worker."""
        names = (yield from request_model(DeviceList, "GET", "/v1/devices")).cordoned_away
        return [AwayDevice(id=name.partition("@")[0], host=name.partition("@")[2]) for name in names]

    @call
    def workers(self) -> Steps[list[WorkerRecord]]:
        """The live workers. A worker's `job` is null if another key owns the job."""
        return (yield from request_model(WorkerList, "GET", "/v1/workers")).data

    @call
    def cordon(self, device: str) -> Steps[Cordon]:
        """Cordon a device: it finishes its current job and takes no new ones. Raises Refused for an unknown device."""
        return request_model(Cordon, "POST", f"/v1/devices/{path_segment(device)}/cordon")

    @call
    def uncordon(self, device: str) -> Steps[Cordon]:
        """Let a cordoned device take jobs again. Raises Refused for an unknown device."""
        return request_model(Cordon, "POST", f"/v1/devices/{path_segment(device)}/uncordon")


class KeyCalls:
    """Calls about API keys, for all clients."""

    @call
    def me(self) -> Steps[Me]:
        """This client's key, its scopes and its limits."""
        return request_model(Me, "GET", "/v1/me")

    @call
    def keys(self) -> Steps[list[ApiKey]]:
        """All keys, including revoked ones, since jobs name them as their owners."""
        return (yield from request_model(KeyList, "GET", "/v1/keys")).data

    @call
    def create_key(self, name: str, scope: Scope | str, limits: Limits | None = None) -> Steps[CreatedKey]:
        """Create a key. Only this response contains its secret. Raises Refused with every wrong field."""
        wanted = {"name": name, "scope": scope, "limits": (limits or Limits()).model_dump(mode="json")}
        return request_model(CreatedKey, "POST", "/v1/keys", json=wanted)

    @call
    def revoke_key(self, key_id: str) -> Steps[None]:
        """Revoke a key, so that the service refuses it. Its jobs go on. Repeating this changes nothing."""
        check_status((yield from send_request("DELETE", f"/v1/keys/{path_segment(key_id)}")))


class DeliveryPage(ListPage[Delivery]):
    """A page of the list of deliveries."""


class WebhookCalls:
    """Calls about webhook deliveries, for all clients."""

    @call
    def deliveries(
        self,
        *,
        status: DeliveryStatus | str | None = None,
        job: str | None = None,
        created_after: datetime | str | None = None,
        created_before: datetime | str | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> Steps[list[Delivery]]:
        """The newest `limit` webhook deliveries (None: all) that match all filters, ordered by when the jobs ended."""
        times = {"created_after": created_after, "created_before": created_before}
        return list_pages(DeliveryPage, "/v1/webhook-deliveries", {"status": status, "job": job, **times}, limit)

    @call
    def redeliver(self, delivery_id: str) -> Steps[Delivery]:
        """Send a delivery again at once, whatever its status. Raises Refused for an unknown delivery."""
        return request_model(Delivery, "POST", f"/v1/webhook-deliveries/{path_segment(delivery_id)}/redeliver")


_ALIVE_WITHIN_S = 2.0  # /livez needs no other service, so Dyno answers sooner


class Calls(JobCalls, FileCalls, ComparisonCalls, FleetCalls, KeyCalls, WebhookCalls):
    """The calls that all clients share; see `dyno.client.http_transport`."""

    @call
    def results(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: datetime | str | None = None,
        created_before: datetime | str | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> Steps[list[ResultRow]]:
        """A flat table with a row for each metric of the newest `limit` jobs that succeeded (None: all)."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        return list_rows({**filters, "from": created_after, "to": created_before}, limit)

    @call
    def alive(self) -> Steps[bool]:
        """Whether the service answers within 2 s. Sends no API key, since another program may listen on the port."""
        try:
            answer: httpx.Response = yield ApiRequest("GET", "/livez", {"timeout": _ALIVE_WITHIN_S}, to_strangers=True)
        except ConnectionBroken:
            return False
        return answer.status_code == httpx.codes.OK

    @call
    def not_ready_because(self) -> Steps[str | None]:
        """Why the service isn't ready, for example because Redis is away or doesn't persist. None if it is ready."""
        try:
            check_status((yield from send_request("GET", "/readyz")))
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None


DEFAULT_URL = "http://127.0.0.1:8000"


class Client(Calls, Blocking):
    """A blocking client with one connection pool and an API key. Use it as a context manager.

    `url` defaults to `DYNO_URL`, then to this host; `key` defaults to `DYNO_API_KEY`. The client retries a submit while
    the service is away. All tries have one idempotency key, so they create one job at most. The client calls `away`
    with the error each time a call starts to wait for the service.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url = _url(url)
        self._http = Transport(self.url, timeout_s, _headers(key), away)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def events(self, job_id: str | None = None, after: str | None = None) -> Iterator[AnyEvent]:
        """The events of a job until it is done, or of all jobs without end. Each event is yielded once.

        The client reconnects after a broken connection and resumes after the last event. `after` is the `id` of the
        event to start after. By default a job's events start at its beginning, and those of all jobs now. Raises as
        `wait` does.
        """
        return follow_events(self._http, _event_follower(job_id, after))

    def follow_logs(self, job_id: str) -> Iterator[str]:
        """The output in `logs` and all new output until the job is done.

        Raises Refused and ServerUnreachable, the latter also if the stream ends before the job is done.
        """
        return follow_log(self._http, job_id)


class AsyncClient(Calls, Awaiting):
    """The same client for asyncio: await each call, read events by `async for`, use it as an async context manager.

    The callbacks `progress` and `away` must not block.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url = _url(url)
        self._http = AsyncTransport(self.url, timeout_s, _headers(key), away)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    def events(self, job_id: str | None = None, after: str | None = None) -> AsyncIterator[AnyEvent]:
        """As in Client."""
        return follow_events_async(self._http, _event_follower(job_id, after))

    def follow_logs(self, job_id: str) -> AsyncIterator[str]:
        """As in Client."""
        return follow_log_async(self._http, job_id)


def _url(given: str | None) -> str:
    return given or os.environ.get("DYNO_URL") or DEFAULT_URL


def _headers(key: str | None) -> dict[str, str]:
    """Raises WrongSettings for an invalid key, without showing the key."""
    key = (key or os.environ.get("DYNO_API_KEY") or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise WrongSettings("invalid API key (DYNO_API_KEY or the argument): use printable ASCII characters only")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _event_follower(job_id: str | None, after: str | None) -> EventFollower:
    path = f"/v1/jobs/{path_segment(job_id)}/events" if job_id is not None else "/v1/events"
    return EventFollower(path, after, ends=job_id is not None)


UPLOAD_S = 60.0  # for each piece and for the response, which the service sends after it has written the file


class AttemptClient(Client):
    """A client that sends an attempt's token in place of an API key.

    The token permits storing files of its job, and downloading files of another job that its job starts from.
    """

    def __init__(self, url: str, job_id: str, token: str, *, timeout_s: float = 10.0) -> None:
        self.url = url
        self._job_id = job_id
        self._http = Transport(url, timeout_s, {"Authorization": f"Bearer {token}", "Dyno-Job": job_id})

    @call
    def upload(self, name: str, source: Path) -> Steps[Artifact]:
        """Store a file of the job."""
        headers = {"Content-Type": "application/octet-stream"}
        path = file_path(self._job_id, name)
        with source.open("rb") as file:
            return (yield from request_model(Artifact, "PUT", path, content=file, headers=headers, timeout=UPLOAD_S))
