"""Schedules: save a spec with the times at which to submit it, read, list and delete schedules."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from dyno.errors import InvalidSchedule
from dyno.logging import audit
from dyno.models.job_schedule import JobSchedule, NewSchedule, ScheduleList, ScheduleName
from dyno.store.schedules import Schedules
from service import auth, dependencies, problems
from service.schedules import scheduler

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])

Name = Annotated[ScheduleName, Path(description="Letters, digits, dots, dashes and underscores, 64 at most")]


def _body() -> dict[str, Any]:
    schema = NewSchedule.model_json_schema()
    schema["properties"]["spec"] = {"$ref": "#/components/schemas/SubmitJob"}
    return schema


async def _schedules(state: dependencies.StateDep) -> Schedules:
    return scheduler.schedules_of(state)


SchedulesDep = Annotated[Schedules, Depends(_schedules)]


@router.put(
    "/{name}",
    operation_id="putSchedule",
    summary="Save a schedule",
    response_model=JobSchedule,
    openapi_extra=dependencies.takes(_body()),
    responses={
        200: {"description": "The schedule of this name was replaced"},
        201: {"model": JobSchedule, "description": "The schedule is new", **dependencies.sends("Location")},
        **problems.documented(
            *(*problems.OF_BODY, "invalid-schedule", "priority-not-allowed", "record-unreadable", "store-unfit"),
        ),
    },
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def save(
    name: Name,
    new: Annotated[NewSchedule, Depends(dependencies.read_model(NewSchedule, InvalidSchedule))],
    state: dependencies.StateDep,
    saved: SchedulesDep,
    response: Response,
) -> JobSchedule:
    """Save a spec under a name of your key, with the times at which Dyno submits it under your key's limits.

    The spec is checked as for a submit. The schedule's jobs get the label `schedule` with the name. An earlier schedule
    of this name is replaced; its firings and missed times stay in the document.
    """
    is_new, made = await scheduler.save(state, saved, name, new)
    if is_new:
        response.status_code = 201
        response.headers["Location"] = f"/v1/schedules/{name}"
    return made


@router.get("", operation_id="listSchedules", summary="List schedules")
@auth.requires(auth.READ, auth.OWN)
async def browse(saved: SchedulesDep) -> ScheduleList:
    """List your key's schedules by name. For an admin's key, list the schedules of all keys."""
    return ScheduleList(data=await saved.list())


@router.get(
    "/{name}",
    operation_id="getSchedule",
    summary="Read a schedule",
    responses=problems.documented("schedule-not-found", "record-unreadable"),
)
@auth.requires(auth.READ, auth.OWN)
async def show(name: Name, saved: SchedulesDep) -> JobSchedule:
    """Read a schedule: its next times, its firings and its missed times. If an admin's key has no schedule of this
    name, the response has another key's schedule.
    """
    return await saved.get(name)


@router.delete(
    "/{name}",
    operation_id="deleteSchedule",
    summary="Delete a schedule",
    status_code=204,
    responses=problems.documented("schedule-not-found"),
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def delete(name: Name, saved: SchedulesDep, caller: auth.CallerDep) -> None:
    """Delete a schedule. The jobs that it has submitted stay."""
    owner = await saved.delete(name)
    if owner != caller.viewer.owner:
        audit("schedule-deleted", caller.name, name=name, owner=owner)
