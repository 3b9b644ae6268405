"""The calls that both clients have, each written once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from dyno.client import endpoints
from dyno.client.endpoints import DEFAULT_LIMIT, AnySpec, LinePage, Listing
from dyno.client.exceptions import ConnectionBroken, Refused, ServerUnreachable
from dyno.client.flows import Flow, OnProgress, OnSweep, Pages, Time, call, listed, result_of, sent, stream, until_done
from dyno.client.http_transport import PATIENT, Request
from dyno.models.advice import Advice
from dyno.models.api_key import ApiKey, CreatedKey, Limits, Me, Scope
from dyno.models.baseline import BASELINE_MARGIN, Baseline
from dyno.models.comparison import Comparison, UnfinishedComparison
from dyno.models.history import Alarm, History
from dyno.models.inventory import AwayDevice, Cordon, DeviceStatus, WorkerRecord, WorkloadEntry
from dyno.models.job import Job, Status, Validation
from dyno.models.job_schedule import JobSchedule
from dyno.models.result import Artifact, Result, RunSamples
from dyno.models.result_export import ImportReport, ResultRow
from dyno.models.spec import CONFIDENCE, MARGIN
from dyno.models.sweep import Sweep, SweepSummary
from dyno.models.webhook import Delivery, DeliveryStatus


class ClientCalls:
    """The calls that both clients have. Each raises Refused for a problem, and ServerUnreachable."""

    @call
    def submit(self, spec: AnySpec, *, idempotency_key: str | None = None) -> Request[Job]:
        """Queue a job. If an earlier submit had the same `idempotency_key`, returns that submit's job.

        Retries for some seconds while the service is away. Raises Refused with every wrong field, or ServerUnreachable.
        """
        return endpoints.submit(spec, idempotency_key)

    @call
    def validate(self, spec: AnySpec) -> Request[Validation]:
        """Check a spec without queueing it: the spec as it would run, its estimated cost and warnings.

        Raises as `submit` does.
        """
        return endpoints.validate(spec)

    @call
    def job(self, job_id: str) -> Request[Job]:
        """The job's current record."""
        return endpoints.job(job_id)

    @call
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
    ) -> Flow[list[Job]]:
        """The newest `limit` jobs (None: all) that match all filters. A label is `name` or `name=value`."""
        filters = {"status": status, "workload": workload, "device": device, "framework": framework, "label": label}
        times = {"created_after": created_after, "created_before": created_before}
        return listed(endpoints.jobs(imported=imported, **filters, **times), limit)

    @call
    def wait(self, job_id: str, progress: OnProgress | None = None) -> Flow[Job]:
        """Long-poll until the job is done, and call `progress` with each new version of the record.

        Retries for a minute while the service is away.
        """
        job = yield from sent(endpoints.job(job_id, retry=PATIENT))
        return (yield from until_done(job, progress))

    @call
    def result(self, job_id: str) -> Request[Result]:
        """The result of a job that succeeded.

        Raises Refused: `result-not-ready` while the job isn't done, `no-result` if it failed or was canceled.
        """
        return endpoints.result(job_id)

    @call
    def run(
        self, spec: AnySpec, progress: OnProgress | None = None, *, idempotency_key: str | None = None
    ) -> Flow[Result]:
        """Submit a job, wait for it, and read its result. Raises JobNotSucceeded if it has none."""
        job = yield from sent(endpoints.submit(spec, idempotency_key))
        return (yield from result_of(job, progress))

    @call
    def outcome(self, job_id: str, progress: OnProgress | None = None) -> Flow[Result]:
        """Wait for a job and read its result. Raises JobNotSucceeded if it has none."""
        job = yield from sent(endpoints.job(job_id, retry=PATIENT))
        return (yield from result_of(job, progress))

    @call
    def cancel(self, job_id: str) -> Request[Job]:
        """Cancel a queued job at once, a running one within 5 s. Raises Refused: `job-finished` if it is done."""
        return endpoints.cancel(job_id)

    @call
    def rerun(self, job_id: str, *, idempotency_key: str | None = None) -> Request[Job]:
        """Queue the job's spec again, as a new job. Otherwise like `submit`."""
        return endpoints.rerun(job_id, idempotency_key)

    @call
    def delete(self, job_id: str) -> Request[None]:
        """Delete a done job with its result and files. Raises Refused: `job-live` while it isn't done."""
        return endpoints.delete(job_id)

    @call
    def samples(self, job_id: str) -> Request[list[RunSamples]]:
        """All readings behind the result, run by run."""
        return endpoints.samples(job_id)

    @call
    def logs(self, job_id: str) -> Request[str]:
        """The output of the job's runners, the last 256 KiB at most."""
        return endpoints.logs(job_id)

    @call
    def artifacts(self, job_id: str) -> Request[list[Artifact]]:
        """The files that a job has stored."""
        return endpoints.artifacts(job_id)

    @call
    def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
        base: str | int = 0,
    ) -> Request[Comparison]:
        """Compare the jobs' results with that of `base`, a job or its index.

        Raises Refused: `not-comparable` if the results share no metric.
        """
        body = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence, "base": base}
        return endpoints.compare(json=body)

    @call
    def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: OnProgress | None = None, **options: JsonValue
    ) -> Flow[Comparison]:
        """Run both specs in turns on one device, wait, and compare them. Options as in `begin_comparison`.

        Raises Refused (`not-comparable` without a shared metric), or ComparisonNotMade if the job fails or is canceled.
        """
        begun = yield from sent(endpoints.begin_comparison(first, second, options))
        job = yield from sent(endpoints.job(begun.job, retry=PATIENT))
        yield from until_done(job, progress)
        return (yield from sent(endpoints.comparison(begun.id, retry=PATIENT)))

    @call
    def begin_comparison(
        self, /, first: AnySpec, second: AnySpec, *, idempotency_key: str | None = None, **options: JsonValue
    ) -> Request[UnfinishedComparison]:
        """Queue a job that runs both specs in turns. Options: pairs, control, metric, margin, confidence."""
        return endpoints.begin_comparison(first, second, options, idempotency_key)

    @call
    def comparison(self, comparison_id: str) -> Request[Comparison]:
        """A comparison. Raises ComparisonNotMade if its specs still run, failed or were canceled."""
        return endpoints.comparison(comparison_id)

    @call
    def bars(self, comparison_id: str) -> Request[str]:
        """The comparison as an SVG chart."""
        return endpoints.bars(comparison_id)

    @call
    def save_baseline(
        self, name: str, job_id: str, *, metric: str | None = None, margin: float = BASELINE_MARGIN
    ) -> Request[Baseline]:
        """Save a copy of a job's figure under a name, for specs with `"baseline": name`. Replaces an earlier one.

        Raises Refused with every wrong field.
        """
        body = {"job": job_id, "metric": metric, "margin": margin}
        return endpoints.save_baseline(name, json=body)

    @call
    def save_limit(
        self, name: str, metric: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> Request[Baseline]:
        """Save a limit under a name, as `save_baseline` does. Set one of `at_least` and `at_most`."""
        body = {"metric": metric, "at_least": at_least, "at_most": at_most}
        return endpoints.save_baseline(name, json=body)

    @call
    def baseline(self, name: str) -> Request[Baseline]:
        """A baseline. Raises Refused for an unknown name."""
        return endpoints.baseline(name)

    @call
    def baselines(self) -> Request[list[Baseline]]:
        """The baselines of this client's key, by name; an admin gets those of all keys."""
        return endpoints.baselines()

    @call
    def delete_baseline(self, name: str) -> Request[None]:
        """Delete a baseline. Jobs that name it keep their copies. Raises Refused for an unknown name."""
        return endpoints.delete_baseline(name)

    @call
    def save_schedule(
        self, name: str, cron: str, spec: AnySpec, *, timezone: str = "UTC", enabled: bool = True
    ) -> Request[JobSchedule]:
        """Save a spec under a name, to be submitted at the times of a cron expression. Replaces an earlier one.

        Raises Refused with every wrong field.
        """
        body = {"cron": cron, "timezone": timezone, "spec": endpoints.spec_document(spec), "enabled": enabled}
        return endpoints.save_schedule(name, json=body)

    @call
    def schedule(self, name: str) -> Request[JobSchedule]:
        """A schedule, with its next times, what it fired and what it missed. Raises Refused for an unknown name."""
        return endpoints.schedule(name)

    @call
    def schedules(self) -> Request[list[JobSchedule]]:
        """The schedules of this client's key, by name; an admin gets those of all keys."""
        return endpoints.schedules()

    @call
    def delete_schedule(self, name: str) -> Request[None]:
        """Delete a schedule; its jobs stay. Raises Refused for an unknown name."""
        return endpoints.delete_schedule(name)

    @call
    def begin_sweep(self, request: Mapping[str, JsonValue], *, idempotency_key: str | None = None) -> Request[Sweep]:
        """Queue a job for each point. `request` is the body of POST /v1/sweeps: spec, grid or points, base, preset.

        Retries as `submit` does. Raises Refused with every fault of every point; then no job is queued.
        """
        return endpoints.begin_sweep(request, idempotency_key)

    @call
    def sweep(self, sweep_id: str, *, metric: str | None = None) -> Request[Sweep]:
        """A sweep with the results that there are so far. `metric`: what to compare instead of its own metric."""
        return endpoints.sweep(sweep_id, params=endpoints.given_params(metric=metric))

    @call
    def wait_for_sweep(
        self, sweep_id: str, progress: OnSweep | None = None, *, metric: str | None = None
    ) -> Flow[Sweep]:
        """Poll until all jobs are done, and call `progress` with each state. Retries for a minute while the service is
        away. `metric`: as for `sweep`.
        """
        query = endpoints.given_params(metric=metric)
        while True:
            now = yield from sent(endpoints.sweep(sweep_id, params=query, retry=PATIENT))
            if progress:
                progress(now)
            if now.status != "running":
                return now
            yield endpoints.next_sweep_look_s(now)

    @call
    def sweeps(self, *, limit: int | None = DEFAULT_LIMIT) -> Flow[list[SweepSummary]]:
        """The newest `limit` sweeps (None: all), without their points."""
        return listed(endpoints.sweeps(), limit)

    @call
    def cancel_sweep(self, sweep_id: str) -> Request[Sweep]:
        """Cancel all jobs of a sweep that aren't done. Raises Refused: `sweep-finished` if all of them are."""
        return endpoints.cancel_sweep(sweep_id)

    @call
    def sweep_table(self, sweep_id: str, format: str = "csv", *, metric: str | None = None) -> Request[str]:
        """A row for each point, as `csv`, `md` or `json`."""
        return endpoints.sweep_table(sweep_id, params=endpoints.given_params(format=format, metric=metric))

    @call
    def sweep_plot(
        self, sweep_id: str, format: str = "svg", *, kind: str | None = None, metric: str | None = None
    ) -> Request[bytes]:
        """The sweep as an image, `svg` or `png`. `kind`: curve, heatmap or bars; None for whatever fits the axes."""
        query = endpoints.given_params(format=format, kind=kind, metric=metric)
        return endpoints.sweep_plot(sweep_id, params=query)

    @call
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
    ) -> Flow[list[ResultRow]]:
        """A flat table with a row for each metric of the newest `limit` jobs that succeeded (None: all)."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        times = {"from": created_after, "to": created_before}
        return listed(endpoints.results(imported=imported, **filters, **times), limit)

    @stream
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
    ) -> Pages[list[ResultRow]]:
        """The rows of all jobs that match, as `results` returns them, page by page: any number fits into memory."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        times = {"from": created_after, "to": created_before}
        listing = Listing(endpoints.results(imported=imported, **filters, **times), None)
        while listing.request:
            listing.add((yield from sent(replace(listing.request, retry=PATIENT))))
            yield [listing.items]
            listing.items = []

    @stream
    def exported_lines(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        imported: bool | None = None,
    ) -> Pages[str]:
        """All results that match, each with its job and its samples as a line of JSON, which another Dyno imports."""
        filters = {"workload": workload, "device": device, "label": label}
        times = {"from": created_after, "to": created_before}
        following: Request[LinePage] | None = endpoints.exported(imported=imported, **filters, **times)
        while following:
            page = yield from sent(following)
            yield page.lines
            following = page.following

    @stream
    def import_lines(self, lines: Iterable[str], *, source: str | None = None) -> Pages[ImportReport]:
        """Import lines of JSON, such as those of an open file, and yield the outcome of each request.

        A request has up to 100 lines, which are imported together or not at all. Importing a result again changes
        nothing. `source` names the Dyno that ran the jobs. Raises Refused with the number of each wrong line.
        """
        for request in endpoints.import_requests(lines, source):
            yield [(yield from sent(request))]

    @call
    def history(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
    ) -> Request[History]:
        """The newest results that match as series over time, with their changes and alarms."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        return endpoints.history(**filters, **{"from": created_after, "to": created_before})

    @call
    def advice(
        self,
        workload: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        framework: str = "tensorflow",
        metric: str | None = None,
    ) -> Request[Advice]:
        """Rank the devices that are up for a workload, by their results of this spec. `metric` is a rate.

        Raises Refused for wrong params, and if the workload has no such rate.
        """
        return endpoints.advice(workload, params or {}, framework, metric)

    @call
    def acknowledge(self, alarm: Alarm) -> Request[Alarm]:
        """Acknowledge an alarm of a history; repeating it changes nothing."""
        return endpoints.acknowledge(alarm)

    @call
    def workloads(self) -> Request[list[WorkloadEntry]]:
        """All workloads."""
        return endpoints.workloads()

    @call
    def workload(self, name: str) -> Request[WorkloadEntry]:
        """One workload, with its params. Raises Refused for an unknown name."""
        return endpoints.workload(name)

    @call
    def devices(self) -> Request[list[DeviceStatus]]:
        """The devices of the live workers."""
        return endpoints.devices()

    @call
    def cordoned_away(self) -> Request[list[AwayDevice]]:
        """The cordoned devices without a live worker."""
        return endpoints.cordoned_away()

    @call
    def workers(self) -> Request[list[WorkerRecord]]:
        """The live workers. A worker's `job` is null if another key owns the job."""
        return endpoints.workers()

    @call
    def cordon(self, device: str) -> Request[Cordon]:
        """Cordon a device: it finishes its current job and takes no new ones. Raises Refused for an unknown device."""
        return endpoints.cordon(device)

    @call
    def uncordon(self, device: str) -> Request[Cordon]:
        """Let a cordoned device take jobs again. Raises Refused for an unknown device."""
        return endpoints.uncordon(device)

    @call
    def me(self) -> Request[Me]:
        """This client's key, its scopes and its limits."""
        return endpoints.me()

    @call
    def keys(self) -> Request[list[ApiKey]]:
        """All keys, including revoked ones, since jobs name them as their owners."""
        return endpoints.keys()

    @call
    def create_key(
        self,
        name: str,
        scope: Scope | str,
        limits: Limits | None = None,
        *,
        high_priority: bool = False,
        expires_in_s: int | None = None,
    ) -> Request[CreatedKey]:
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
        return endpoints.create_key(json=body)

    @call
    def revoke_key(self, key_id: str) -> Request[None]:
        """Revoke a key, so that the service refuses it. Its jobs go on. Repeating this changes nothing."""
        return endpoints.revoke_key(key_id)

    @call
    def deliveries(
        self,
        *,
        status: DeliveryStatus | str | None = None,
        job: str | None = None,
        created_after: Time = None,
        created_before: Time = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> Flow[list[Delivery]]:
        """The newest `limit` webhook deliveries (None: all) that match all filters, ordered by when the jobs ended."""
        times = {"created_after": created_after, "created_before": created_before}
        return listed(endpoints.deliveries(status=status, job=job, **times), limit)

    @call
    def redeliver(self, delivery_id: str) -> Request[Delivery]:
        """Send a delivery again at once, whatever its status. Raises Refused for an unknown delivery."""
        return endpoints.redeliver(delivery_id)

    @call
    def alive(self) -> Flow[bool]:
        """Whether the service answers within 2 s. Sends no API key, since another program may listen on the port."""
        try:
            return (yield from sent(endpoints.alive()))
        except ConnectionBroken:
            return False

    @call
    def not_ready_because(self) -> Flow[str | None]:
        """Why the service isn't ready, for example because Redis is away or doesn't persist. None if it is ready."""
        try:
            yield from sent(endpoints.ready())
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None
