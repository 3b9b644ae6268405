"""Figures of many jobs as one flat table, for dashboards and spreadsheets."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue

from dyno.models.job import Job, Status
from dyno.models.result import ResultRow, ResultSummary, VariantName
from dyno.models.spec import Spec
from dyno.store.records import read_result_summaries
from service import auth, dependencies, problems
from service.responses import spreadsheet_cell

router = APIRouter(prefix="/v1/results", tags=["results"])

_CSV: dict[str, Any] = {"text/csv": {"schema": {"type": "string"}}}
# FastAPI would name this schema after the operation id; generated clients know it by this title.
_TITLE: dict[str, Any] = {"application/json": {"schema": {"title": "Response Results V1 Results Get"}}}


class ResultFilter(BaseModel, extra="forbid"):
    """Results that match all given conditions."""

    since: dependencies.TimestampOrEpoch | None = Field(None, alias="from")
    until: dependencies.TimestampOrEpoch | None = Field(None, alias="to")
    workload: Annotated[str, Field(max_length=64)] | None = None
    device: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="A device kind or id, as for a list of jobs"
    )
    metric: Annotated[str, Field(max_length=128)] | None = None
    label: Annotated[str, Field(max_length=257)] | None = Field(None, description="`name` or `name=value`")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="From the `Link` to the next page")
    limit: Annotated[int, Field(ge=1, le=200, description="Jobs in one page")] = 100
    format: Literal["json", "csv"] = "json"


@router.get(
    "",
    operation_id="listResults",
    summary="Read metrics of many jobs",
    response_model=list[ResultRow],
    responses={
        200: {"content": _TITLE | _CSV, **dependencies.sends("Link", "Disposition")},
        **problems.documented("invalid-request", "store-unavailable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def results(state: dependencies.StateDep, request: Request, wanted: Annotated[ResultFilter, Query()]) -> Response:
    """Read one row for each metric of each succeeded job, newest first.

    `Link` has the next page, if there is one. If few jobs match, a page may be short or empty although more follow.

    CSV has the columns of the page's rows. Text that a spreadsheet would read as a formula begins with a `'`.
    """
    with dependencies.as_parameter_errors():
        page = await state.jobs.list(
            status=Status.SUCCEEDED,
            workload=wanted.workload,
            device=wanted.device,
            label=wanted.label,
            created_after=wanted.since,
            created_before=wanted.until,
            cursor=wanted.cursor,
            limit=wanted.limit,
        )
    figures = await read_result_summaries(state.client, state.settings, [job.id for job in page.data])
    found = [
        row for job, each in zip(page.data, figures, strict=True) if each for row in rows(job, each, wanted.metric)
    ]
    response = _as_csv(found) if wanted.format == "csv" else JSONResponse(found)
    dependencies.link_next(request, response, page.next_cursor)
    return response


def rows(job: Job, figures: ResultSummary, metric: str | None = None) -> Iterator[dict[str, JsonValue]]:
    """The rows of one job, as in JSON; with `metric`, only that metric's."""
    arms = [figures, *figures.arms]
    names: Sequence[VariantName | None] = get_args(VariantName) if figures.arms else [None]
    for arm, name, spec in zip(arms, names, job.spec.arms, strict=False):
        for each in arm.metrics:
            if metric in (None, each.name):
                known = each.model_dump(include={"unit", "value", "low", "high", "better"})
                if each.repeat:
                    known |= {"repeat_low": each.repeat.low, "repeat_high": each.repeat.high}
                row = ResultRow(
                    **{"metric": each.name, "arm": name, "verdict": arm.verdict}, **known, **_of_job(job, spec, arm)
                )
                yield row.model_dump(mode="json")


def _of_job(job: Job, spec: Spec, figures: ResultSummary) -> dict[str, Any]:
    device = job.worker and job.worker.full_device
    return {
        "time": job.created_at,
        "finished_at": job.finished_at,
        "job": job.id,
        "workload": spec.workload,
        "framework": spec.framework,
        "device": device,
        "device_model": figures.device.get("model"),
        "hardware_id": figures.hardware_id,
        "precision": figures.precision and figures.precision.in_words,
        "warnings": " ".join(warning.code for warning in figures.warnings),
        **{f"label.{name}": value for name, value in spec.labels.items()},
        **{f"param.{name}": _flat(value) for name, value in (spec.params | figures.params).items()},
    }


def _flat(value: JsonValue) -> JsonValue:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _as_csv(found: Sequence[Mapping[str, JsonValue]]) -> Response:
    more = sorted({name for row in found for name in row} - ResultRow.model_fields.keys())
    text = io.StringIO()
    lines = csv.DictWriter(text, [*ResultRow.model_fields, *more], lineterminator="\r\n")  # RFC 4180
    lines.writeheader()
    lines.writerows({name: spreadsheet_cell(value) for name, value in row.items()} for row in found)
    headers = {"Content-Disposition": 'attachment; filename="results.csv"', "X-Content-Type-Options": "nosniff"}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
