"""The spec of a job, run once more as a job of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Response

from dyno.models.job import Job
from dyno.models.spec import InterleavedSpec, Spec
from dyno.store.jobs import Submitted
from service.answers.accepted import accepted
from service.dependencies import IdempotencyKey, JobId, PreferredWait, StateDep
from service.problems import documented
from service.requests import interleaved, specs, submission
from service.requests.admission import Admission
from service.requests.two_specs import Turns
from service.state import State

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post(
    "/{job_id}/rerun",
    status_code=202,
    responses=documented(
        *("job-not-found", "job-expired", "invalid-spec", "does-not-fit", "exceeds-timeout", "unsupported"),
        *("no-device-fits", "idempotency-key-reused", "invalid-request", "queue-full"),
        *("record-unreadable", "store-unavailable"),
    ),
)
async def rerun(
    job_id: JobId,
    state: StateDep,
    response: Response,
    preferred_wait_s: PreferredWait,
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Queue the job's spec again, whatever became of the job; `rerun_of` of the new one names it.

    It is admitted as if it were submitted now: where it can't be run any more, the pointers are into the job's spec.
    """
    submitted = await _submit(state, job_id, idempotency_key)
    return await accepted(state, submitted, response, preferred_wait_s)


async def _submit(state: State, job_id: str, idempotency_key: str | None) -> Submitted:
    body_sha256 = specs.digest({"rerun_of": job_id})
    if idempotency_key and (earlier := await state.jobs.earlier(idempotency_key, body_sha256)):
        return Submitted(earlier, wake=False, replayed=True)  # before the first one is looked for: it may be gone
    job = await state.jobs.get(job_id)
    spec, admission_of = _asked(job, state, body_sha256)
    return await submission.queue(state, spec, body_sha256, idempotency_key, admission_of, rerun_of=job_id)


def _asked(job: Job, state: State, body_sha256: str) -> tuple[Spec, Callable[[], Awaitable[Admission]]]:
    """The spec with whatever it has to be given by now, and how it is admitted. Raises InvalidSpec."""
    first, *others = (specs.read(each.model_dump(mode="json"), (), state.workloads) for each in job.spec.arms[:2])
    if isinstance(job.spec, InterleavedSpec):
        turns = Turns(first, others[0], job.spec, body_sha256)
        return job.spec, partial(interleaved.admitted, state, turns)
    return first.spec, partial(submission.admitted, state, first)
