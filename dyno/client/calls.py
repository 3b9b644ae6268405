"""The calls of both clients, each written once: its request, and how it reads the response."""

import json
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from pydantic import JsonValue

from dyno.client import endpoints
from dyno.client.endpoints import DEFAULT_LIMIT, AnySpec, Filter, ListPage, once, query, request, spec_document
from dyno.client.exceptions import ConnectionBroken, Refused, ServerUnreachable
from dyno.client.exchange import Exchange, OnProgress, call, stream
from dyno.client.http_transport import PATIENT, Request, check_status, read_bytes, read_model
from dyno.client.streams import EventFollower, check_done, checked_file
from dyno.models.advice import Advice
from dyno.models.api_key import ApiKey, CreatedKey, Limits, Me, Scope
from dyno.models.baseline import BASELINE_MARGIN, Baseline
from dyno.models.comparison import Comparison, UnfinishedComparison
from dyno.models.event import AnyEvent
from dyno.models.history import Alarm, History
from dyno.models.inventory import AwayDevice, Cordon, DeviceStatus, WarningEntry, WorkerRecord, WorkloadEntry
from dyno.models.job import Job, Status, Validation
from dyno.models.job_schedule import JobSchedule
from dyno.models.result import Artifact, Result, RunSamples
from dyno.models.result_export import ImportReport, ResultRow
from dyno.models.spec import CONFIDENCE, MARGIN
from dyno.models.sweep import Sweep, SweepSummary
from dyno.models.webhook import Delivery, DeliveryStatus

OnSweep = Callable[[Sweep], None]
Time = datetime | str | None


