"""The start page and the list of jobs."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from dyno.models.job import Job, Status
from dyno.models.result import Metric, Verdict
from dyno.store.records import RecordPage, read_result_summaries
from service.auth import OWN, READ, CallerDep, requires
from service.dashboard.rendering import PageRoute, page, unusual_params
from service.dependencies import StateDep
from service.problems import InvalidRequest
from service.routes.jobs import JobFilter
from service.state import State
from service.validation import validate_model

router = APIRouter(include_in_schema=False, route_class=PageRoute)

LATEST, QUEUED_READ, PAGE = 12, 100, 50


class Row(NamedTuple):
    """A job, and its headline metric and verdict once it has succeeded."""

    job: Job
    metric: Metric | None = None
    verdict: Verdict | None = None


@router.get("/")
@requires(READ, OWN)
async def home(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """Devices, the queue, and the latest results."""
    running = await _jobs(state, Status.RUNNING, QUEUED_READ)
    queued = await _jobs(state, Status.QUEUED, QUEUED_READ)
    latest = await _jobs(state, Status.SUCCEEDED, LATEST)
    context = {
        "devices": await state.devices.read(),
        "running": {job.worker.full_device: job for job in running.data if job.worker},
        "queued": sorted(queued.data, key=lambda job: (job.queue.position is None, job.queue.position or 0, job.id)),
        "more_queued": queued.next_cursor is not None,
        "rows": await _rows(state, latest.data),
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
) -> Response:
    """All jobs, newest first, by the filters of the query."""
    given = {"workload": workload, "status": status, "device": device, "label": label, "cursor": cursor}
    known = {name: value for name, value in given.items() if value}
    wanted = validate_model(JobFilter, known | {"limit": PAGE}, [], InvalidRequest)
    found = await state.jobs.list(**wanted.model_dump())
    following = urlencode(known | {"cursor": found.next_cursor}) if found.next_cursor else None
    context = {
        "rows": await _rows(state, found.data),
        "wanted": wanted,
        "workloads": list(state.workloads),
        "statuses": list(Status),
        "next_page": following and f"/jobs?{following}",
        "unusual": partial(unusual_params, state.workloads),
    }
    return page(request, caller, "jobs.html", context)


async def _jobs(state: State, status: Status, limit: int) -> RecordPage[Job]:
    return await state.jobs.list(status=status, limit=limit)


async def _rows(state: State, found: Sequence[Job]) -> list[Row]:
    figures = await read_result_summaries(state.client, state.settings, [job.id for job in found])
    return [
        Row(job, each.metrics[0], each.verdict) if each and each.metrics else Row(job)
        for job, each in zip(found, figures, strict=True)
    ]
