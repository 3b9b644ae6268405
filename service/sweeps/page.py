"""Pages of sweeps: the list with the presets, one sweep with its table and picture, and the form of a new sweep.

Fields of the form that have several values, separated by commas, become axes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from dyno import tables
from dyno.charts import sweep_charts as charts
from dyno.errors import DynoError, FieldError, InvalidSpec, InvalidSweep
from dyno.models.sweep import AUTO, BATCH_SIZE, PARAM, Preset, Sweep, SweepPoint, presets
from service.auth import EVERYBODYS, OWN, READ, SUBMIT, Caller, CallerDep, requires
from service.dashboard.forms import as_spec, as_values, beside_fields, idempotency_key, read_form
from service.dashboard.rendering import PageRoute, page, see_other
from service.dependencies import StateDep
from service.state import State
from service.sweeps import requests as sweep_requests
from service.sweeps import results as sweep_results
from service.sweeps import routes as sweep_routes
from service.workloads import routes as workload_routes
from service.workloads.page import param_fields

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_FORM = "/workloads/{name}/sweep"
_AXES = ("device", "framework", "replicas")  # besides params


@router.get("/sweeps")
@requires(READ, OWN)
async def browse(
    request: Request,
    state: StateDep,
    caller: CallerDep,
    sweeps: sweep_routes.SweepsDep,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """The sweeps, newest first, and the presets."""
    return await _browse(request, state, caller, sweeps, cursor)


async def _browse(
    request: Request,
    state: State,
    caller: CallerDep,
    sweeps: sweep_routes.SweepsDep,
    cursor: str | None = None,
    given: Mapping[str, str] | None = None,
    errors: Sequence[FieldError] = (),
) -> Response:
    listed = await sweeps.page(cursor, 20)
    devices = await state.devices.read()
    kinds = list(dict.fromkeys(device.kind for device in devices))
    context = {
        "sweeps": await sweep_results.read_summaries(sweeps, listed.data),
        "next_page": listed.next_cursor and f"/sweeps?cursor={listed.next_cursor}",
        "presets": presets(),
        "workloads": list(state.workloads),
        "devices": devices,
        "kinds": kinds,
        "likely_device": {name: _likely_device(preset, kinds) for name, preset in presets().items()},
        "given": given or {},
        "errors": errors,
    }
    return page(request, caller, "sweeps.html", context, 422 if errors else 200)


def _likely_device(preset: Preset, kinds: Sequence[str]) -> str:
    """Return the first of `kinds`, the kinds of live devices, if it lacks a kind of the preset. Otherwise return ""."""
    preset_kinds = (preset.grid or {}).get("device", [])
    return kinds[0] if kinds and not all(kind in kinds for kind in preset_kinds) else ""


@router.post("/sweeps")
@requires(SUBMIT, OWN)
async def create(request: Request, state: StateDep, caller: CallerDep, sweeps: sweep_routes.SweepsDep) -> Response:
    """Queue the sweep of a preset and show it, or show the presets again with the errors."""
    given = await read_form(request, state.settings)
    try:
        chosen = {"spec": {"device": given["device"]}} if "device" in given else {}
        document = {"preset": given.get("preset", ""), **chosen}
        plan = sweep_requests.plan(document, [], state.settings.max_sweep_jobs)
        sweep_id, _ = await sweep_requests.submit(state, sweeps, plan, idempotency_key(given))
    except InvalidSpec as invalid:
        wrong = [_of_field(error) for error in invalid.errors]
        return await _browse(request, state, caller, sweeps, None, given, wrong)
    except DynoError as refused:
        wrong = [FieldError("", refused.code, refused.detail)]
        return await _browse(request, state, caller, sweeps, None, given, wrong)
    return see_other(f"/sweeps/{sweep_id}")


@router.get("/sweeps/{sweep_id}")
@requires(READ, OWN)
async def show(
    request: Request, state: StateDep, caller: CallerDep, stored: sweep_routes.Found, metric: str = ""
) -> Response:
    """The table and the picture of a sweep, with its results so far."""
    sweep = await sweep_routes.read_sweep(state, stored, metric or None)
    measured = any(point.metrics for point in sweep.points)
    context = {
        "sweep": sweep,
        "headings": tables.sweep_headings(sweep),
        "conclusions": list(tables.sweep_conclusions(sweep)),
        "rows": list(zip(sweep.points, tables.sweep_cells(sweep), strict=True)),
        "metrics": sorted({figure.name for point in sweep.points for figure in point.metrics or ()}),
        "measured": measured,
        "best": _best(sweep),
        "pictures": {"plot": charts.draw(sweep)} if measured else {},
    }
    return page(request, caller, "sweep.html", context, file_name=stored.id)


def _best(sweep: Sweep) -> SweepPoint | None:
    """The point with the best value; None if fewer than two points have a value."""
    figures = [(point, metric) for point in sweep.points if (metric := point.metric(sweep.metric))]
    values = [(metric.value, point, metric.better) for point, metric in figures if metric.value is not None]
    if len(values) < 2:
        return None
    choose = max if values[0][2] == "higher" else min
    return choose(values, key=lambda row: row[0])[1]


@router.post("/sweeps/{sweep_id}/cancel")
@requires(SUBMIT, OWN)
async def cancel(sweep_id: str, state: StateDep, caller: CallerDep, sweeps: sweep_routes.SweepsDep) -> Response:
    """Cancel the sweep's jobs that aren't done."""
    await sweep_routes.cancel(sweep_id, state, sweeps, caller)
    return see_other(f"/sweeps/{sweep_id}")


@router.get(_FORM)
@requires(READ, EVERYBODYS)
async def show_form(request: Request, name: str, state: StateDep, caller: CallerDep) -> Response:
    """The form. Values in the query, such as `params.n=512,1024`, are filled in."""
    return await _form_page(request, state, caller, name, dict(request.query_params))


@router.post(_FORM)
@requires(SUBMIT, OWN)
async def submit_form(
    request: Request, name: str, state: StateDep, caller: CallerDep, sweeps: sweep_routes.SweepsDep
) -> Response:
    """Queue the sweep and show it, or show the form again with its errors."""
    given = await read_form(request, state.settings)
    try:
        planned = sweep_requests.plan(as_sweep(name, given), [], state.settings.max_sweep_jobs)
        sweep_id, _ = await sweep_requests.submit(state, sweeps, planned, idempotency_key(given))
    except InvalidSpec as invalid:
        return await _form_page(request, state, caller, name, given, [_of_field(error) for error in invalid.errors])
    except DynoError as refused:
        return await _form_page(request, state, caller, name, given, [FieldError("", refused.code, refused.detail)])
    return see_other(f"/sweeps/{sweep_id}")


def as_sweep(workload: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The request that the fields describe. Raises InvalidSpec, and InvalidSweep if no field has several values."""
    rest, grid = dict(fields), dict[str, list[Any]]()
    for name, text in fields.items():
        if name.startswith(PARAM) or name in _AXES:
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


def _of_field(error: FieldError) -> FieldError:
    """The error, pointing to a field: /spec/params/n/0 becomes /params/n, and /grid/params.n/1 becomes /params.n."""
    first, *rest = error.pointer.strip("/").split("/")
    if first == "grid":
        return replace(error, pointer="/".join(["", *rest[:1]]))
    if first == "spec":
        return replace(error, pointer="/".join(["", *rest[:2]]))
    return error


async def _form_page(
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
        "devices": dict.fromkeys([*(device.kind for device in devices), *(device.full_id for device in devices)]),
        "given": given,
        "errors": errors,
        "wrong": beside_fields(errors),
    }
    return page(request, caller, "new_sweep.html", context, 422 if errors else 200)
