"""Sweeps: submit many jobs by one request, read their results as JSON, tables and plots, and cancel them."""

from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from dyno.charts import sweep_charts as charts
from dyno.errors import FieldError
from dyno.logging import audit
from dyno.models.sweep import Sweep, SweepSummary
from dyno.store.sweeps import StoredSweep, Sweeps
from service import auth, dependencies, middleware, problems, streaming, validation
from service.state import State
from service.sweeps import requests as sweep_requests
from service.sweeps import results as sweep_results

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"])

_TABLES: dict[str, Any] = {
    "text/csv": {"schema": {"type": "string"}},
    "text/markdown": {"schema": {"type": "string"}},
}
_PLOTS: dict[str, Any] = {
    "image/svg+xml": {"schema": {"type": "string"}},
    "image/png": {"schema": {"type": "string", "format": "binary"}},
}


_BODY = {"$ref": "#/components/schemas/SubmitSweep"}  # added by service/openapi/components.py


class SweepList(BaseModel):
    """One page, newest first. If some sweeps are gone, a page may be short although more pages follow."""

    data: list[SweepSummary]
    next_cursor: str | None
    has_more: bool


async def _sweeps(state: dependencies.StateDep) -> Sweeps:
    return Sweeps(state.client, state.settings, state.jobs)


SweepsDep = Annotated[Sweeps, Depends(_sweeps)]


async def _found(sweep_id: Annotated[str, Path(description="`swp_` and a ULID")], sweeps: SweepsDep) -> StoredSweep:
    return await sweeps.get(sweep_id)


Found = Annotated[StoredSweep, Depends(_found)]
MetricQuery = Annotated[
    str | None, Query(max_length=128, description="Another metric of the results than the sweep's own")
]


async def read_sweep(state: State, stored: StoredSweep, metric: str | None) -> Sweep:
    """Like `sweep_results.read`, but raises InvalidRequest, because the metric is from the query."""
    with dependencies.as_parameter_errors():
        return await sweep_results.read(state, stored, metric)


async def _plan(request: Request, state: dependencies.StateDep) -> sweep_requests.SweepPlan:
    document, faults = await validation.read_json(request, state.settings)
    return sweep_requests.plan(document, faults, state.settings.max_sweep_jobs)


