"""The clients: `Client` blocks, `AsyncClient` is awaited, workers use `AttemptClient`.

Each method sends the request that the function of its name in `dyno.client.endpoints` builds.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

import httpx
from pydantic import JsonValue

from dyno.client import endpoints
from dyno.client.endpoints import DEFAULT_LIMIT, AnySpec, Listing, ListPage
from dyno.client.exceptions import ConnectionBroken, JobNotSucceeded, Refused, ServerUnreachable
from dyno.client.http_transport import CONNECT_RETRIES, PATIENT, M, OnRetry, Request, Retries, http_errors
from dyno.client.streams import EventFollower, check_done, checked_file
from dyno.models.advice import Advice
from dyno.models.api_key import ApiKey, CreatedKey, Limits, Me, Scope
from dyno.models.baseline import BASELINE_MARGIN, Baseline
from dyno.models.comparison import Comparison, UnfinishedComparison
from dyno.models.event import AnyEvent
from dyno.models.history import Alarm, History
from dyno.models.inventory import AwayDevice, Cordon, DeviceStatus, WorkerRecord, WorkloadEntry
from dyno.models.job import Job, Status, Validation
from dyno.models.job_schedule import JobSchedule
from dyno.models.result import Artifact, Result, ResultRow, RunSamples
from dyno.models.result_export import ImportReport
from dyno.models.spec import CONFIDENCE, MARGIN
from dyno.models.sweep import Sweep, SweepSummary
from dyno.models.webhook import Delivery, DeliveryStatus
from dyno.settings import WrongSettings

DEFAULT_URL = "http://127.0.0.1:8000"

T = TypeVar("T")
OnProgress = Callable[[Job], None]
OnSweep = Callable[[Sweep], None]
Time = datetime | str | None


class Client:
    """A blocking client with one connection pool and an API key. Use it as a context manager.

    `url` defaults to `DYNO_URL`, then to this host; `key` defaults to `DYNO_API_KEY`. The client retries a submit while
    the service is away. All tries have one idempotency key, so they create one job at most. The client calls `away`
    with the error each time a call starts to wait for the service.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url, self._away = url or os.environ.get("DYNO_URL") or DEFAULT_URL, away
        transport = httpx.HTTPTransport(retries=CONNECT_RETRIES)
        with http_errors(self.url):
            self._http = httpx.Client(base_url=self.url, headers=_headers(key), timeout=timeout_s, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(self, spec: AnySpec, *, idempotency_key: str | None = None) -> Job:
        """Queue a job. If an earlier submit had the same `idempotency_key`, returns that submit's job.

        Retries for some seconds while the service is away. Raises Refused with every wrong field, or ServerUnreachable.
        """
        return self._send(endpoints.submit(spec, idempotency_key))

    def validate(self, spec: AnySpec) -> Validation:
        """Check a spec without queueing it: the spec as it would run, its estimated cost and warnings.

        Raises as `submit` does.
        """
        return self._send(endpoints.validate(spec))

    def job(self, job_id: str) -> Job:
        """The job's current record."""
        return self._send(endpoints.job(job_id))

    def jobs(
        self,
        *,
        status: Status | str | None = None,
        workload: str | None = None,
        device: str | None = None,
        framework: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[Job]:
        """The newest `limit` jobs (None: all) that match all filters. A label is `name` or `name=value`."""
        filters = {"status": status, "workload": workload, "device": device, "framework": framework, "label": label}
        times = {"created_after": created_after, "created_before": created_before}
        return self._list(endpoints.jobs(imported=imported, **filters, **times), limit)

    def wait(self, job_id: str, progress: OnProgress | None = None) -> Job:
        """Long-poll until the job is done, and call `progress` with each new version of the record.

        Retries for a minute while the service is away.
        """
        return self._until_done(self._send(endpoints.job(job_id, retry=PATIENT)), progress)

    def result(self, job_id: str) -> Result:
        """The result of a job that succeeded.

        Raises Refused: `result-not-ready` while the job isn't done, `no-result` if it failed or was canceled.
        """
        return self._send(endpoints.result(job_id))

    def run(self, spec: AnySpec, progress: OnProgress | None = None, *, idempotency_key: str | None = None) -> Result:
        """Submit a job, wait for it, and read its result. Raises JobNotSucceeded if it has none."""
        return self._outcome(self.submit(spec, idempotency_key=idempotency_key), progress)

    def outcome(self, job_id: str, progress: OnProgress | None = None) -> Result:
        """Wait for a job and read its result. Raises JobNotSucceeded if it has none."""
        return self._outcome(self._send(endpoints.job(job_id, retry=PATIENT)), progress)

    def cancel(self, job_id: str) -> Job:
        """Cancel a queued job at once, a running one within 5 s. Raises Refused: `job-finished` if it is done."""
        return self._send(endpoints.cancel(job_id))

    def rerun(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        """Queue the job's spec again, as a new job. Otherwise like `submit`."""
        return self._send(endpoints.rerun(job_id, idempotency_key))

    def delete(self, job_id: str) -> None:
        """Delete a done job with its result and files. Raises Refused: `job-live` while it isn't done."""
        self._send(endpoints.delete(job_id))

    def samples(self, job_id: str) -> list[RunSamples]:
        """All readings behind the result, run by run."""
        return self._send(endpoints.samples(job_id)).data

    def logs(self, job_id: str) -> str:
        """The output of the job's runners, the last 256 KiB at most."""
        return self._send(endpoints.logs(job_id))

    def follow_logs(self, job_id: str) -> Iterator[str]:
        """The output in `logs` and all new output until the job is done.

        Raises Refused and ServerUnreachable, the latter also if the stream ends before the job is done.
        """
        with self._open(endpoints.follow_logs(job_id)) as response:
            yield from response.iter_text()
        check_done(self._send(endpoints.job(job_id)))

    def events(self, job_id: str | None = None, after: str | None = None) -> Iterator[AnyEvent]:
        """The events of a job until it is done, or of all jobs without end. Each event is yielded once.

        The client reconnects after a broken connection and resumes after the last event. `after` is the `id` of the
        event to start after. By default a job's events start at its beginning, and those of all jobs now. Raises as
        `wait` does.
        """
        following = EventFollower(job_id, after)
        while not following.ended:
            try:
                with self._open(following.request()) as response:
                    following.connected(response)
                    for piece in response.iter_bytes():
                        yield from following.events(piece)
                        if following.ended:
                            return
            except (Refused, ServerUnreachable) as error:
                following.broke(error)
            if not following.ended:
                self._pause(following.pause_s)

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files that a job has stored."""
        return self._send(endpoints.artifacts(job_id)).data

    def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        """Download an artifact to the file `to`. Raises DownloadDamaged if its SHA-256 isn't the listed one."""
        request = endpoints.artifact(job_id, artifact.name)
        with checked_file(job_id, artifact, to) as write, self._open(request) as response:
            for piece in response.iter_bytes():
                write(piece)

    def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
        base: str | int = 0,
    ) -> Comparison:
        """Compare the jobs' results with that of `base`, a job or its index.

        Raises Refused: `not-comparable` if the results share no metric.
        """
        wanted = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence}
        if base != 0:  # a service of an older version refuses the field
            wanted["base"] = base
        return self._send(endpoints.compare(json=wanted))

    def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: OnProgress | None = None, **options: JsonValue
    ) -> Comparison:
        """Run both specs in turns on one device, wait, and compare them. Options as in `begin_comparison`.

        Raises Refused (`not-comparable` without a shared metric), or ComparisonNotMade if the job fails or is canceled.
        """
        begun = self._send(endpoints.begin_comparison(first, second, options))
        self.wait(begun.job, progress)
        return self._send(endpoints.comparison(begun.id, retry=PATIENT))

    def begin_comparison(
        self, /, first: AnySpec, second: AnySpec, *, idempotency_key: str | None = None, **options: JsonValue
    ) -> UnfinishedComparison:
        """Queue a job that runs both specs in turns. Options: pairs, control, metric, margin, confidence."""
        return self._send(endpoints.begin_comparison(first, second, options, idempotency_key))

    def comparison(self, comparison_id: str) -> Comparison:
        """A comparison. Raises ComparisonNotMade if its specs still run, failed or were canceled."""
        return self._send(endpoints.comparison(comparison_id))

    def bars(self, comparison_id: str) -> str:
        """The comparison as an SVG chart."""
        return self._send(endpoints.bars(comparison_id))

    def save_baseline(
        self, name: str, job_id: str, *, metric: str | None = None, margin: float = BASELINE_MARGIN
    ) -> Baseline:
        """Save a copy of a job's figure under a name, for specs with `"baseline": name`. Replaces an earlier one.

        Raises Refused with every wrong field.
        """
        wanted = {"job": job_id, "metric": metric, "margin": margin}
        return self._send(endpoints.save_baseline(name, json=wanted))

    def save_limit(
        self, name: str, metric: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> Baseline:
        """Save a limit under a name, as `save_baseline` does. Set one of `at_least` and `at_most`."""
        wanted = {"metric": metric, "at_least": at_least, "at_most": at_most}
        return self._send(endpoints.save_baseline(name, json=wanted))

    def baseline(self, name: str) -> Baseline:
        """A baseline. Raises Refused for an unknown name."""
        return self._send(endpoints.baseline(name))

    def baselines(self) -> list[Baseline]:
        """The baselines of this client's key, by name; an admin gets those of all keys."""
        return self._send(endpoints.baselines()).data

    def delete_baseline(self, name: str) -> None:
        """Delete a baseline. Jobs that name it keep their copies. Raises Refused for an unknown name."""
        self._send(endpoints.delete_baseline(name))

    def save_schedule(
        self, name: str, cron: str, spec: AnySpec, *, timezone: str = "UTC", enabled: bool = True
    ) -> JobSchedule:
        """Save a spec under a name, to be submitted at the times of a cron expression. Replaces an earlier one.

        Raises Refused with every wrong field.
        """
        wanted = {"cron": cron, "timezone": timezone, "spec": endpoints.spec_document(spec), "enabled": enabled}
        return self._send(endpoints.save_schedule(name, json=wanted))

    def schedule(self, name: str) -> JobSchedule:
        """A schedule, with its next times, what it fired and what it missed. Raises Refused for an unknown name."""
        return self._send(endpoints.schedule(name))

    def schedules(self) -> list[JobSchedule]:
        """The schedules of this client's key, by name; an admin gets those of all keys."""
        return self._send(endpoints.schedules()).data

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule; its jobs stay. Raises Refused for an unknown name."""
        self._send(endpoints.delete_schedule(name))

    def begin_sweep(self, request: Mapping[str, JsonValue], *, idempotency_key: str | None = None) -> Sweep:
        """Queue a job for each point. `request` is the body of POST /v1/sweeps: spec, grid or points, base, preset.

        Retries as `submit` does. Raises Refused with every fault of every point; then no job is queued.
        """
        return self._send(endpoints.begin_sweep(request, idempotency_key))

    def sweep(self, sweep_id: str, *, metric: str | None = None) -> Sweep:
        """A sweep with the results that there are so far. `metric`: what to compare instead of its own metric."""
        return self._send(endpoints.sweep(sweep_id, params=endpoints.given_params(metric=metric)))

    def wait_for_sweep(self, sweep_id: str, progress: OnSweep | None = None, *, metric: str | None = None) -> Sweep:
        """Poll until all jobs are done, and call `progress` with each state. Retries for a minute while the service is
        away. `metric`: as for `sweep`.
        """
        asked = endpoints.given_params(metric=metric)
        while True:
            now = self._send(endpoints.sweep(sweep_id, params=asked, retry=PATIENT))
            if progress:
                progress(now)
            if now.status != "running":
                return now
            self._pause(endpoints.next_sweep_look_s(now))

    def sweeps(self, *, limit: int | None = DEFAULT_LIMIT) -> list[SweepSummary]:
        """The newest `limit` sweeps (None: all), without their points."""
        return self._list(endpoints.sweeps(), limit)

    def cancel_sweep(self, sweep_id: str) -> Sweep:
        """Cancel all jobs of a sweep that aren't done. Raises Refused: `sweep-finished` if all of them are."""
        return self._send(endpoints.cancel_sweep(sweep_id))

    def sweep_table(self, sweep_id: str, format: str = "csv", *, metric: str | None = None) -> str:
        """A row for each point, as `csv`, `md` or `json`."""
        return self._send(endpoints.sweep_table(sweep_id, params=endpoints.given_params(format=format, metric=metric)))

    def sweep_plot(
        self, sweep_id: str, format: str = "svg", *, kind: str | None = None, metric: str | None = None
    ) -> bytes:
        """The sweep as an image, `svg` or `png`. `kind`: curve, heatmap or bars; None for whatever fits the axes."""
        asked = endpoints.given_params(format=format, kind=kind, metric=metric)
        return self._send(endpoints.sweep_plot(sweep_id, params=asked))

    def results(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[ResultRow]:
        """A flat table with a row for each metric of the newest `limit` jobs that succeeded (None: all)."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        times = {"from": created_after, "to": created_before}
        return self._list(endpoints.results(imported=imported, **filters, **times), limit)

    def result_pages(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
    ) -> Iterator[list[ResultRow]]:
        """The rows of all jobs that match, as `results` returns them, page by page: any number fits into memory."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        times = {"from": created_after, "to": created_before}
        listing = Listing(endpoints.results(imported=imported, **filters, **times), None)
        while listing.request:
            listing.add(self._send(replace(listing.request, retry=PATIENT)))
            yield listing.items
            listing.items = []

    def exported_lines(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
    ) -> Iterator[str]:
        """All results that match, each with its job and its samples as a line of JSON, which another Dyno imports."""
        filters = {"workload": workload, "device": device, "label": label}
        times = {"from": created_after, "to": created_before}
        page = self._send(endpoints.exported(imported=imported, **filters, **times))
        yield from page.lines
        while page.following:
            page = self._send(page.following)
            yield from page.lines

    def import_lines(self, lines: Iterable[str], *, source: str | None = None) -> Iterator[ImportReport]:
        """Import lines of JSON, such as those of an open file, and yield the outcome of each request.

        A request has up to 100 lines, which are imported together or not at all. Importing a result again changes
        nothing. `source` names the Dyno that ran the jobs. Raises Refused with the number of each wrong line.
        """
        for request in endpoints.import_requests(lines, source):
            yield self._send(request)

    def history(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
    ) -> History:
        """The newest results that match as series over time, with their changes and alarms."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        return self._send(endpoints.history(**filters, **{"from": created_after, "to": created_before}))

    def advice(
        self,
        workload: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        framework: str = "tensorflow",
        metric: str | None = None,
    ) -> Advice:
        """Rank the devices that are up for a workload, by their results of this spec. `metric` is a rate.

        Raises Refused for wrong params, and if the workload has no such rate.
        """
        return self._send(endpoints.advice(workload, params or {}, framework, metric))

    def acknowledge(self, alarm: Alarm) -> Alarm:
        """Acknowledge an alarm of a history; repeating it changes nothing."""
        return self._send(endpoints.acknowledge(alarm))

    def workloads(self) -> list[WorkloadEntry]:
        """All workloads."""
        return self._send(endpoints.workloads()).data

    def workload(self, name: str) -> WorkloadEntry:
        """One workload, with its params. Raises Refused for an unknown name."""
        return self._send(endpoints.workload(name))

    def devices(self) -> list[DeviceStatus]:
        """The devices of the live workers."""
        return self._send(endpoints.devices()).data

    def cordoned_away(self) -> list[AwayDevice]:
        """The cordoned devices without a live worker."""
        return self._send(endpoints.cordoned_away())

    def workers(self) -> list[WorkerRecord]:
        """The live workers. A worker's `job` is null if another key owns the job."""
        return self._send(endpoints.workers()).data

    def cordon(self, device: str) -> Cordon:
        """Cordon a device: it finishes its current job and takes no new ones. Raises Refused for an unknown device."""
        return self._send(endpoints.cordon(device))

    def uncordon(self, device: str) -> Cordon:
        """Let a cordoned device take jobs again. Raises Refused for an unknown device."""
        return self._send(endpoints.uncordon(device))

    def me(self) -> Me:
        """This client's key, its scopes and its limits."""
        return self._send(endpoints.me())

    def keys(self) -> list[ApiKey]:
        """All keys, including revoked ones, since jobs name them as their owners."""
        return self._send(endpoints.keys()).data

    def create_key(
        self,
        name: str,
        scope: Scope | str,
        limits: Limits | None = None,
        *,
        high_priority: bool = False,
        expires_in_s: int | None = None,
    ) -> CreatedKey:
        """Create a key. Only this response contains its secret. Raises Refused with every wrong field.

        expires_in_s: after this time the service refuses the key.
        """
        wanted = _new_key(name, scope, limits, high_priority, expires_in_s)
        return self._send(endpoints.create_key(json=wanted))

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key, so that the service refuses it. Its jobs go on. Repeating this changes nothing."""
        self._send(endpoints.revoke_key(key_id))

    def deliveries(
        self,
        *,
        status: DeliveryStatus | str | None = None,
        job: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[Delivery]:
        """The newest `limit` webhook deliveries (None: all) that match all filters, ordered by when the jobs ended."""
        times = {"created_after": created_after, "created_before": created_before}
        return self._list(endpoints.deliveries(status=status, job=job, **times), limit)

    def redeliver(self, delivery_id: str) -> Delivery:
        """Send a delivery again at once, whatever its status. Raises Refused for an unknown delivery."""
        return self._send(endpoints.redeliver(delivery_id))

    def alive(self) -> bool:
        """Whether the service answers within 2 s. Sends no API key, since another program may listen on the port."""
        try:
            return self._send(endpoints.alive())
        except ConnectionBroken:
            return False

    def not_ready_because(self) -> str | None:
        """Why the service isn't ready, for example because Redis is away or doesn't persist. None if it is ready."""
        try:
            return self._send(endpoints.ready())
        except (Refused, ServerUnreachable) as error:
            return error.detail

    def _send(self, request: Request[T]) -> T:
        retries = Retries(request.retry, self._away)
        while True:
            try:
                with http_errors(self.url):
                    response = self._http.send(request.build(self._http))
                return request.read(response)
            except (Refused, ServerUnreachable) as error:
                pause_s = retries.pause_s(error)
            self._pause(pause_s)

    @contextmanager
    def _open(self, request: Request[None]) -> Iterator[httpx.Response]:
        """Send the request once, and check the response, whose body is yet to be read."""
        with http_errors(self.url), closing(self._http.send(request.build(self._http), stream=True)) as response:
            if not response.is_success:
                response.read()
            request.read(response)
            yield response

    def _pause(self, time_s: float) -> None:
        time.sleep(time_s)

    def _list(self, request: Request[ListPage[M]], limit: int | None) -> list[M]:
        listing = Listing(request, limit)
        while listing.request:
            listing.add(self._send(listing.request))
        return listing.items

    def _until_done(self, job: Job, progress: OnProgress | None) -> Job:
        while True:
            if progress:
                progress(job)
            if job.done:
                return job
            polled = self._send(endpoints.next_version(job))
            job = polled.job or self._send(endpoints.job(job.id, retry=PATIENT))
            if polled.pause_s:
                self._pause(polled.pause_s)

    def _outcome(self, job: Job, progress: OnProgress | None) -> Result:
        job = self._until_done(job, progress)
        if job.status is not Status.SUCCEEDED:
            raise JobNotSucceeded(job)
        return self._send(endpoints.result(job.id, retry=PATIENT))


class AsyncClient:
    """The same client for asyncio: await each call, read events by `async for`, use it as an async context manager.

    The callbacks `progress` and `away` must not block.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url, self._away = url or os.environ.get("DYNO_URL") or DEFAULT_URL, away
        transport = httpx.AsyncHTTPTransport(retries=CONNECT_RETRIES)
        with http_errors(self.url):
            self._http = httpx.AsyncClient(
                base_url=self.url, headers=_headers(key), timeout=timeout_s, transport=transport
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def submit(self, spec: AnySpec, *, idempotency_key: str | None = None) -> Job:
        return await self._send(endpoints.submit(spec, idempotency_key))

    async def validate(self, spec: AnySpec) -> Validation:
        return await self._send(endpoints.validate(spec))

    async def job(self, job_id: str) -> Job:
        return await self._send(endpoints.job(job_id))

    async def jobs(
        self,
        *,
        status: Status | str | None = None,
        workload: str | None = None,
        device: str | None = None,
        framework: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[Job]:
        filters = {"status": status, "workload": workload, "device": device, "framework": framework, "label": label}
        times = {"created_after": created_after, "created_before": created_before}
        return await self._list(endpoints.jobs(imported=imported, **filters, **times), limit)

    async def wait(self, job_id: str, progress: OnProgress | None = None) -> Job:
        return await self._until_done(await self._send(endpoints.job(job_id, retry=PATIENT)), progress)

    async def result(self, job_id: str) -> Result:
        return await self._send(endpoints.result(job_id))

    async def run(
        self, spec: AnySpec, progress: OnProgress | None = None, *, idempotency_key: str | None = None
    ) -> Result:
        return await self._outcome(await self.submit(spec, idempotency_key=idempotency_key), progress)

    async def outcome(self, job_id: str, progress: OnProgress | None = None) -> Result:
        return await self._outcome(await self._send(endpoints.job(job_id, retry=PATIENT)), progress)

    async def cancel(self, job_id: str) -> Job:
        return await self._send(endpoints.cancel(job_id))

    async def rerun(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        return await self._send(endpoints.rerun(job_id, idempotency_key))

    async def delete(self, job_id: str) -> None:
        await self._send(endpoints.delete(job_id))

    async def samples(self, job_id: str) -> list[RunSamples]:
        return (await self._send(endpoints.samples(job_id))).data

    async def logs(self, job_id: str) -> str:
        return await self._send(endpoints.logs(job_id))

    async def follow_logs(self, job_id: str) -> AsyncIterator[str]:
        async with self._open(endpoints.follow_logs(job_id)) as response:
            async for text in response.aiter_text():
                yield text
        check_done(await self._send(endpoints.job(job_id)))

    async def events(self, job_id: str | None = None, after: str | None = None) -> AsyncIterator[AnyEvent]:
        following = EventFollower(job_id, after)
        while not following.ended:
            try:
                async with self._open(following.request()) as response:
                    following.connected(response)
                    async for piece in response.aiter_bytes():
                        for event in following.events(piece):
                            yield event
                        if following.ended:
                            return
            except (Refused, ServerUnreachable) as error:
                following.broke(error)
            if not following.ended:
                await self._pause(following.pause_s)

    async def artifacts(self, job_id: str) -> list[Artifact]:
        return (await self._send(endpoints.artifacts(job_id))).data

    async def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        request = endpoints.artifact(job_id, artifact.name)
        with checked_file(job_id, artifact, to) as write:
            async with self._open(request) as response:
                async for piece in response.aiter_bytes():
                    write(piece)

    async def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
        base: str | int = 0,
    ) -> Comparison:
        wanted = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence}
        if base != 0:  # a service of an older version refuses the field
            wanted["base"] = base
        return await self._send(endpoints.compare(json=wanted))

    async def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: OnProgress | None = None, **options: JsonValue
    ) -> Comparison:
        begun = await self._send(endpoints.begin_comparison(first, second, options))
        await self.wait(begun.job, progress)
        return await self._send(endpoints.comparison(begun.id, retry=PATIENT))

    async def begin_comparison(
        self, /, first: AnySpec, second: AnySpec, *, idempotency_key: str | None = None, **options: JsonValue
    ) -> UnfinishedComparison:
        return await self._send(endpoints.begin_comparison(first, second, options, idempotency_key))

    async def comparison(self, comparison_id: str) -> Comparison:
        return await self._send(endpoints.comparison(comparison_id))

    async def bars(self, comparison_id: str) -> str:
        return await self._send(endpoints.bars(comparison_id))

    async def save_baseline(
        self, name: str, job_id: str, *, metric: str | None = None, margin: float = BASELINE_MARGIN
    ) -> Baseline:
        wanted = {"job": job_id, "metric": metric, "margin": margin}
        return await self._send(endpoints.save_baseline(name, json=wanted))

    async def save_limit(
        self, name: str, metric: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> Baseline:
        wanted = {"metric": metric, "at_least": at_least, "at_most": at_most}
        return await self._send(endpoints.save_baseline(name, json=wanted))

    async def baseline(self, name: str) -> Baseline:
        return await self._send(endpoints.baseline(name))

    async def baselines(self) -> list[Baseline]:
        return (await self._send(endpoints.baselines())).data

    async def delete_baseline(self, name: str) -> None:
        await self._send(endpoints.delete_baseline(name))

    async def save_schedule(
        self, name: str, cron: str, spec: AnySpec, *, timezone: str = "UTC", enabled: bool = True
    ) -> JobSchedule:
        wanted = {"cron": cron, "timezone": timezone, "spec": endpoints.spec_document(spec), "enabled": enabled}
        return await self._send(endpoints.save_schedule(name, json=wanted))

    async def schedule(self, name: str) -> JobSchedule:
        return await self._send(endpoints.schedule(name))

    async def schedules(self) -> list[JobSchedule]:
        return (await self._send(endpoints.schedules())).data

    async def delete_schedule(self, name: str) -> None:
        await self._send(endpoints.delete_schedule(name))

    async def begin_sweep(self, request: Mapping[str, JsonValue], *, idempotency_key: str | None = None) -> Sweep:
        return await self._send(endpoints.begin_sweep(request, idempotency_key))

    async def sweep(self, sweep_id: str, *, metric: str | None = None) -> Sweep:
        return await self._send(endpoints.sweep(sweep_id, params=endpoints.given_params(metric=metric)))

    async def wait_for_sweep(
        self, sweep_id: str, progress: OnSweep | None = None, *, metric: str | None = None
    ) -> Sweep:
        asked = endpoints.given_params(metric=metric)
        while True:
            now = await self._send(endpoints.sweep(sweep_id, params=asked, retry=PATIENT))
            if progress:
                progress(now)
            if now.status != "running":
                return now
            await self._pause(endpoints.next_sweep_look_s(now))

    async def sweeps(self, *, limit: int | None = DEFAULT_LIMIT) -> list[SweepSummary]:
        return await self._list(endpoints.sweeps(), limit)

    async def cancel_sweep(self, sweep_id: str) -> Sweep:
        return await self._send(endpoints.cancel_sweep(sweep_id))

    async def sweep_table(self, sweep_id: str, format: str = "csv", *, metric: str | None = None) -> str:
        return await self._send(
            endpoints.sweep_table(sweep_id, params=endpoints.given_params(format=format, metric=metric))
        )

    async def sweep_plot(
        self, sweep_id: str, format: str = "svg", *, kind: str | None = None, metric: str | None = None
    ) -> bytes:
        asked = endpoints.given_params(format=format, kind=kind, metric=metric)
        return await self._send(endpoints.sweep_plot(sweep_id, params=asked))

    async def results(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[ResultRow]:
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        times = {"from": created_after, "to": created_before}
        return await self._list(endpoints.results(imported=imported, **filters, **times), limit)

    async def result_pages(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
    ) -> AsyncIterator[list[ResultRow]]:
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        times = {"from": created_after, "to": created_before}
        listing = Listing(endpoints.results(imported=imported, **filters, **times), None)
        while listing.request:
            listing.add(await self._send(replace(listing.request, retry=PATIENT)))
            yield listing.items
            listing.items = []

    async def exported_lines(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
    ) -> AsyncIterator[str]:
        filters = {"workload": workload, "device": device, "label": label}
        times = {"from": created_after, "to": created_before}
        page = await self._send(endpoints.exported(imported=imported, **filters, **times))
        for line in page.lines:
            yield line
        while page.following:
            page = await self._send(page.following)
            for line in page.lines:
                yield line

    async def import_lines(self, lines: Iterable[str], *, source: str | None = None) -> AsyncIterator[ImportReport]:
        for request in endpoints.import_requests(lines, source):
            yield await self._send(request)

    async def history(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
    ) -> History:
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        return await self._send(endpoints.history(**filters, **{"from": created_after, "to": created_before}))

    async def advice(
        self,
        workload: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        framework: str = "tensorflow",
        metric: str | None = None,
    ) -> Advice:
        return await self._send(endpoints.advice(workload, params or {}, framework, metric))

    async def acknowledge(self, alarm: Alarm) -> Alarm:
        return await self._send(endpoints.acknowledge(alarm))

    async def workloads(self) -> list[WorkloadEntry]:
        return (await self._send(endpoints.workloads())).data

    async def workload(self, name: str) -> WorkloadEntry:
        return await self._send(endpoints.workload(name))

    async def devices(self) -> list[DeviceStatus]:
        return (await self._send(endpoints.devices())).data

    async def cordoned_away(self) -> list[AwayDevice]:
        return await self._send(endpoints.cordoned_away())

    async def workers(self) -> list[WorkerRecord]:
        return (await self._send(endpoints.workers())).data

    async def cordon(self, device: str) -> Cordon:
        return await self._send(endpoints.cordon(device))

    async def uncordon(self, device: str) -> Cordon:
        return await self._send(endpoints.uncordon(device))

    async def me(self) -> Me:
        return await self._send(endpoints.me())

    async def keys(self) -> list[ApiKey]:
        return (await self._send(endpoints.keys())).data

    async def create_key(
        self,
        name: str,
        scope: Scope | str,
        limits: Limits | None = None,
        *,
        high_priority: bool = False,
        expires_in_s: int | None = None,
    ) -> CreatedKey:
        wanted = _new_key(name, scope, limits, high_priority, expires_in_s)
        return await self._send(endpoints.create_key(json=wanted))

    async def revoke_key(self, key_id: str) -> None:
        await self._send(endpoints.revoke_key(key_id))

    async def deliveries(
        self,
        *,
        status: DeliveryStatus | str | None = None,
        job: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[Delivery]:
        times = {"created_after": created_after, "created_before": created_before}
        return await self._list(endpoints.deliveries(status=status, job=job, **times), limit)

    async def redeliver(self, delivery_id: str) -> Delivery:
        return await self._send(endpoints.redeliver(delivery_id))

    async def alive(self) -> bool:
        try:
            return await self._send(endpoints.alive())
        except ConnectionBroken:
            return False

    async def not_ready_because(self) -> str | None:
        try:
            return await self._send(endpoints.ready())
        except (Refused, ServerUnreachable) as error:
            return error.detail

    async def _send(self, request: Request[T]) -> T:
        retries = Retries(request.retry, self._away)
        while True:
            try:
                with http_errors(self.url):
                    response = await self._http.send(request.build(self._http))
                return request.read(response)
            except (Refused, ServerUnreachable) as error:
                pause_s = retries.pause_s(error)
            await self._pause(pause_s)

    @asynccontextmanager
    async def _open(self, request: Request[None]) -> AsyncIterator[httpx.Response]:
        with http_errors(self.url):
            async with aclosing(await self._http.send(request.build(self._http), stream=True)) as response:
                if not response.is_success:
                    await response.aread()
                request.read(response)
                yield response

    async def _pause(self, time_s: float) -> None:
        await asyncio.sleep(time_s)

    async def _list(self, request: Request[ListPage[M]], limit: int | None) -> list[M]:
        listing = Listing(request, limit)
        while listing.request:
            listing.add(await self._send(listing.request))
        return listing.items

    async def _until_done(self, job: Job, progress: OnProgress | None) -> Job:
        while True:
            if progress:
                progress(job)
            if job.done:
                return job
            polled = await self._send(endpoints.next_version(job))
            job = polled.job if polled.job else await self._send(endpoints.job(job.id, retry=PATIENT))
            if polled.pause_s:
                await self._pause(polled.pause_s)

    async def _outcome(self, job: Job, progress: OnProgress | None) -> Result:
        job = await self._until_done(job, progress)
        if job.status is not Status.SUCCEEDED:
            raise JobNotSucceeded(job)
        return await self._send(endpoints.result(job.id, retry=PATIENT))


for _name, _method in vars(Client).items():  # `help(AsyncClient)` explains each method too
    if not _name.startswith("_"):
        vars(AsyncClient)[_name].__doc__ = _method.__doc__


def _new_key(
    name: str, scope: Scope | str, limits: Limits | None, high_priority: bool, expires_in_s: int | None
) -> dict[str, object]:
    """Without the fields that aren't set: a service of an older version refuses the newer ones."""
    wanted = {"name": name, "scope": scope, "limits": (limits or Limits()).model_dump(exclude_none=True)}
    rights = {"high_priority": True} if high_priority else {}
    return wanted | rights | ({} if expires_in_s is None else {"expires_in_s": expires_in_s})


def _headers(key: str | None) -> dict[str, str]:
    """Raises WrongSettings for an invalid key, without showing the key."""
    key = (key or os.environ.get("DYNO_API_KEY") or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise WrongSettings("invalid API key (DYNO_API_KEY or the argument): use printable ASCII characters only")
    return {"Authorization": f"Bearer {key}"} if key else {}


class AttemptClient(Client):
    """A client that sends an attempt's token in place of an API key.

    The token permits storing files of its job, and downloading files of another job that its job starts from.
    """

    def __init__(self, url: str, job_id: str, token: str, *, timeout_s: float = 10.0) -> None:
        super().__init__(url, token, timeout_s=timeout_s)
        self._job_id = job_id
        self._http.headers["Dyno-Job"] = job_id

    def upload(self, name: str, source: Path) -> Artifact:
        """Store a file of the job."""
        with source.open("rb") as file:
            return self._send(endpoints.upload(self._job_id, name, content=file))
