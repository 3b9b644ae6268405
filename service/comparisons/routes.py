"""Comparisons of results that share a metric, as JSON and as a bar chart."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response

from dyno.bench.contract import Workload
from dyno.bench.measure.compare_results import ComparisonEntry, compare
from dyno.bench.measure.result_metrics import with_accuracy
from dyno.charts import several
from dyno.errors import InvalidComparison, NoResult, ResultNotReady, UnknownComparison, UnknownJob
from dyno.models.comparison import (
    CompareResults,
    CompareSpecs,
    Comparison,
    UnfinishedComparison,
    job_of,
    names_with_devices,
)
from dyno.models.spec import InterleavedSpec
from dyno.store.jobs import Comparisons
from service import auth, dependencies, middleware, problems, streaming, submission, validation
from service.state import State

router = APIRouter(prefix="/v1/comparisons", tags=["comparisons"])

_SVG: dict[str, Any] = {"image/svg+xml": {"schema": {"type": "string"}}}
# FastAPI would name this schema after the operation id; generated clients know it by this title.
_TITLE: dict[str, Any] = {"application/json": {"schema": {"title": "Response Show V1 Comparisons  Comparison Id  Get"}}}


def _body() -> dict[str, Any]:
    """The schema of the body: results, or two specs as POST /v1/jobs accepts them."""
    in_turns = CompareSpecs.model_json_schema()
    in_turns["properties"]["specs"]["items"] = {"$ref": "#/components/schemas/SubmitJob"}
    return {"application/json": {"schema": {"oneOf": [CompareResults.model_json_schema(), in_turns]}}}


async def _asked(request: Request, state: dependencies.StateDep) -> CompareResults | validation.ComparisonRequest:
    document, errors = await validation.read_json(request, state.settings)
    if "specs" in document and "jobs" not in document:
        return validation.validate_comparison(document, errors, state.workloads)
    return validation.validate_model(CompareResults, document, errors, InvalidComparison)


async def _comparisons(state: dependencies.StateDep) -> Comparisons:
    return Comparisons(state.client, state.settings, state.jobs.viewer)


Asked = Annotated[CompareResults | validation.ComparisonRequest, Depends(_asked)]
ComparisonsDep = Annotated[Comparisons, Depends(_comparisons)]


@router.post(
    "",
    operation_id="createComparison",
    summary="Compare results or two specs",
    status_code=201,
    response_model=Comparison,
    openapi_extra={"requestBody": {"required": True, "content": _body()}},
    responses={
        201: dependencies.sends("Location"),
        202: {
            "model": UnfinishedComparison,
            "description": "The job that runs the two specs is queued",
            **dependencies.sends("Location", "RetryAfter", "Replayed"),
        },
        **problems.documented(
            *("malformed-body", "job-not-found", "body-timeout", "result-not-ready", "no-result", "not-comparable"),
            *("job-expired", "body-too-large", "unsupported-media-type", "invalid-comparison", "invalid-spec"),
            *("does-not-fit", "exceeds-timeout", "unsupported", "no-device-fits", "idempotency-key-reused"),
            *("queue-full", "record-unreadable", "priority-not-allowed", "store-unfit"),
        ),
    },
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def create(
    body: Asked,
    state: dependencies.StateDep,
    comparisons: ComparisonsDep,
    response: Response,
    idempotency_key: dependencies.IdempotencyKey = None,
) -> Comparison | Response:
    """Compare results with a base result, or run two specs in turns on one device and compare their results.

    `differences` lists the fields that differ. Only results without a shared metric are refused (`not-comparable`).
    A comparison is kept as long as its jobs are kept. `Idempotency-Key` only affects requests with two specs.
    """
    if isinstance(body, validation.ComparisonRequest):
        return await _begun(body, state, idempotency_key)
    comparison = (await compare_results_of(body, state)).model_copy(update={"owner": state.jobs.viewer.owner})
    await state.readiness.require_fit()
    await comparisons.keep(comparison)
    response.headers["Location"] = comparison.urls.self
    return comparison


async def _begun(request: validation.ComparisonRequest, state: State, idempotency_key: str | None) -> Response:
    submitted = await submission.submit(state, request, idempotency_key)
    begun = submission.unfinished_comparison(submitted.job, request.spec, submitted.job.failure)
    headers = {"Location": begun.urls.self, "Retry-After": str(streaming.POLL_AFTER_S)}
    if submitted.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(begun.model_dump_json(by_alias=True), 202, headers, "application/json")


async def compare_results_of(request: CompareResults, state: State) -> Comparison:
    """Make the comparison without storing it."""
    entries = [
        ComparisonEntry(await state.jobs.get(job_id), await state.jobs.result(job_id)) for job_id in request.jobs
    ]
    workload = state.workloads.get(entries[0].result.workload)
    return await anyio.to_thread.run_sync(_compared, request, entries, workload)  # in a thread: this imports SciPy


def _compared(request: CompareResults, entries: Sequence[ComparisonEntry], workload: Workload | None) -> Comparison:
    with_accuracies = [replace(entry, result=with_accuracy(entry.result)) for entry in entries]
    return compare(request, with_accuracies, workload, datetime.now(UTC), base=request.base_index)


async def _found(
    comparison_id: str, state: dependencies.StateDep, comparisons: ComparisonsDep
) -> Comparison | UnfinishedComparison:
    """The stored comparison of results, or the comparison of a job that runs two specs."""
    try:
        return await comparisons.get(comparison_id)
    except UnknownComparison as unknown:
        try:
            job = await state.jobs.get(job_of(comparison_id))
        except UnknownJob:
            raise unknown from None
        if not isinstance(job.spec, InterleavedSpec):
            raise
    return await submission.read_comparison(job, job.spec, state)


Found = Annotated[Comparison | UnfinishedComparison, Depends(_found)]


@router.get(
    "/{comparison_id}",
    operation_id="getComparison",
    summary="Read a comparison",
    responses={
        200: {"content": _TITLE},
        **problems.documented("comparison-not-found", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def show(stored: Found) -> Comparison | UnfinishedComparison:
    """Read a comparison. Later results don't change it. While two specs still run, the response has their progress."""
    return stored


@router.get(
    "/{comparison_id}/bars.svg",
    operation_id="getBars",
    summary="Draw a comparison",
    response_class=Response,
    responses={
        200: {
            "description": "A bar for each result, with its interval",
            "content": _SVG,
            **dependencies.sends("Vary"),
        },
        **problems.documented("comparison-not-found", "result-not-ready", "no-result", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def draw(stored: Found) -> Response:
    """Draw the results as bars with their intervals, on a logarithmic axis if the results are far apart."""
    if isinstance(stored, UnfinishedComparison):
        kind = ResultNotReady if stored.status == "running" else NoResult
        raise kind(f"{stored.id} is {stored.status} and has no results to draw")
    headers = {
        "Cache-Control": "private, max-age=3600",
        "Vary": "Authorization",  # otherwise a browser's cache would show one key's chart to the next key
        **middleware.SANDBOXED_PICTURE,  # the names of devices are untrusted text
    }
    picture = several.comparison(stored, names_with_devices(stored))
    return Response(picture.svg(), media_type="image/svg+xml", headers=headers)