@router.post(
    "",
    operation_id="createSweep",
    summary="Submit many jobs",
    status_code=202,
    response_model=Sweep,
    openapi_extra=dependencies.takes(_BODY),
    responses={
        202: dependencies.sends("Location", "RetryAfter", "Replayed"),
        **problems.documented(
            *(*problems.OF_BODY, "invalid-sweep", "idempotency-key-reused", "job-expired", "queue-full"),
            *("priority-not-allowed", "store-unfit"),
        ),
    },
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def create(
    planned: Annotated[sweep_requests.SweepPlan, Depends(_plan)],
    state: dependencies.StateDep,
    sweeps: SweepsDep,
    idempotency_key: dependencies.IdempotencyKey = None,
) -> Response:
    """Queue a job for each combination of values. Either all jobs are queued or none.

    Every point is checked first; pointers of errors lead to the value, or into the spec. The jobs have the label
    `sweep` with the sweep's id, and run in a random order, so that a slow change of the machine doesn't look like an
    effect of an axis.
    """
    sweep_id, replayed = await sweep_requests.submit(state, sweeps, planned, idempotency_key)
    begun = await sweep_results.read(state, await sweeps.get(sweep_id))
    headers = {"Location": begun.urls.self, "Retry-After": str(streaming.POLL_AFTER_S)}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return _answer(begun, 202, headers)


@router.get(
    "",
    operation_id="listSweeps",
    summary="List sweeps",
    response_model=SweepList,
    responses={200: dependencies.sends("Link")},
)
@auth.requires(auth.READ, auth.OWN)
async def browse(
    request: Request,
    sweeps: SweepsDep,
    cursor: Annotated[str | None, Query(max_length=200, description="`next_cursor` of the previous page")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> Response:
    """List sweeps, newest first, without their points. Sweeps with unreadable records are left out."""
    with dependencies.as_parameter_errors():
        page = await sweeps.page(cursor, limit)
    summaries = await sweep_results.read_summaries(sweeps, page.data)
    response = _answer(SweepList(data=summaries, next_cursor=page.next_cursor, has_more=page.has_more), 200, {})
    dependencies.link_next(request, response, page.next_cursor)
    return response


@router.get(
    "/{sweep_id}",
    operation_id="getSweep",
    summary="Read a sweep",
    response_model=Sweep,
    responses={
        200: dependencies.sends("RetryAfter"),
        **problems.documented("sweep-not-found", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def show(stored_sweep: Found, state: dependencies.StateDep, metric: MetricQuery = None) -> Response:
    """Read a sweep with its results so far. `Retry-After` is set while the sweep's status is `running`."""
    now = await read_sweep(state, stored_sweep, metric)
    later = {"Retry-After": str(streaming.POLL_AFTER_S)} if now.status == "running" else {}
    return _answer(now, 200, later)


@router.post(
    "/{sweep_id}/cancel",
    operation_id="cancelSweep",
    summary="Cancel a sweep",
    response_model=Sweep,
    responses={
        202: {"model": Sweep, "description": "Jobs of the sweep are running; their workers will cancel them"},
        **problems.documented("sweep-not-found", "sweep-finished", "record-unreadable"),
    },
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def cancel(
    sweep_id: Annotated[str, Path(description="`swp_` and a ULID")],
    state: dependencies.StateDep,
    sweeps: SweepsDep,
    caller: auth.CallerDep,
) -> Response:
    """Cancel all jobs of a sweep that aren't done, in one step. Existing results stay."""
    stored = await sweeps.cancel(sweep_id)
    if stored.owner != (caller.key and caller.key.id):
        audit("sweep-canceled", caller.name, sweep=sweep_id, owner=stored.owner)
    now = await sweep_results.read(state, stored)
    return _answer(now, 202 if now.status == "running" else 200, {})


@router.get(
    "/{sweep_id}/table",
    operation_id="getSweepTable",
    summary="Read a sweep as a table",
    response_model=list[dict[str, Any]],
    responses={
        200: {"content": _TABLES, **dependencies.sends("Disposition")},
        **problems.documented("sweep-not-found", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def table(
    stored_sweep: Found,
    state: dependencies.StateDep,
    metric: MetricQuery = None,
    format: Annotated[Literal["csv", "md", "json"], Query()] = "json",
) -> Response:
    """Read one row for each point: its values, its job, the metric with its bounds, and the ratio to its base.

    Points without a result have empty cells. Markdown has rounded figures. In CSV, text that a spreadsheet would read
    as a formula begins with a `'`.
    """
    now = await read_sweep(state, stored_sweep, metric)
    if format == "csv":
        headers = {"Content-Disposition": f'attachment; filename="{stored_sweep.id}.csv"'}
        return Response(sweep_results.as_csv(now), 200, headers, "text/csv; charset=utf-8")
    if format == "md":
        return Response(sweep_results.as_markdown(now), media_type="text/markdown; charset=utf-8")
    return JSONResponse(sweep_results.rows(now))


@router.get(
    "/{sweep_id}/plot",
    operation_id="getSweepPlot",
    summary="Draw a sweep",
    response_class=Response,
    responses={
        200: {"description": "The results that there are so far", "content": _PLOTS},
        **problems.documented("sweep-not-found", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def plot(
    stored_sweep: Found,
    state: dependencies.StateDep,
    metric: MetricQuery = None,
    kind: Annotated[charts.Kind | None, Query(description="Without it, whatever fits the axes")] = None,
    format: Annotated[Literal["svg", "png"], Query()] = "svg",
) -> Response:
    """Draw curves for one numeric axis, a heat map for two, or else bars. Bars show speed-ups if the sweep has a base.

    Thick whiskers show the intervals over the runs; thin whiskers show the predictions for the next result.
    """
    now = await read_sweep(state, stored_sweep, metric)
    if kind is not None and (fault := charts.cannot_draw(kind, now)):
        raise problems.InvalidRequest([FieldError("/query/kind", "does-not-fit-axes", fault)])
    picture, media_type = charts.draw(now, kind), "image/svg+xml" if format == "svg" else "image/png"
    image = await anyio.to_thread.run_sync(picture.svg if format == "svg" else picture.png)
    return Response(image, 200, middleware.SANDBOXED_PICTURE, media_type)  # values of axes are untrusted text


def _answer(model: BaseModel, status: int, headers: dict[str, str]) -> Response:
    return Response(model.model_dump_json(by_alias=True), status, headers, "application/json")
