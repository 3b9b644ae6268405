"""Import results that another Dyno exported."""

import contextlib
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request
from pydantic import ValidationError

from dyno import tables
from dyno.errors import FieldError, InvalidImport
from dyno.logging import audit
from dyno.models.job import SCHEMA, Status
from dyno.models.result import Result
from dyno.models.result_export import (
    MAX_LINES,
    MAX_METRICS,
    MAX_PARAMS,
    MAX_ROWS_CHARACTERS,
    MEDIA_TYPE,
    ExportedResult,
    ImportReport,
)
from dyno.models.spec import InterleavedSpec, Spec
from dyno.store.redis import JOB_ID
from dyno.store.result_transfer import NumberedLine, ResultImports
from dyno.validation_messages import field_errors
from service import auth, dependencies, problems, validation

router = APIRouter(prefix="/v1/results", tags=["results"])

_LARGEST_FIGURE = 1e100  # its square is still finite
_ROUNDED = 1.001  # tolerance: exported figures have six digits
_CLOCKS_DIFFER_BY = timedelta(minutes=1)
_OF_TWO_SPECS = {f"/job/spec/{name}" for name in InterleavedSpec.model_fields.keys() - Spec.model_fields.keys()}
_WORKLOAD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_BODY: dict[str, Any] = {
    "type": "string",
    "description": f"1 to {MAX_LINES} lines of JSON. A result has at most {MAX_METRICS} metrics, "
    f"{MAX_PARAMS} params and 32 labels, and takes {MAX_ROWS_CHARACTERS} characters in the table of results",
}


async def _lines(
    request: Request,
    state: dependencies.StateDep,
    first_line: Annotated[
        int, Query(ge=1, le=2**53, description="The number of the body's first line, for the pointers of errors")
    ] = 1,
    source: Annotated[
        str | None, Query(alias="from", min_length=1, max_length=200, description="Names the Dyno that ran the jobs")
    ] = None,
) -> list[NumberedLine]:
    body = await validation.read_body(request, state.settings, MEDIA_TYPE, state.settings.max_import_bytes)
    lines = await anyio.to_thread.run_sync(_read_lines, body, first_line)
    if source is not None:
        lines = [line._replace(content=line.content.model_copy(update={"source": source})) for line in lines]
    return lines


