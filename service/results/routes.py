"""Metrics of many jobs as one flat table, for dashboards and spreadsheets, and whole results as lines of JSON."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue

from dyno import tables
from dyno.bench.measure.warning_codes import CODES
from dyno.errors import RecordUnreadable
from dyno.models.inventory import WarningEntry, WarningList
from dyno.models.job import Status
from dyno.models.result import ResultSummary
from dyno.models.result_export import MEDIA_TYPE, ResultRow
from dyno.store.list_pages import encode_cursor
from dyno.store.records import StoredJob
from dyno.store.result_transfer import exported_lines
from dyno.store.stored_results import read_result_summaries
from service import auth, dependencies, streaming
from service.state import State

router = APIRouter(prefix="/v1/results", tags=["results"])

TABLE_CHARACTERS = 4 * 2**20  # limit of a page; 200 jobs with ten metrics and 20 params take 2 MiB
_JOBS_AT_ONCE = 20  # number of jobs whose results are read from Redis at once
_MAKING = anyio.CapacityLimiter(1)  # one table at a time: building a full table takes 60 MB
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
    },
)
@auth.requires(auth.READ, auth.OWN)
async def results(state: dependencies.StateDep, request: Request, query: Annotated[ResultFilter, Query()]) -> Response:
    """Read one row for each metric of each succeeded job, newest first.

    `Link` has the URL of the next page, if there is one. If few jobs match, a page may be short or empty although more
    pages follow. A page also ends before its table exceeds 4 MiB: with one `metric`, more jobs fit.

    CSV has the columns of the page's rows. Text that a spreadsheet would read as a formula begins with a `'`.

    `jsonl` has one line for each job instead: its record, its whole result and its samples. `metric` has no effect
    there. Another Dyno can import these lines.
    """
    filters: dict[str, Any] = query.model_dump(include={"workload", "device", "label", "imported", "cursor", "limit"})
    filters |= {"status": Status.SUCCEEDED, "created_after": query.since, "created_before": query.until}
    with dependencies.as_parameter_errors():
        page = await state.jobs.browse(**filters)
    next_cursor = page.next_cursor
    if query.format == "jsonl":
        response = _as_lines(state, page.data, f"{request.url.scheme}://{request.url.netloc}")
    else:
        async with _MAKING:
            table = await _table(state, page.data, query.metric)
            response = await asyncio.to_thread(_as_csv if query.format == "csv" else JSONResponse, table.rows)
        if table.last is not None:
            next_cursor = encode_cursor((int(table.last["created_ms"]), table.last["id"]))
    dependencies.link_next(request, response, next_cursor)
    return response


@router.get("/warnings", operation_id="listWarnings", summary="List warning codes")
@auth.requires(auth.READ, auth.EVERYBODYS)
async def warning_codes() -> WarningList:
    """List all codes that results and specs may have, the gravest first, with their meaning and advice."""
    return WarningList(
        data=[
            WarningEntry(
                code=row.code,
                severity=row.severity,
                means=" ".join(row.means.split()),
                advice=" ".join(row.do.split()),
                at_submit=row.at_submit,
            )
            for row in CODES.values()
        ]
    )


class _Table:
    """The rows of a page of jobs. `last`: the record of the last job, if the table is full before the page ends.

    Each metric's row repeats the job's cells and has all columns of the page. So a table can be much larger than its
    results.
    """

    def __init__(self, metric: str | None) -> None:
        self.rows = list[dict[str, JsonValue]]()
        self.last: Mapping[str, str] | None = None
        self._metric, self._columns, self._characters = metric, set[str](), 0
        self._latest: Mapping[str, str] | None = None

    def add(self, stored: Sequence[StoredJob], figures: Sequence[ResultSummary | None]) -> bool:
        """Add the rows of these jobs while the table has room. Returns whether all rows fitted."""
        for job, figure in zip(stored, figures, strict=True):
            new = list(_rows_of(job, figure, self._metric))
            columns = self._columns.union(*new)
            characters = self._characters + sum(map(tables.characters, new))
            if self.rows and characters + len(columns) * (len(self.rows) + len(new)) > TABLE_CHARACTERS:
                self.last = self._latest
                return False
            self.rows += new
            self._columns, self._characters, self._latest = columns, characters, job.record
        return True


async def _table(state: State, stored: Sequence[StoredJob], metric: str | None) -> _Table:
    table = _Table(metric)
    for start in range(0, len(stored), _JOBS_AT_ONCE):
        some = stored[start : start + _JOBS_AT_ONCE]
        figures = await read_result_summaries(state.client, state.settings, [job.id for job in some])
        if not await asyncio.to_thread(table.add, some, figures):
            break
    return table


def _rows_of(stored: StoredJob, figures: ResultSummary | None, metric: str | None) -> Iterator[dict[str, JsonValue]]:
    if figures is not None:
        with contextlib.suppress(RecordUnreadable):  # already logged
            yield from tables.metric_rows(stored.job(), figures, metric)


def _as_lines(state: State, stored: Sequence[StoredJob], source: str) -> Response:
    lines = exported_lines(state.client, state.settings, stored, source)
    headers = {"Content-Disposition": 'attachment; filename="results.jsonl"', "X-Content-Type-Options": "nosniff"}
    return streaming.TimedStream(lines, headers=headers, media_type=MEDIA_TYPE)


def _as_csv(rows: Sequence[Mapping[str, JsonValue]]) -> Response:
    more = sorted({name for row in rows for name in row} - ResultRow.model_fields.keys())
    text = tables.csv_text(tables.lines_of([*ResultRow.model_fields, *more], rows))
    headers = {"Content-Disposition": 'attachment; filename="results.csv"', "X-Content-Type-Options": "nosniff"}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
