"""Figures of many jobs as one flat table, for dashboards and spreadsheets, and whole results as lines of JSON."""

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue

from dyno import result_tables
from dyno.errors import RecordUnreadable
from dyno.models.job import Job, Status
from dyno.models.result import ResultRow, ResultSummary, VariantName
from dyno.models.result_export import MEDIA_TYPE
from dyno.models.spec import Spec
from dyno.store.documents import StoredJob
from dyno.store.records import read_result_summaries
from dyno.store.result_transfer import exported_lines
from service import auth, dependencies, problems, streaming
from service.state import State

router = APIRouter(prefix="/v1/results", tags=["results"])

_CSV: dict[str, Any] = {"text/csv": {"schema": {"type": "string"}}}
_LINES: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string"}}}
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
    imported: bool | None = Field(None, description="Only results that were imported, or only those that weren't")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="From the `Link` to the next page")
    limit: Annotated[int, Field(ge=1, le=200, description="Jobs in one page")] = 100
    format: Literal["json", "csv", "jsonl"] = "json"


@router.get(
    "",
    operation_id="listResults",
    summary="Read metrics of many jobs",
    response_model=list[ResultRow],
    responses={
        200: {"content": _TITLE | _CSV | _LINES, **dependencies.sends("Link", "Disposition")},
        **problems.documented("invalid-request", "store-unavailable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def results(state: dependencies.StateDep, request: Request, wanted: Annotated[ResultFilter, Query()]) -> Response:
    """Read one row for each metric of each succeeded job, newest first.

    `Link` has the next page, if there is one. If few jobs match, a page may be short or empty although more follow.

    CSV has the columns of the page's rows. Text that a spreadsheet would read as a formula begins with a `'`.

    `jsonl` has a line for each job instead: its record, its whole result and its samples. `metric` doesn't affect it.
    Another Dyno imports these lines.
    """
    filters: dict[str, Any] = wanted.model_dump(include={"workload", "device", "label", "imported", "cursor", "limit"})
    filters |= {"status": Status.SUCCEEDED, "created_after": wanted.since, "created_before": wanted.until}
    with dependencies.as_parameter_errors():
        page = await state.jobs.browse(**filters)
    if wanted.format == "jsonl":
        response = _as_lines(state, page.data, f"{request.url.scheme}://{request.url.netloc}")
    else:
        found = await _rows(state, page.data, wanted.metric)
        response = _as_csv(found) if wanted.format == "csv" else JSONResponse(found)
    dependencies.link_next(request, response, page.next_cursor)
    return response


async def _rows(state: State, stored: Sequence[StoredJob], metric: str | None) -> list[dict[str, JsonValue]]:
    jobs: list[Job] = []
    for each in stored:
        with contextlib.suppress(RecordUnreadable):  # logged already
            jobs.append(each.job())
    figures = await read_result_summaries(state.client, state.settings, [job.id for job in jobs])
    return [row for job, each in zip(jobs, figures, strict=True) if each for row in rows(job, each, metric)]


def _as_lines(state: State, stored: Sequence[StoredJob], source: str) -> Response:
    lines = exported_lines(state.client, state.settings, stored, source)
    headers = {"Content-Disposition": 'attachment; filename="results.jsonl"', "X-Content-Type-Options": "nosniff"}
    return streaming.TimedStream(lines, headers=headers, media_type=MEDIA_TYPE)


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
        "imported": job.imported is not None,
        **{f"label.{name}": value for name, value in spec.labels.items()},
        **{f"param.{name}": _flat(value) for name, value in (spec.params | figures.params).items()},
    }


def _flat(value: JsonValue) -> JsonValue:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _as_csv(found: Sequence[Mapping[str, JsonValue]]) -> Response:
    more = sorted({name for row in found for name in row} - ResultRow.model_fields.keys())
    text = io.StringIO()
    result_tables.write_csv(text, [*ResultRow.model_fields, *more], found)
    headers = {"Content-Disposition": 'attachment; filename="results.csv"', "X-Content-Type-Options": "nosniff"}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
