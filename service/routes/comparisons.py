"""Comparisons: results of the same work beside each other, and as a picture."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response

from dyno.errors import InvalidComparison, NoResult, RecordUnreadable, ResultNotReady, UnknownComparison, UnknownJob
from dyno.measure.compare_results import ComparisonEntry, check_comparable, compare, same_work
from dyno.models.comparison import CompareResults, CompareSpecs, Comparison, UnfinishedComparison, job_of
from dyno.models.job import Job, Status
from dyno.models.result import Result
from dyno.models.spec import InterleavedSpec
from dyno.store.jobs import Comparisons, Jobs
from service import strict_json
from service.answers.accepted import POLL_AFTER_S
from service.dependencies import IdempotencyKey, StateDep
from service.edge import SANDBOXED
from service.problems import documented
from service.requests import body, interleaved, specs, two_specs
from service.requests.two_specs import Turns
from service.routes import bars
from service.state import State

router = APIRouter(prefix="/v1/comparisons", tags=["comparisons"])

LOOKED_THROUGH = 100  # newest results of the workload, for others of the same work: about 20 ms of the event loop
MOST_OTHERS = 20  # of these are read for each result
_SVG: dict[str, Any] = {"image/svg+xml": {"schema": {"type": "string"}}}


def _body() -> dict[str, Any]:
    """Either of the two, each spec being one that POST /v1/jobs takes."""
    in_turns = CompareSpecs.model_json_schema()
    in_turns["properties"]["specs"]["items"] = {"$ref": "#/components/schemas/SubmitJob"}
    return {"application/json": {"schema": {"oneOf": [CompareResults.model_json_schema(), in_turns]}}}


async def _asked(request: Request, state: StateDep) -> CompareResults | Turns:
    raw = await body.read(request, state.settings)
    document, errors = strict_json.parse(raw)
    if "specs" in document and "jobs" not in document:
        return two_specs.read(document, errors, state.workloads)
    return specs.checked(CompareResults, document, errors, InvalidComparison)


async def _comparisons(state: StateDep) -> Comparisons:
    return Comparisons(state.client, state.settings, state.jobs.viewer)


Asked = Annotated[CompareResults | Turns, Depends(_asked)]
ComparisonsDep = Annotated[Comparisons, Depends(_comparisons)]


@router.post(
    "",
    status_code=201,
    response_model=Comparison,
    openapi_extra={"requestBody": {"required": True, "content": _body()}},
    responses={
        202: {"model": UnfinishedComparison, "description": "Two specs: the job that runs them is queued"},
        **documented(
            *("malformed-body", "job-not-found", "body-timeout", "result-not-ready", "no-result"),
            *("not-comparable", "job-expired"),
            *("body-too-large", "unsupported-media-type", "invalid-comparison", "invalid-spec", "does-not-fit"),
            *("exceeds-timeout", "unsupported", "no-device-fits", "idempotency-key-reused", "invalid-request"),
            *("queue-full", "record-unreadable", "store-unavailable"),
        ),
    },
)
async def create(
    asked: Asked,
    state: StateDep,
    comparisons: ComparisonsDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> Comparison | Response:
    """Compare results with the first of them, or run two specs in turns on one device and compare those.

    Kept as long as the jobs are. The `Idempotency-Key` is for two specs: results may be compared any number of times.
    """
    if isinstance(asked, Turns):
        return await _begun(asked, state, idempotency_key)
    comparison = (await _made(asked, state)).model_copy(update={"owner": state.jobs.viewer.owner})
    await comparisons.keep(comparison)
    response.headers["Location"] = comparison.urls.self
    return comparison


async def _begun(asked: Turns, state: State, idempotency_key: str | None) -> Response:
    submitted = await interleaved.submit(state, asked, idempotency_key)
    begun = interleaved.unfinished(submitted.job, asked.spec, submitted.job.failure)
    headers = {"Location": begun.urls.self, "Retry-After": str(POLL_AFTER_S)}
    if submitted.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(begun.model_dump_json(by_alias=True), 202, headers, "application/json")


async def _made(asked: CompareResults, state: State) -> Comparison:
    entries = [ComparisonEntry(await state.jobs.get(job_id), await state.jobs.result(job_id)) for job_id in asked.jobs]
    workload = state.workloads.get(entries[0].result.workload)
    untimed = workload.params.untimed if workload else frozenset()
    check_comparable(entries, asked.metric, untimed)  # before anything else is read for it
    others = await _others(state.jobs, entries)
    entries = [ComparisonEntry(each.job, each.result, others[each.job.id]) for each in entries]
    # In a thread: the first one imports SciPy.
    return await anyio.to_thread.run_sync(compare, asked, entries, untimed, datetime.now(UTC))


async def _others(jobs: Jobs, entries: Sequence[ComparisonEntry]) -> Mapping[str, list[Result]]:
    """For each job the results of the same work on equal hardware that aren't compared here."""
    named = {entry.job.id for entry in entries}
    page = await jobs.list(status=Status.SUCCEEDED, workload=entries[0].result.workload, limit=LOOKED_THROUGH)
    unnamed = [job for job in page.data if job.id not in named]
    read: dict[str, Result | None] = {}
    found: dict[str, list[Result]] = {}
    for entry in entries:
        alike = [job for job in unnamed if same_work(job.spec, entry.job.spec)][:MOST_OTHERS]
        for job in alike:
            if job.id not in read:
                read[job.id] = await _readable(jobs, job)
        results = [result for job in alike if (result := read[job.id]) is not None]
        found[entry.job.id] = [each for each in results if each.hardware_id == entry.result.hardware_id]
    return found


async def _readable(jobs: Jobs, job: Job) -> Result | None:
    """None where it has just expired, or can't be read: it is only looked at in passing."""
    with contextlib.suppress(UnknownJob, ResultNotReady, RecordUnreadable):
        return await jobs.result(job.id)
    return None


async def _found(comparison_id: str, state: StateDep, comparisons: ComparisonsDep) -> Comparison | UnfinishedComparison:
    """Kept as it was made, or told by the job that runs its specs."""
    try:
        return await comparisons.get(comparison_id)
    except UnknownComparison as unknown:
        try:
            job = await state.jobs.get(job_of(comparison_id))
        except UnknownJob:
            raise unknown from None
        if not isinstance(job.spec, InterleavedSpec):
            raise
    return await interleaved.comparison(job, job.spec, state)


Found = Annotated[Comparison | UnfinishedComparison, Depends(_found)]


@router.get("/{comparison_id}", responses=documented("comparison-not-found", "record-unreadable", "store-unavailable"))
async def show(found: Found) -> Comparison | UnfinishedComparison:
    """A comparison as it was made; results that came later don't change it. Of two specs that still run: how far."""
    return found


@router.get(
    "/{comparison_id}/bars.svg",
    response_class=Response,
    responses={
        200: {"description": "Bars of the metric with their intervals", "content": _SVG},
        **documented("comparison-not-found", "result-not-ready", "no-result", "record-unreadable", "store-unavailable"),
    },
)
async def picture(found: Found) -> Response:
    """The figures as bars with their intervals; logarithmic where they lie far apart."""
    if isinstance(found, UnfinishedComparison):
        kind = ResultNotReady if found.status == "running" else NoResult
        raise kind(f"{found.id} is {found.status}: there is nothing to draw")
    headers = {
        "Cache-Control": "private, max-age=3600",
        "Vary": "Authorization",  # or a browser would show what one key saw to the next one
        **SANDBOXED,  # names of devices are in it
    }
    return Response(bars.drawn(found), media_type="image/svg+xml", headers=headers)