@router.post(
    "/import",
    operation_id="importResults",
    summary="Import results of another Dyno",
    openapi_extra=dependencies.takes(_BODY, MEDIA_TYPE),
    responses=problems.documented(
        *("body-timeout", "body-too-large", "unsupported-media-type", "invalid-import", "store-unfit"),
    ),
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def create(
    lines: Annotated[list[NumberedLine], Depends(_lines)], state: dependencies.StateDep, caller: auth.CallerDep
) -> ImportReport:
    """Import up to 100 lines that `GET /v1/results?format=jsonl` exported. If one line is wrong, none is imported.

    Each line becomes a done job of your key with the field `imported`. Repeating the request changes nothing. Imported
    jobs can be listed, compared and deleted; they have no files.
    """
    await state.readiness.require_fit()
    report = await ResultImports(state.client, state.settings, state.jobs).store(lines)
    if report.imported:
        audit("results-imported", caller.name, count=report.imported)
    return report


def _read_lines(body: bytes, first_line: int) -> list[NumberedLine]:
    """Raises InvalidImport with the errors of all lines."""
    errors, lines = list[FieldError](), list[NumberedLine]()
    texts = [(number, text) for number, text in enumerate(body.split(b"\n"), first_line) if text.strip()]
    if not 1 <= len(texts) <= MAX_LINES:
        errors.append(FieldError("", "wrong-number", f"send 1 to {MAX_LINES} lines; the body has {len(texts)}"))
        raise InvalidImport(errors)
    for number, text in texts:
        try:
            lines.append(NumberedLine(number, _read_line(text)))
        except InvalidImport as invalid:
            for error in invalid.errors:
                at = f"/{number}{error.pointer}"
                errors.append(FieldError(at, error.code, f"line {number}: {error.detail}"))
    if errors:
        raise InvalidImport(errors)
    return lines


def _read_line(text: bytes) -> ExportedResult:
    """Raises InvalidImport, with pointers into the line."""
    try:
        document, faults = validation.parse_json(text, max_parts=math.inf)
    except problems.MalformedBody as malformed:
        detail = malformed.detail.replace("the body", "the line", 1)
        raise InvalidImport([FieldError("", "malformed-line", detail)]) from malformed
    if faults:
        raise InvalidImport(faults)
    try:
        line = ExportedResult.model_validate(document)
    except ValidationError as invalid:
        wrong = _of_its_kind(document, field_errors(ExportedResult, document, invalid))
        raise InvalidImport(validation.one_error_per_field(wrong)) from invalid
    if errors := [*_faults(line), *_figure_faults(line.result), *_size_faults(line)]:
        raise InvalidImport(errors)
    return line


def _of_its_kind(document: Any, errors: list[FieldError]) -> list[FieldError]:
    """Drop the errors that the model for two specs reports, if the line has only one spec."""
    with contextlib.suppress(KeyError, TypeError):
        if "against" not in document["job"]["spec"]:
            return [error for error in errors if error.pointer not in _OF_TWO_SPECS]
    return errors


def _faults(line: ExportedResult) -> Iterator[FieldError]:
    """Faults that the models allow, but that no exported result has."""
    job, now = line.job, datetime.now(UTC)
    if job.schema_version > SCHEMA:
        yield FieldError("/job/schema", "too-new", f"schema {job.schema_version} is of a newer version of Dyno")
    if JOB_ID.fullmatch(job.id) is None:
        yield FieldError("/job/id", "invalid-id", "invalid job id: `job_` and a ULID")
    if job.imported is not None and JOB_ID.fullmatch(job.imported.job) is None:
        yield FieldError("/job/imported/job", "invalid-id", "invalid job id: `job_` and a ULID")
    if _WORKLOAD.fullmatch(job.spec.workload) is None:
        yield FieldError("/job/spec/workload", "invalid-name", "invalid name of a workload")
    if job.status is not Status.SUCCEEDED:
        yield FieldError("/job/status", "not-succeeded", f"the job is {job.status}; only succeeded ones have results")
    if job.finished_at is None:
        yield FieldError("/job/finished_at", "missing", "a job that succeeded has the time of its end")
    for name in ("created_at", "queued_at", "started_at", "finished_at"):
        time: datetime | None = getattr(job, name)
        if time is not None and not 0 <= time.timestamp() <= (now + _CLOCKS_DIFFER_BY).timestamp():
            yield FieldError(f"/job/{name}", "out-of-range", "the time is in the future, or before 1970")
    if line.result.job != job.id:
        yield FieldError("/result/job", "other-job", f"the result is of another job than {job.id}")


def _size_faults(line: ExportedResult) -> Iterator[FieldError]:
    """Faults for too many metrics or params, or too large rows, which would enlarge the tables of all results."""
    specs = {"/job/spec": line.job.spec}
    if isinstance(line.job.spec, InterleavedSpec):
        specs["/job/spec/against"] = line.job.spec.against
    results = {"/result": line.result} | {f"/result/arms/{index}": arm for index, arm in enumerate(line.result.arms)}
    counted = [(f"{at}/params", len(part.params), MAX_PARAMS) for at, part in (specs | results).items()]
    counted += [(f"{at}/metrics", len(arm.metrics), MAX_METRICS) for at, arm in results.items()]
    too_many = [entry for entry in counted if entry[1] > entry[2]]
    for at, number, most in too_many:
        yield FieldError(at, "too-many", f"{number} {at.rpartition('/')[2]}; a result may have {most}")
    if not too_many:
        characters = sum(map(tables.characters, tables.metric_rows(line.job, line.result)))
        if characters > MAX_ROWS_CHARACTERS:
            detail = (
                f"its rows in the table of results have {characters} characters, and may have {MAX_ROWS_CHARACTERS}"
            )
            yield FieldError("/result", "too-large", detail)


def _figure_faults(result: Result) -> Iterator[FieldError]:
    """Faults of figures that would make comparisons fail."""
    yield from _range_faults("/result", result)
    for index, arm in enumerate(result.arms):
        at = f"/result/arms/{index}"
        yield from _range_faults(at, arm)
        yield from _pair_faults(at, arm, result)


def _range_faults(at: str, result: Result) -> Iterator[FieldError]:
    for position, metric in enumerate(result.metrics):
        if not all(0 <= figure <= _LARGEST_FIGURE for figure in (metric.value or 0, *metric.by_run)):
            detail = f"a figure of {metric.name} is below zero or above {_LARGEST_FIGURE:g}"
            yield FieldError(f"{at}/metrics/{position}", "out-of-range", detail)
        elif metric.by_run and metric.value and not _is_among(metric.value, metric.by_run):
            detail = f"the value of {metric.name} is outside of its runs, whose mean it should be"
            yield FieldError(f"{at}/metrics/{position}/value", "not-the-mean", detail)


def _is_among(value: float, by_run: list[float]) -> bool:
    return min(by_run) / _ROUNDED <= value <= max(by_run) * _ROUNDED


def _pair_faults(at: str, arm: Result, first: Result) -> Iterator[FieldError]:
    """Faults of a second spec's figures: its runs must pair with those of the first spec."""
    for index, metric in enumerate(arm.metrics):
        partner = first.metric(metric.name)
        if partner is None or not (metric.by_run and partner.by_run):
            continue
        if len(metric.by_run) != len(partner.by_run) or len(metric.by_run) < 2:
            detail = (
                f"{metric.name} has {len(metric.by_run)} runs, the first spec {len(partner.by_run)}; they run in pairs"
            )
            yield FieldError(f"{at}/metrics/{index}", "other-runs", detail)
        elif min(*metric.by_run, *partner.by_run) <= 0:
            yield FieldError(f"{at}/metrics/{index}", "out-of-range", f"a figure of {metric.name} is zero")
