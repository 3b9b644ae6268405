"""The workloads, each with a form made from its JSON Schema. Sending the form submits a job or saves a schedule."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import TypeAdapter, ValidationError

from dyno.errors import DynoError, FieldError, InvalidSchedule, InvalidSpec, UnknownWorkload
from dyno.formatting import describe_schema, format_duration
from dyno.models.inventory import WorkloadEntry
from dyno.models.job_schedule import NewSchedule, ScheduleName
from service import submission, validation
from service.auth import EVERYBODYS, OWN, READ, SUBMIT, Caller, CallerDep, requires
from service.dashboard.forms import as_spec, beside_fields, idempotency_key, read_form
from service.dashboard.rendering import PageRoute, as_text, page, see_other
from service.dependencies import StateDep
from service.schedules import routes as schedule_routes
from service.schedules import scheduler
from service.state import State
from service.workloads import routes as workload_routes

router = APIRouter(prefix="/workloads", include_in_schema=False, route_class=PageRoute)

_NAME: TypeAdapter[str] = TypeAdapter(ScheduleName)


class Field(NamedTuple):
    """An input of the form; a list to choose from if it has `choices`. `hint`: the values that the input accepts."""

    name: str
    label: str
    default: str
    hint: str
    choices: Sequence[str] = ()


@router.get("")
@requires(READ, EVERYBODYS)
async def browse(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """All workloads."""
    catalogue = await workload_routes.browse(state)
    return page(request, caller, "workloads.html", {"workloads": catalogue.data})


@router.get("/{name}")
@requires(READ, EVERYBODYS)
async def show(request: Request, name: str, state: StateDep, caller: CallerDep) -> Response:
    """The form. Values in the query, such as `params.n=512`, are filled in."""
    return await _form(request, state, caller, name, dict(request.query_params))


@router.post("/{name}")
@requires(SUBMIT, OWN)
async def submit(request: Request, name: str, state: StateDep, caller: CallerDep) -> Response:
    """Queue the job and show it, or show the form again with its errors."""
    fields = await read_form(request, state.settings)
    try:
        job_request = validation.validate_job(as_spec(fields) | {"workload": name}, (), state.workloads)
        submitted = await submission.submit(state, job_request, idempotency_key(fields))
    except UnknownWorkload:
        raise
    except InvalidSpec as invalid:
        return await _form(request, state, caller, name, fields, invalid.errors)
    except DynoError as refused:
        return await _form(request, state, caller, name, fields, [FieldError("", refused.code, refused.detail)])
    return see_other(f"/jobs/{submitted.stored.id}")


@router.get("/{name}/schedule")
@requires(READ, EVERYBODYS)
async def show_schedule(request: Request, name: str, state: StateDep, caller: CallerDep) -> Response:
    """The form of a schedule: the spec, and the times at which to submit it."""
    return await _form(request, state, caller, name, dict(request.query_params), template="new_schedule.html")


@router.post("/{name}/schedule")
@requires(SUBMIT, OWN)
async def schedule(
    request: Request, name: str, state: StateDep, caller: CallerDep, saved: schedule_routes.SchedulesDep
) -> Response:
    """Save the form as a schedule and show all schedules, or show the form again with its errors."""
    fields, template = await read_form(request, state.settings), "new_schedule.html"
    try:
        schedule_name = _schedule_name(fields.get("schedule.name", ""))
        when = {name_of_field: fields.get(f"schedule.{name_of_field}", "") for name_of_field in ("cron", "timezone")}
        document = {**when, "spec": as_spec(fields) | {"workload": name}}
        new_schedule = validation.validate_model(NewSchedule, document, [], InvalidSchedule)
        await scheduler.save(state, saved, schedule_name, new_schedule)
    except InvalidSpec as invalid:
        wrong = [_of_field(error) for error in invalid.errors]
        return await _form(request, state, caller, name, fields, wrong, template)
    except DynoError as refused:
        wrong = [FieldError("", refused.code, refused.detail)]
        return await _form(request, state, caller, name, fields, wrong, template)
    return see_other("/schedules")


def _schedule_name(given: str) -> str:
    """Raises InvalidSchedule."""
    try:
        return _NAME.validate_python(given)
    except ValidationError as invalid:
        detail = "use letters, digits, dots, dashes and underscores, 64 at most, and begin with a letter or digit"
        raise InvalidSchedule([FieldError("/name", "invalid-name", detail)]) from invalid


def _of_field(error: FieldError) -> FieldError:
    """The error with a pointer to its field of the form: a path in the spec, or a name that begins with `schedule`."""
    at = error.pointer
    return replace(error, pointer=at.removeprefix("/spec") if at.startswith("/spec/") else f"/schedule{at}")


@router.post("/{name}/estimate")
@requires(SUBMIT, OWN)
async def estimate(request: Request, name: str, state: StateDep) -> Response:
    """The estimated time of the job with its warnings, or its first error, in words."""
    fields = await read_form(request, state.settings)
    try:
        return PlainTextResponse(await _estimate(state, name, fields))
    except InvalidSpec as invalid:
        wrong = invalid.errors[0]
        return PlainTextResponse(f"{wrong.pointer.strip('/').replace('/', '.')}: {wrong.detail}", 422)
    except DynoError as refused:
        return PlainTextResponse(refused.detail, 422)


async def _estimate(state: State, name: str, fields: Mapping[str, str]) -> str:
    job_request = validation.validate_job(as_spec(fields) | {"workload": name}, (), state.workloads)
    _, admission, _ = await submission.admitted(state, job_request)
    expected = admission.estimate
    text = f"about {format_duration(expected.time_s)} on {expected.device}" if expected else "no device is live for it"
    return "\n".join([text, *(warning.message for warning in admission.warnings)])


async def _form(
    request: Request,
    state: State,
    caller: Caller,
    name: str,
    given: Mapping[str, str],
    errors: Sequence[FieldError] = (),
    template: str = "workload.html",
) -> Response:
    entry, takes = await workload_routes.show(name, state), ""
    with suppress(DynoError):  # if no device fits, or a field is wrong
        takes = await _estimate(state, name, given)
    context = {
        "takes": takes,
        "entry": entry,
        "params": list(param_fields(entry)),
        "devices": await state.devices.read(),
        "given": given,
        "errors": errors,
        "wrong": beside_fields(errors),
    }
    return page(request, caller, template, context, 422 if errors else 200)


def param_fields(entry: WorkloadEntry) -> Iterator[Field]:
    """An input for each param of the workload."""
    for name, schema in entry.params.get("properties", {}).items():
        default = schema.get("default")
        text = "" if default is None else as_text(default)
        choices = _choices(schema)
        hint = "" if choices else describe_schema(schema, entry.params)
        yield Field(f"params.{name}", name, text, "; ".join(filter(None, (schema.get("description"), hint))), choices)


def _choices(schema: Mapping[str, Any]) -> list[str]:
    if schema.get("type") == "boolean":
        return ["true", "false"]
    return [as_text(value) for value in schema.get("enum", ())]
