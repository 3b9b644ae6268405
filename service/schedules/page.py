"""Schedules: their next and last firings, their missed times, and buttons to pause, resume and delete them."""

from functools import partial

from fastapi import APIRouter, Request, Response

from dyno.errors import InvalidSchedule, UnknownSchedule
from dyno.models.job_schedule import JobSchedule, NewSchedule
from dyno.store.schedules import Schedules, StoredSchedule
from service.auth import OWN, READ, SUBMIT, Caller, CallerDep, requires
from service.dashboard.rendering import PageRoute, page, see_other, unusual_params
from service.dependencies import StateDep
from service.schedules import routes as schedule_routes
from service.schedules import scheduler
from service.schedules.routes import Name, SchedulesDep
from service.validation import validate_model

router = APIRouter(prefix="/schedules", include_in_schema=False, route_class=PageRoute)


@router.get("")
@requires(READ, OWN)
async def browse(request: Request, state: StateDep, caller: CallerDep, saved: SchedulesDep) -> Response:
    """The schedules by name. An admin also sees other keys' schedules, without buttons."""
    context = {
        "schedules": await saved.list(),
        "owner": caller.viewer.owner,
        "workloads": list(state.workloads),
        "unusual": partial(unusual_params, state.workloads),
    }
    return page(request, caller, "schedules.html", context)


@router.post("/{name}/pause")
@requires(SUBMIT, OWN)
async def pause(name: Name, caller: CallerDep, saved: SchedulesDep) -> Response:
    """Keep the schedule without firing it. Doesn't check the spec again, since the spec's device may be away."""
    is_paused = False
    while not is_paused:  # try again if the scheduler recorded a firing in between
        stored = await _own(name, caller, saved)
        paused = stored.document.model_copy(update={"enabled": False, "next_firings": []})
        is_paused = await saved.replace(stored, paused)
    return see_other("/schedules")


@router.post("/{name}/resume")
@requires(SUBMIT, OWN)
async def resume(name: Name, state: StateDep, caller: CallerDep, saved: SchedulesDep) -> Response:
    """Resume the schedule, if a submit of its spec would be accepted now."""
    schedule = (await _own(name, caller, saved)).document
    await scheduler.save(state, saved, name, _as_new(schedule))
    return see_other("/schedules")


@router.post("/{name}/delete")
@requires(SUBMIT, OWN)
async def delete(name: Name, caller: CallerDep, saved: SchedulesDep) -> Response:
    """Delete the schedule. Its jobs stay."""
    await _own(name, caller, saved)
    await schedule_routes.delete(name, saved, caller)
    return see_other("/schedules")


async def _own(name: str, caller: Caller, saved: Schedules) -> StoredSchedule:
    """The caller's own schedule. Raises UnknownSchedule, even if another key has a schedule of this name."""
    stored = await saved.read(caller.viewer.owner, name)
    if stored is None:
        raise UnknownSchedule(f'this key has no schedule "{name}"')
    return stored


def _as_new(schedule: JobSchedule) -> NewSchedule:
    """The request that would save the schedule again. Raises InvalidSchedule if the schedule isn't valid any more."""
    spec = {"workload": schedule.spec.workload, **schedule.spec.model_dump(mode="json", exclude_defaults=True)}
    document = {"cron": schedule.cron, "timezone": schedule.timezone, "spec": spec}
    return validate_model(NewSchedule, document, [], InvalidSchedule)
