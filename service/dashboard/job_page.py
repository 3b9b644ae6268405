"""A job's page: its progress, or its result in words first, and then everything behind it. Cancel, rerun, delete."""

import json
import shlex
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from dyno.errors import NoResult, RecordUnreadable
from dyno.models.job import Job, Status
from dyno.models.result import RunSamples
from dyno.models.spec import InterleavedSpec
from dyno.store.jobs import read_log
from service.auth import OWN, READ, SUBMIT, CallerDep, requires
from service.dashboard import pictures
from service.dashboard.rendering import PageRoute, page, see_other, unusual_params
from service.dependencies import JobId, StateDep
from service.routes import jobs as job_routes
from service.state import State

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False, route_class=PageRoute)

DRAWN_HERE = "training.png"
LOG_CHARACTERS = 20_000  # the end of the log; the whole is one link away


@router.get("")
@requires(READ, OWN)
async def show(request: Request, job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """The page of one job."""
    job = await state.jobs.get(job_id)
    context: dict[str, Any] = {
        "job": job,
        "log": (await read_log(state.client, state.settings, job_id, 0, state.jobs.viewer)).text[-LOG_CHARACTERS:],
        "unusual": partial(unusual_params, state.workloads),
        "commands": commands(job, str(request.base_url).rstrip("/"), caller.key is not None),
        "unreadable": None,
        "result": None,
    }
    if job.status is Status.SUCCEEDED:
        try:
            context |= await _of_result(state, job_id)
        except (NoResult, RecordUnreadable) as error:
            context["unreadable"] = error.detail
    return page(request, caller, "job.html", context)


async def _of_result(state: State, job_id: str) -> dict[str, Any]:
    result = await state.jobs.result(job_id)
    metric = result.headline
    taken = await _samples(state, job_id)
    epochs = result.training.epochs if result.training else []
    return {
        "result": result,
        "headline": metric,
        "runs_picture": metric and pictures.runs(metric),
        "samples_picture": pictures.samples(taken),
        "histogram": pictures.histogram(taken),
        "phases_picture": pictures.phases(result.phases),
        "curves": [picture for figure in ("loss", "accuracy") if (picture := pictures.training(epochs, figure))],
        "images": [each for each in result.artifacts if each.name.endswith(".png") and each.name != DRAWN_HERE],
    }


async def _samples(state: State, job_id: str) -> list[RunSamples]:
    """Those of the first case of the first spec; none if they have gone."""
    try:
        found = await state.jobs.samples(job_id)
    except (NoResult, RecordUnreadable):
        return []
    return [run for run in found if run.case == found[0].case and run.arm in (None, "first")]


def commands(job: Job, url: str, needs_key: bool) -> dict[str, str]:
    """What repeats the job, by the name of the tool."""
    spec, key = job.spec, ' -H "Authorization: Bearer $DYNO_API_KEY"' if needs_key else ""
    again = {"dyno": f"dyno rerun {job.id} --url {url}"}
    if isinstance(spec, InterleavedSpec):
        return {"curl": f"curl -sS -X POST {url}/v1/jobs/{job.id}/rerun{key}", **again}
    document = {"workload": spec.workload, **spec.model_dump(mode="json", exclude_defaults=True, exclude={"webhook"})}
    curl = f"curl -sS {url}/v1/jobs{key} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(document))}"
    python = f'import dyno\n\nwith dyno.Client("{url}") as client:\n    print(client.run({document!r}).metrics[0])'
    return {"curl": curl, **again, "Python": python}


@router.post("/cancel")
@requires(SUBMIT, OWN)
async def cancel(job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """Cancel the job, as POST /v1/jobs/{job_id}/cancel does."""
    await job_routes.cancel(job_id, state.jobs, caller, Response())
    return see_other(f"/jobs/{job_id}")


@router.post("/rerun")
@requires(SUBMIT, OWN)
async def rerun(job_id: JobId, state: StateDep) -> Response:
    """Run the job's spec again, and show the new job."""
    again = await job_routes.submit_rerun(state, job_id, None)
    return see_other(f"/jobs/{again.stored.id}")


@router.post("/delete")
@requires(SUBMIT, OWN)
async def delete(job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """Delete the done job with all its data."""
    await job_routes.delete(job_id, state, caller)
    return see_other("/jobs")
