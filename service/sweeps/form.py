"""The form of a sweep of one workload: fields with several values, between commas, vary."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response

from dyno.errors import DynoError, FieldError, InvalidSpec, InvalidSweep
from dyno.models.sweep import AUTO, BATCH_SIZE, PARAM
from service.auth import EVERYBODYS, OWN, READ, SUBMIT, Caller, CallerDep, requires
from service.dashboard.forms import as_spec, as_values, beside_fields, idempotency_key, read_form
from service.dashboard.rendering import PageRoute, page, see_other
from service.dependencies import StateDep
from service.state import State
from service.sweeps import requests as sweep_requests
from service.sweeps.routes import SweepsDep
from service.workloads import routes as workload_routes
from service.workloads.pages import param_fields

router = APIRouter(prefix="/workloads/{name}/sweep", include_in_schema=False, route_class=PageRoute)

AXES = ("device", "framework", "replicas")  # besides params


@router.get("")
@requires(READ, EVERYBODYS)
async def show(request: Request, name: str, state: StateDep, caller: CallerDep) -> Response:
    """The form. Values in the query, such as `params.n=512,1024`, are filled in."""
    return await _form(request, state, caller, name, dict(request.query_params))


@router.post("")
@requires(SUBMIT, OWN)
async def submit(request: Request, name: str, state: StateDep, caller: CallerDep, sweeps: SweepsDep) -> Response:
    """Queue the sweep and show it; or show the form again with what is wrong with it."""
    given = await read_form(request, state.settings)
    try:
        planned = sweep_requests.plan(as_sweep(name, given), [], state.settings.max_sweep_jobs)
        sweep_id, _ = await sweep_requests.submit(state, sweeps, planned, idempotency_key(given))
    except InvalidSpec as invalid:
        return await _form(request, state, caller, name, given, [of_field(each) for each in invalid.errors])
    except DynoError as refused:
        return await _form(request, state, caller, name, given, [FieldError("", refused.code, refused.detail)])
    return see_other(f"/sweeps/{sweep_id}")


def as_sweep(workload: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The request that the fields describe. Raises InvalidSweep if no field has several values, and InvalidSpec."""
    rest, grid = dict(fields), dict[str, list[Any]]()
    for name, text in fields.items():
        if name.startswith(PARAM) or name in AXES:
            values = as_values(text)
            if len(values) > 1 or (name, values) == (BATCH_SIZE, [AUTO]):
                grid[name] = values
                del rest[name]
    if not grid:
        detail = "nothing varies: give at least one field several values, with commas between them"
        raise InvalidSweep([FieldError("", "nothing-varies", detail)])
    document = as_spec(rest)
    rounds = {"rounds": document.pop("rounds")} if "rounds" in document else {}
    return {"spec": document | {"workload": workload}, "grid": grid, **rounds}


def of_field(error: FieldError) -> FieldError:
    """The error at its field of the form, such as /params/n for /grid/params.n/1 and for /spec/params/n/0."""
    first, *rest = error.pointer.strip("/").split("/")
    if first == "grid":
        return replace(error, pointer="/".join(["", *rest[:1]]))
    if first == "spec":
        return replace(error, pointer="/".join(["", *rest[:2]]))
    return error


async def _form(
    request: Request,
    state: State,
    caller: Caller,
    name: str,
    given: Mapping[str, str],
    errors: Sequence[FieldError] = (),
) -> Response:
    entry = await workload_routes.show(name, state)
    devices = await state.devices.read()
    context = {
        "entry": entry,
        "params": list(param_fields(entry)),
        "devices": dict.fromkeys([*(each.kind for each in devices), *(each.full_id for each in devices)]),
        "given": given,
        "errors": errors,
        "wrong": beside_fields(errors),
    }
    return page(request, caller, "new_sweep.html", context, 422 if errors else 200)
