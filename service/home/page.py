"""The start page and the list of jobs."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Request, Response

from dyno.bench.measure.result_series import history_of
from dyno.charts import several
from dyno.charts.drawing import Picture
from dyno.models.job import Job, Status
from dyno.models.result import Metric, ResultSummary, Verdict
from dyno.store.list_pages import RecordPage
from dyno.store.stored_results import read_result_summaries
from service.auth import OWN, READ, Caller, CallerDep, requires
from service.dashboard.rendering import PageRoute, html, page, unusual_params
from service.dependencies import StateDep
from service.jobs.routes import JobFilter
from service.problems import InvalidRequest
from service.state import State
from service.validation import validate_model

router = APIRouter(include_in_schema=False, route_class=PageRoute)

LATEST, QUEUED_READ, PAGE = 12, 100, 50
REFRESH = "x-dyno-refresh"  # sent by dashboard.js
RECENT = 100  # number of newest results that the start page searches for earlier results of a series
_OF_RESULTS = ("workload", "device", "label")  # the filters that /v1/results also has


class Row(NamedTuple):
    """A job, its headline metric and verdict once it has succeeded, and the picture of its series.

    `temperature_c`: the device's highest temperature during the job.
    """

    job: Job
    metric: Metric | None = None
    verdict: Verdict | None = None
    trend: Picture | None = None
    temperature_c: float | None = None


@router.get("/")
@requires(READ, OWN)
async def home(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """Devices, the queue, and the latest results. Open pages that reload share one response.

    A page with a query isn't shared: the query requests a file, or becomes part of the page's links.
    """
    if REFRESH not in request.headers or request.url.query:
        return await _home(request, state, caller)

    async def body() -> bytes:
        return bytes((await _home(request, state, caller)).body)

    return html(await state.pages.latest("home", caller.name, body))


async def _home(request: Request, state: State, caller: Caller) -> Response:
    running = await _jobs(state, Status.RUNNING, QUEUED_READ)
    queued = await _jobs(state, Status.QUEUED, QUEUED_READ)
    recent = await _jobs(state, Status.SUCCEEDED, RECENT)
    rows = sorted(await _rows_with_trends(state, recent.data), key=_finished_at, reverse=True)
    context = {
        "devices": await state.devices.read(),
        "running": {job.worker.full_device: job for job in running.data if job.worker},
        "queued": sorted(queued.data, key=lambda job: (job.queue.position is None, job.queue.position or 0, job.id)),
        "more_queued": queued.next_cursor is not None,
        "rows": rows,
        "temperatures": {row.job.worker.full_device: row.temperature_c for row in reversed(rows) if row.job.worker},
        "unusual": partial(unusual_params, state.workloads),
    }
    return page(request, caller, "home.html", context)


@router.get("/jobs")
@requires(READ, OWN)
async def jobs(
    request: Request,
    state: StateDep,
    caller: CallerDep,
    workload: str = "",
    status: Status | Literal[""] = "",
    device: str = "",
    label: str = "",
    cursor: str = "",
    compare: str = "",
) -> Response:
    """All jobs, newest first, by the filters of the query. `compare`: a job to compare the chosen jobs with."""
    given = {"workload": workload, "status": status, "device": device, "label": label, "cursor": cursor}
    filters = {name: value for name, value in given.items() if value}
    job_filter = validate_model(JobFilter, filters | {"limit": PAGE}, [], InvalidRequest)
    listed = await state.jobs.list(**job_filter.model_dump())
    more = filters | ({"compare": compare} if compare else {})
    following = urlencode(more | {"cursor": listed.next_cursor}) if listed.next_cursor else None
    context = {
        "rows": await _rows(state, listed.data),
        "wanted": job_filter,
        "workloads": list(state.workloads),
        "statuses": list(Status),
        "next_page": following and f"/jobs?{following}",
        "of_results": urlencode({name: text for name, text in filters.items() if name in _OF_RESULTS}),
        "query": urlencode(filters),
        "compare": compare,
        "unusual": partial(unusual_params, state.workloads),
    }
    return page(request, caller, "jobs.html", context)


def _finished_at(row: Row) -> datetime:
    return row.job.finished_at or row.job.created_at


async def _jobs(state: State, status: Status, limit: int) -> RecordPage[Job]:
    return await state.jobs.list(status=status, limit=limit)


async def _rows(state: State, jobs: Sequence[Job]) -> list[Row]:
    figures = await read_result_summaries(state.client, state.settings, [job.id for job in jobs])
    return [_row(job, summary) for job, summary in zip(jobs, figures, strict=True)]


def _row(job: Job, figures: ResultSummary | None, trend: Picture | None = None) -> Row:
    if not figures or not figures.metrics:
        return Row(job)
    return Row(job, figures.metrics[0], figures.verdict, trend, figures.temperature_c)


async def _rows_with_trends(state: State, recent: Sequence[Job]) -> list[Row]:
    """Rows of the latest jobs, each with a picture of its series. Results of all `recent` jobs form the series."""
    latest = recent[:LATEST]
    series_of = {_likely_series(job) for job in latest}
    alike = [job for job in recent if _likely_series(job) in series_of]
    figures = await read_result_summaries(state.client, state.settings, [job.id for job in alike])
    summaries = {job.id: summary for job, summary in zip(alike, figures, strict=True) if summary is not None}
    results = [(job, summaries[job.id]) for job in alike if job.id in summaries]
    all_series = await anyio.to_thread.run_sync(history_of, results, None, state.workloads)
    trends = {point.job: series for series in all_series for point in series.points}
    return [
        _row(job, summaries.get(job.id), several.trend(trends[job.id], job.id) if job.id in trends else None)
        for job in latest
    ]


def _likely_series(job: Job) -> tuple[str | None, ...]:
    """A tuple that is equal for all jobs whose results may be in one series. Results of other jobs aren't read."""
    return job.owner, job.spec.workload, job.spec.framework, job.worker.full_device if job.worker else None