class ClientCalls(Exchange):
    """The calls that both clients have. Each raises Refused for a problem, and ServerUnreachable."""

    @call
    async def submit(self, spec: AnySpec, *, idempotency_key: str | None = None) -> Job:
        """Queue a job. If an earlier submit had the same `idempotency_key`, returns that submit's job.

        Retries for some seconds while the service is away. Raises Refused with every wrong field, or ServerUnreachable.
        """
        return await self._post(Job, "/v1/jobs", json=spec_document(spec), **once(idempotency_key))

    @call
    async def validate(self, spec: AnySpec) -> Validation:
        """Check a spec without queueing it. Returns the spec with its defaults, the estimated cost and warnings.

        Raises as `submit` does.
        """
        return await self._post(Validation, "/v1/jobs", params={"validate_only": True}, json=spec_document(spec))

    @call
    async def job(self, job_id: str) -> Job:
        """The job's current record."""
        return await self._get(Job, "/v1/jobs/{}", job_id)

    @call
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
        """The newest `limit` jobs (None: all) that match all filters. A label is `name` or `name=value`."""
        filters = {"status": status, "workload": workload, "device": device, "framework": framework, "label": label}
        times = {"created_after": created_after, "created_before": created_before}
        read = partial(read_model, ListPage[Job])
        return await self._listed(
            request("GET", read, "/v1/jobs", params=query(imported=imported, **filters, **times)), limit
        )

    @call
    async def wait(self, job_id: str, progress: OnProgress | None = None) -> Job:
        """Long-poll until the job is done, and call `progress` with each new version of the record.

        Retries for a minute while the service is away.
        """
        return await self._done(await self._current(job_id), progress)

    @call
    async def result(self, job_id: str) -> Result:
        """The result of a job that succeeded.

        Raises Refused: `result-not-ready` while the job isn't done, `no-result` if it failed or was canceled.
        """
        return await self._get(Result, "/v1/jobs/{}/result", job_id)

    @call
    async def run(
        self, spec: AnySpec, progress: OnProgress | None = None, *, idempotency_key: str | None = None
    ) -> Result:
        """Submit a job, wait for it, and read its result. Raises JobNotSucceeded if the job has no result."""
        job = await self._post(Job, "/v1/jobs", json=spec_document(spec), **once(idempotency_key))
        return await self._outcome(job, progress)

    @call
    async def outcome(self, job_id: str, progress: OnProgress | None = None) -> Result:
        """Wait for a job and read its result. Raises JobNotSucceeded if the job has no result."""
        return await self._outcome(await self._current(job_id), progress)

    @call
    async def cancel(self, job_id: str) -> Job:
        """Cancel a queued job at once, or a running job within 5 s. Raises Refused: `job-finished` for a done job."""
        return await self._post(Job, "/v1/jobs/{}/cancel", job_id)

    @call
    async def rerun(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        """Queue the job's spec again, as a new job. Retries and raises as `submit` does."""
        return await self._post(Job, "/v1/jobs/{}/rerun", job_id, **once(idempotency_key))

    @call
    async def delete(self, job_id: str) -> None:
        """Delete a done job with its result and files. Raises Refused: `job-live` while it isn't done."""
        await self._delete("/v1/jobs/{}", job_id)

    @call
    async def samples(self, job_id: str) -> list[RunSamples]:
        """All samples of the result, run by run."""
        return await self._list(ListPage[RunSamples], "/v1/jobs/{}/samples", job_id)

    @call
    async def logs(self, job_id: str) -> str:
        """The output of the job's runners, the last 256 KiB at most."""
        return await self._text("/v1/jobs/{}/logs", job_id)

    @stream
    async def follow_logs(self, job_id: str) -> AsyncIterator[str]:
        """The output in `logs` and all new output until the job is done.

        Raises Refused, or ServerUnreachable, for example if the stream ends before the job is done.
        """
        options: dict[str, Any] = {"params": {"follow": "true"}, "timeout": endpoints.LOG_TIMEOUT}
        decoder = getincrementaldecoder("utf-8")("replace")
        async with self._open(request("GET", check_status, "/v1/jobs/{}/logs", job_id, **options)) as response:
            async for piece in self._pieces(response):
                yield decoder.decode(piece)
        check_done(await self._get(Job, "/v1/jobs/{}", job_id))

    @stream
    async def events(self, job_id: str | None = None, after: str | None = None) -> AsyncIterator[AnyEvent]:
        """The events of a job until it is done, or of all jobs without end. Each event is yielded once.

        The client reconnects after a broken connection and resumes after the last event. `after`: start after the event
        with this `id`. By default, a job's events start with its first event, and events of all jobs start now. Raises
        as `wait` does.
        """
        following = EventFollower(job_id, after)
        while not following.ended:
            try:
                async with self._open(following.request()) as response:
                    following.connected(response)
                    async for piece in self._pieces(response):
                        for event in following.events(piece):
                            yield event
                        if following.ended:
                            return
            except (Refused, ServerUnreachable) as error:
                following.broke(error)
            if not following.ended:
                await self._pause(following.pause_s)

    @call
    async def artifacts(self, job_id: str) -> list[Artifact]:
        """The files that a job has stored."""
        return await self._list(ListPage[Artifact], "/v1/jobs/{}/artifacts", job_id)

    @call
    async def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        """Download an artifact to the file `to`. Raises DownloadDamaged if its SHA-256 isn't `artifact.sha256`."""
        file = request("GET", check_status, "/v1/jobs/{}/artifacts/{}", job_id, artifact.name)
        with checked_file(job_id, artifact, to) as write:
            async with self._open(file) as response:
                async for piece in self._pieces(response):
                    write(piece)

    @call
    async def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
        base: str | int = 0,
    ) -> Comparison:
        """Compare the jobs' results with the result of `base`, a job id or an index in `job_ids`.

        Raises Refused: `not-comparable` if the results share no metric.
        """
        body = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence, "base": base}
        return await self._post(Comparison, "/v1/comparisons", json=body)

    @call
    async def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: OnProgress | None = None, **options: JsonValue
    ) -> Comparison:
        """Run both specs in turns on one device, wait, and compare them. Options as in `begin_comparison`.

        Raises Refused (`not-comparable` without a shared metric), or ComparisonNotMade if the job fails or is canceled.
        """
        begun = await self._begin_comparison(first, second, options)
        await self._done(await self._current(begun.job), progress)
        return await self._comparison(begun.id, retry=PATIENT)

    @call
    async def begin_comparison(
        self, /, first: AnySpec, second: AnySpec, *, idempotency_key: str | None = None, **options: JsonValue
    ) -> UnfinishedComparison:
        """Queue a job that runs both specs in turns. Options: pairs, control, metric, margin, confidence."""
        return await self._begin_comparison(first, second, options, idempotency_key)

    @call
    async def comparison(self, comparison_id: str) -> Comparison:
        """A comparison. Raises ComparisonNotMade if its specs still run, failed or were canceled."""
        return await self._comparison(comparison_id)

    @call
    async def bars(self, comparison_id: str) -> str:
        """The comparison as an SVG chart."""
        return await self._text("/v1/comparisons/{}/bars.svg", comparison_id)

    @call
    async def save_baseline(
        self, name: str, job_id: str, *, metric: str | None = None, margin: float = BASELINE_MARGIN
    ) -> Baseline:
        """Save a copy of a job's figure for specs with `"baseline": name`. Replaces a baseline of the same name.

        Raises Refused with every wrong field.
        """
        body = {"job": job_id, "metric": metric, "margin": margin}
        return await self._put(Baseline, "/v1/baselines/{}", name, json=body)

    @call
    async def save_limit(
        self, name: str, metric: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> Baseline:
        """Save a limit under a name, for specs with `"baseline": name`. Set either `at_least` or `at_most`."""
        body = {"metric": metric, "at_least": at_least, "at_most": at_most}
        return await self._put(Baseline, "/v1/baselines/{}", name, json=body)

    @call
    async def baseline(self, name: str) -> Baseline:
        """A baseline. Raises Refused for an unknown name."""
        return await self._get(Baseline, "/v1/baselines/{}", name)

    @call
    async def baselines(self) -> list[Baseline]:
        """The baselines of this client's key, by name; an admin gets the baselines of all keys."""
        return await self._list(ListPage[Baseline], "/v1/baselines")

    @call
    async def delete_baseline(self, name: str) -> None:
        """Delete a baseline. Jobs that name the baseline keep their copies. Raises Refused for an unknown name."""
        await self._delete("/v1/baselines/{}", name)

    @call
    async def save_schedule(
        self, name: str, cron: str, spec: AnySpec, *, timezone: str = "UTC", enabled: bool = True
    ) -> JobSchedule:
        """Save a spec to submit at the times of a cron expression. Replaces a schedule of the same name.

        Raises Refused with every wrong field.
        """
        body = {"cron": cron, "timezone": timezone, "spec": spec_document(spec), "enabled": enabled}
        return await self._put(JobSchedule, "/v1/schedules/{}", name, json=body)

    @call
    async def schedule(self, name: str) -> JobSchedule:
        """A schedule, with its next times, firings and missed times. Raises Refused for an unknown name."""
        return await self._get(JobSchedule, "/v1/schedules/{}", name)

    @call
    async def schedules(self) -> list[JobSchedule]:
        """The schedules of this client's key, by name; an admin gets the schedules of all keys."""
        return await self._list(ListPage[JobSchedule], "/v1/schedules")

    @call
    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule; its jobs stay. Raises Refused for an unknown name."""
        await self._delete("/v1/schedules/{}", name)

    @call
    async def begin_sweep(self, request: Mapping[str, JsonValue], *, idempotency_key: str | None = None) -> Sweep:
        """Queue a job for each point. `request` is the body of POST /v1/sweeps: spec, grid or points, base, preset.

        Retries as `submit` does. Raises Refused with every fault of every point; then no job is queued.
        """
        return await self._post(Sweep, "/v1/sweeps", json=dict(request), **once(idempotency_key))

    @call
    async def sweep(self, sweep_id: str, *, metric: str | None = None) -> Sweep:
        """A sweep with its results so far. `metric`: the metric to compare, instead of the sweep's own."""
        return await self._get(Sweep, "/v1/sweeps/{}", sweep_id, params=query(metric=metric))

    @call
    async def wait_for_sweep(
        self, sweep_id: str, progress: OnSweep | None = None, *, metric: str | None = None
    ) -> Sweep:
        """Poll until all jobs are done, and call `progress` with each state. Retries for a minute while the service is
        away. `metric`: as for `sweep`.
        """
        while True:
            now = await self._get(Sweep, "/v1/sweeps/{}", sweep_id, params=query(metric=metric), retry=PATIENT)
            if progress:
                progress(now)
            if now.status != "running":
                return now
            await self._pause(endpoints.next_sweep_look_s(now))

    @call
    async def sweeps(self, *, limit: int | None = DEFAULT_LIMIT) -> list[SweepSummary]:
        """The newest `limit` sweeps (None: all), without their points."""
        return await self._listed(request("GET", partial(read_model, ListPage[SweepSummary]), "/v1/sweeps"), limit)

    @call
    async def cancel_sweep(self, sweep_id: str) -> Sweep:
        """Cancel all jobs of a sweep that aren't done. Raises Refused: `sweep-finished` if all jobs are done."""
        return await self._post(Sweep, "/v1/sweeps/{}/cancel", sweep_id)

    @call
    async def sweep_table(self, sweep_id: str, format: str = "csv", *, metric: str | None = None) -> str:
        """A row for each point, as `csv`, `md` or `json`."""
        return await self._text("/v1/sweeps/{}/table", sweep_id, params=query(format=format, metric=metric))

    @call
    async def sweep_plot(
        self, sweep_id: str, format: str = "svg", *, kind: str | None = None, metric: str | None = None
    ) -> bytes:
        """The sweep as an image, `svg` or `png`. `kind`: curve, heatmap or bars; None to choose one by the axes."""
        options: dict[str, Any] = {
            "params": query(format=format, kind=kind, metric=metric),
            "timeout": endpoints.PLOT_S,
        }
        return await self._send(request("GET", read_bytes, "/v1/sweeps/{}/plot", sweep_id, **options))

    @call
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
        """A flat table with a row for each metric of each of the newest `limit` jobs that succeeded (None: all)."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        params = _between(created_after, created_before, imported=imported, **filters)
        return await self._listed(request("GET", endpoints.read_rows, "/v1/results", params=params), limit)

    @stream
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
        """The rows of all jobs that match, as `results` returns them, but page by page, to limit the use of memory."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        params = _between(created_after, created_before, imported=imported, **filters)
        rows = request("GET", endpoints.read_rows, "/v1/results", params=params, retry=PATIENT)
        async for page in self._pages(rows):
            yield page

    @stream
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
        """All results that match, each as a line of JSON with its job and its samples. Another Dyno can import them."""
        filters = {"workload": workload, "device": device, "label": label, "format": "jsonl"}
        params = _between(created_after, created_before, imported=imported, **filters)
        options: dict[str, Any] = {"params": params, "timeout": endpoints.EXPORT_S, "retry": PATIENT}
        lines = request("GET", endpoints.read_lines, "/v1/results", **options)
        async for page in self._pages(lines, page_size=endpoints.EXPORTED_JOBS):
            for line in page:
                yield line

    @stream
    async def import_lines(self, lines: Iterable[str], *, source: str | None = None) -> AsyncIterator[ImportReport]:
        """Import lines of JSON, such as those of an open file, and yield the outcome of each request.

        A request has up to 100 lines, which are imported together or not at all. Importing a result again changes
        nothing. `source` names the Dyno that ran the jobs. Raises Refused with the number of each wrong line.
        """
        for batch in endpoints.import_requests(lines, source):
            yield await self._send(batch)

    @call
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
        """Series over time of the newest results that match all filters, with their changes and alarms."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        params = _between(created_after, created_before, **filters)
        return await self._get(History, "/v1/history", params=params)

    @call
    async def advice(
        self,
        workload: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        framework: str = "tensorflow",
        metric: str | None = None,
    ) -> Advice:
        """Rank the live devices by their earlier results of this spec. `metric` is a rate.

        Raises Refused for wrong params, or if the workload has no such rate.
        """
        spec = query(workload=workload, params=json.dumps(params or {}), framework=framework)
        return await self._get(Advice, "/v1/advice", params=spec | query(metric=metric))

    @call
    async def acknowledge(self, alarm: Alarm) -> Alarm:
        """Acknowledge an alarm of a history. Repeating the call changes nothing."""
        url = httpx.URL(alarm.acknowledge_url)  # its query selects the history with this alarm
        read = partial(read_model, Alarm)
        return await self._send(Request("POST", url.path, read, params=dict(url.params)))

    @call
    async def workloads(self) -> list[WorkloadEntry]:
        """All workloads."""
        return await self._list(ListPage[WorkloadEntry], "/v1/workloads")

    @call
    async def workload(self, name: str) -> WorkloadEntry:
        """One workload, with its params. Raises Refused for an unknown name."""
        return await self._get(WorkloadEntry, "/v1/workloads/{}", name)

    @call
    async def warning_codes(self) -> list[WarningEntry]:
        """All warning codes, the gravest first, with their meaning and advice."""
        return await self._list(ListPage[WarningEntry], "/v1/results/warnings")

    @call
    async def devices(self) -> list[DeviceStatus]:
        """The devices of the live workers."""
        return await self._list(ListPage[DeviceStatus], "/v1/devices")

    @call
    async def cordoned_away(self) -> list[AwayDevice]:
        """The cordoned devices without a live worker."""
        return await self._send(request("GET", endpoints.read_cordoned_away, "/v1/devices"))

    @call
    async def workers(self) -> list[WorkerRecord]:
        """The live workers. A worker's `job` is null if another key owns the job."""
        return await self._list(ListPage[WorkerRecord], "/v1/workers")

    @call
    async def cordon(self, device: str) -> Cordon:
        """Cordon a device: it finishes its current job and takes no new ones. Raises Refused for an unknown device."""
        return await self._post(Cordon, "/v1/devices/{}/cordon", device)

    @call
    async def uncordon(self, device: str) -> Cordon:
        """Let a cordoned device take jobs again. Raises Refused for an unknown device."""
        return await self._post(Cordon, "/v1/devices/{}/uncordon", device)

    @call
    async def me(self) -> Me:
        """This client's key, its scopes and its limits."""
        return await self._get(Me, "/v1/me")

    @call
    async def keys(self) -> list[ApiKey]:
        """All keys, including revoked ones, since jobs name them as their owners."""
        return await self._list(ListPage[ApiKey], "/v1/keys")

    @call
    async def create_key(
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
        body = {
            "name": name,
            "scope": scope,
            "limits": (limits or Limits()).model_dump(),
            "high_priority": high_priority,
            "expires_in_s": expires_in_s,
        }
        return await self._post(CreatedKey, "/v1/keys", json=body)

    @call
    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key, so that the service refuses it. Its jobs continue. Repeating the call changes nothing."""
        await self._delete("/v1/keys/{}", key_id)

    @call
    async def deliveries(
        self,
        *,
        status: DeliveryStatus | str | None = None,
        job: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> list[Delivery]:
        """The newest `limit` webhook deliveries (None: all) that match all filters, ordered by the ends of the jobs."""
        params = query(status=status, job=job, created_after=created_after, created_before=created_before)
        read = partial(read_model, ListPage[Delivery])
        return await self._listed(request("GET", read, "/v1/webhook-deliveries", params=params), limit)

    @call
    async def redeliver(self, delivery_id: str) -> Delivery:
        """Send a delivery again at once, whatever its status. Raises Refused for an unknown delivery."""
        return await self._post(Delivery, "/v1/webhook-deliveries/{}/redeliver", delivery_id)

    @call
    async def alive(self) -> bool:
        """Whether the service answers within 2 s. Sends no API key, since another program may listen on the port."""
        try:
            livez = request("GET", _is_alive, "/livez", timeout=endpoints.ALIVE_S, authenticate=False)
            return await self._send(livez)
        except ConnectionBroken:
            return False

    @call
    async def not_ready_because(self) -> str | None:
        """The reason why the service isn't ready, such as that Redis doesn't persist; None if the service is ready."""
        try:
            await self._send(request("GET", check_status, "/readyz"))
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None

    async def _begin_comparison(
        self, first: AnySpec, second: AnySpec, options: Mapping[str, JsonValue], key: str | None = None
    ) -> UnfinishedComparison:
        """Queue the comparison. Fields that the second spec omits are taken from the first."""
        specs: list[JsonValue] = [spec_document(spec, exclude_unset=True) for spec in (first, second)]
        return await self._post(UnfinishedComparison, "/v1/comparisons", json={"specs": specs, **options}, **once(key))

    async def _comparison(self, comparison_id: str, **options: Any) -> Comparison:
        path = "/v1/comparisons/{}"
        return await self._send(request("GET", endpoints.read_comparison, path, comparison_id, **options))


def _is_alive(response: httpx.Response) -> bool:
    return response.status_code == 200


def _between(created_after: Time, created_before: Time, **filters: Filter) -> dict[str, str]:
    """The query of a request for results."""
    return query(**filters, **{"from": created_after, "to": created_before})
