"""Sweeps: a list, a form for a new one, and each with its table and its picture."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from dyno import sweep_tables
from dyno.errors import DynoError, FieldError, InvalidSpec
from dyno.models.spec import Spec
from dyno.models.sweep import PARAM
from dyno.sweep_presets import presets
from service import sweep_requests, sweep_results
from service.auth import OWN, READ, SUBMIT, CallerDep, requires
from service.dashboard.forms import as_spec, as_value, read_form
from service.dashboard.rendering import PageRoute, page, see_other
from service.dependencies import StateDep
from service.routes import sweeps as sweep_routes
from service.state import State

router = APIRouter(prefix="/sweeps", include_in_schema=False, route_class=PageRoute)

AXES = 2  # in the form; the API takes more


@router.get("")
@requires(READ, OWN)
async def browse(
    request: Request,
    state: StateDep,
    caller: CallerDep,
    sweeps: sweep_routes.SweepsDep,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """The sweeps, newest first, and the form."""
    return await _browse(request, state, caller, sweeps, cursor)


async def _browse(
    request: Request,
    state: State,
    caller: CallerDep,
    sweeps: sweep_routes.SweepsDep,
    cursor: str | None = None,
    given: Mapping[str, str] | None = None,
    errors: list[FieldError] | None = None,
) -> Response:
    found = await sweeps.page(cursor, 20)
    context = {
        "sweeps": await sweep_results.read_summaries(sweeps, found.data),
        "next_page": found.next_cursor and f"/sweeps?cursor={found.next_cursor}",
        "presets": presets(),
        "workloads": list(state.workloads),
        "axes": range(1, AXES + 1),
        "given": given or {},
        "errors": errors or [],
    }
    return page(request, caller, "sweeps.html", context, 422 if errors else 200)


@router.post("")
@requires(SUBMIT, OWN)
async def create(request: Request, state: StateDep, caller: CallerDep, sweeps: sweep_routes.SweepsDep) -> Response:
    """Queue the sweep of the form and show it; or show the form again with what is wrong."""
    given = await read_form(request, state.settings)
    try:
        plan = sweep_requests.plan(_document(given), [], state.settings.max_sweep_jobs)
        sweep_id, _ = await sweep_requests.submit(state, sweeps, plan, None)
    except InvalidSpec as invalid:
        return await _browse(request, state, caller, sweeps, None, given, invalid.errors)
    except DynoError as refused:
        wrong = [FieldError("", refused.code, refused.detail)]
        return await _browse(request, state, caller, sweeps, None, given, wrong)
    return see_other(f"/sweeps/{sweep_id}")


def _document(given: Mapping[str, str]) -> dict[str, Any]:
    """The request that the form describes: a preset, or a workload with up to two axes."""
    rounds = {"rounds": as_value(given["rounds"])} if "rounds" in given else {}
    if given.get("preset"):
        device = {"grid": {"device": [given["device"]]}} if "device" in given else {}
        return {"preset": given["preset"], **device, **rounds}
    grid = {}
    for number in range(1, AXES + 1):
        axis, values = given.get(f"axis{number}", "").strip(), given.get(f"values{number}", "")
        if axis:
            known = axis in ("device", "framework", "precision", "replicas") or axis.startswith(PARAM)
            name = axis if known else f"{PARAM}{axis}"
            grid[name] = [as_value(each.strip()) for each in values.split(",") if each.strip()]
    spec = {name: text for name, text in given.items() if name.partition(".")[0] in Spec.model_fields}
    return {"spec": as_spec(spec), "grid": grid, **rounds}


@router.get("/{sweep_id}")
@requires(READ, OWN)
async def show(
    request: Request, state: StateDep, caller: CallerDep, found: sweep_routes.Found, metric: str = ""
) -> Response:
    """The table and the picture of a sweep, with the results that there are so far."""
    sweep = await sweep_routes.read_sweep(state, found, metric or None)
    context = {
        "sweep": sweep,
        "headings": sweep_tables.headings(sweep),
        "rows": list(zip(sweep.points, sweep_tables.cells(sweep), strict=True)),
        "metrics": sorted({each.name for point in sweep.points for each in point.metrics or ()}),
        "measured": any(point.metrics for point in sweep.points),
    }
    return page(request, caller, "sweep.html", context)


@router.post("/{sweep_id}/cancel")
@requires(SUBMIT, OWN)
async def cancel(sweep_id: str, state: StateDep, caller: CallerDep, sweeps: sweep_routes.SweepsDep) -> Response:
    """Cancel the sweep's jobs that aren't done."""
    await sweep_routes.cancel(sweep_id, state, sweeps, caller)
    return see_other(f"/sweeps/{sweep_id}")
