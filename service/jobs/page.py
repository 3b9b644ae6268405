"""A job's page: its progress, or its result in words and then in figures. Buttons cancel, rerun and delete the job.

While the job runs, the page has the figures of the runs that have ended.
"""

import json
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Request, Response

from dyno.bench.measure.result_series import history_of
from dyno.bench.measure.warnings import MIN_PROCESSES
from dyno.charts import result_charts as charts
from dyno.charts.ladder import ladder
from dyno.charts.load import load
from dyno.charts.roofline import roofline, works_of
from dyno.errors import InvalidBaseline, NoResult, RecordUnreadable
from dyno.models.baseline import NewBaseline
from dyno.models.comparison import UnfinishedComparison
from dyno.models.job import Job, Status
from dyno.models.result import Metric, RunSamples
from dyno.models.spec import BaselineName, InterleavedSpec, Model, Spec
from dyno.store.jobs import read_log, read_partial_metrics
from dyno.store.stored_results import read_result_summaries
from service import submission
from service.auth import OWN, READ, SUBMIT, CallerDep, requires
from service.baselines import routes as baseline_routes
from service.comparisons.page import comparison_context
from service.dashboard.forms import idempotency_key, read_form
from service.dashboard.rendering import PageRoute, as_text, page, see_other, selector_text, unusual_params
from service.dependencies import JobId, StateDep
from service.jobs import routes as job_routes
from service.state import State
from service.validation import validate_model

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False, route_class=PageRoute)

DRAWN_HERE = "training.png"
EARLIER = 30  # number of results that the page searches for earlier results of the job's series
LOG_CHARACTERS = 20_000  # shown from the end of the log; a link leads to the whole log


class _Named(Model):
    name: BaselineName


@router.get("")
@requires(READ, OWN)
async def show(request: Request, job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """The page of one job."""
    job = await state.jobs.get(job_id)
    context: dict[str, Any] = {
        "job": job,
        "log": (await read_log(state.client, state.settings, job_id, 0, state.jobs.viewer)).text[-LOG_CHARACTERS:],
        "unusual": partial(unusual_params, state.workloads),
        "commands": commands(
            job, str(request.base_url).rstrip("/"), caller.key is not None, unusual_params(state.workloads, job.spec)
        ),
        "form": _form_of(job.spec, state),
        "unreadable": None,
        "result": None,
        "headline": None,
        "so_far": None,
        "others": urlencode({"workload": job.spec.workload, "status": Status.SUCCEEDED, "compare": job_id}),
        "comparison": None,
        "earlier": 0,
        "series": urlencode({"workload": job.spec.workload, "device": job.worker.full_device if job.worker else ""}),
        "pictures": {},
    }
    if job.status is Status.RUNNING:
        context["so_far"] = so_far = await _so_far(state, job)
        context["pictures"] = {"runs": so_far and charts.runs(so_far)}
    if job.status is Status.SUCCEEDED:
        try:
            context |= await _of_result(state, job)
        except (NoResult, RecordUnreadable) as error:
            context["unreadable"] = error.detail
    return page(request, caller, "job.html", context, file_name=job_id)


async def _so_far(state: State, job: Job) -> Metric | None:
    """The headline figure over the runs of the first spec that have ended; None before the first run has ended."""
    partials = await read_partial_metrics(state.client, state.settings, job.id)
    of_first = [figures for figures in partials if figures.arm in (None, "first")]
    latest = max(of_first, key=lambda figures: figures.run, default=None)
    return next((metric for metric in latest.metrics if metric.by_run), None) if latest else None


async def _of_result(state: State, job: Job) -> dict[str, Any]:
    result = await state.jobs.result(job.id)
    metric = result.headline
    taken = await _samples(state, job.id)
    epochs = result.training.epochs if result.training else []
    reasons = result.details.get("unchecked_reasons")
    earlier = await _earlier(state, job) if metric else []
    drawn = {
        "runs": metric and charts.runs(metric, earlier),
        "samples": charts.samples(taken, result.runs),
        "histogram": charts.histogram(taken),
        "phases": charts.phases(result.phases),
        "training": charts.training(epochs) if len(epochs) > 1 else None,
        "ladder": ladder(result),
        "load": load(result),
        "roofline": roofline("roofline", works_of(result)),
    }
    compared = await _compared(state, job)
    return {
        "result": result,
        "headline": metric,
        "min_processes": MIN_PROCESSES,
        "unchecked_reasons": reasons if isinstance(reasons, dict) else {},
        "earlier": len(earlier),
        **compared,
        "pictures": drawn | compared.get("pictures", {}),
        "images": [
            artifact for artifact in result.artifacts if artifact.name.endswith(".png") and artifact.name != DRAWN_HERE
        ],
    }


async def _earlier(state: State, job: Job) -> list[float]:
    """The values of earlier results in the job's series, found in the latest 30 results of its workload and device."""
    if job.worker is None:
        return []
    same_work = {"workload": job.spec.workload, "framework": job.spec.framework, "device": job.worker.full_device}
    earlier_jobs = await state.jobs.list(
        status=Status.SUCCEEDED, created_before=job.created_at, limit=EARLIER, **same_work
    )
    jobs = [job, *earlier_jobs.data]
    summaries = await read_result_summaries(state.client, state.settings, [listed.id for listed in jobs])
    results = [(listed, figures) for listed, figures in zip(jobs, summaries, strict=True) if figures is not None]
    series = await anyio.to_thread.run_sync(history_of, results, None, state.workloads)
    own_series = next(
        (candidate for candidate in series if any(point.job == job.id for point in candidate.points)), None
    )
    return [point.value for point in own_series.points if point.job != job.id] if own_series else []


async def _compared(state: State, job: Job) -> dict[str, Any]:
    """The context for the comparison of a job with two specs; empty for other jobs."""
    if not isinstance(job.spec, InterleavedSpec):
        return {}
    comparison = await submission.read_comparison(job, job.spec, state)
    if isinstance(comparison, UnfinishedComparison):
        return {"unreadable": comparison.failure and comparison.failure.message}
    return await comparison_context(comparison, state)


async def _samples(state: State, job_id: str) -> list[RunSamples]:
    """The samples of the first case of the first spec; empty if the samples are gone."""
    try:
        runs = await state.jobs.samples(job_id)
    except (NoResult, RecordUnreadable):
        return []
    return [run for run in runs if run.case == runs[0].case and run.arm in (None, "first")]


def commands(job: Job, url: str, needs_key: bool, params: Mapping[str, Any]) -> dict[str, str]:
    """Commands that repeat the job, by the name of their tool. `params`: the params that differ from the defaults."""
    spec, key = job.spec, ' -H "Authorization: Bearer $DYNO_API_KEY"' if needs_key else ""
    again = {"dyno": f"dyno rerun {job.id} --url {url}"}
    if isinstance(spec, InterleavedSpec):
        return {"curl": f"curl -sS -X POST {url}/v1/jobs/{job.id}/rerun{key}", **again}
    rest = spec.model_dump(mode="json", exclude_defaults=True, exclude={"webhook", "workload", "params"})
    document = {"workload": spec.workload, **({"params": dict(params)} if params else {}), **rest}
    curl = f"curl -sS {url}/v1/jobs{key} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(document))}"
    python = f'import dyno\n\nwith dyno.Client("{url}") as client:\n    print(client.run({document!r}).metrics[0])'
    return {"curl": curl, **again, "Python": python}


def _form_of(spec: Spec, state: State) -> str | None:
    """The address of the workload's form with this spec filled in; None for two specs or an unknown workload."""
    if isinstance(spec, InterleavedSpec) or spec.workload not in state.workloads:
        return None
    params = {f"params.{name}": as_text(value) for name, value in unusual_params(state.workloads, spec).items()}
    replicas = {"replicas": str(spec.replicas)} if spec.replicas > 1 else {}
    fields = {"device": selector_text(spec.device), "framework": spec.framework, **replicas, **params}
    return f"/workloads/{spec.workload}?{urlencode(fields)}"


@router.post("/cancel")
@requires(SUBMIT, OWN)
async def cancel(job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """Cancel the job, as POST /v1/jobs/{job_id}/cancel does."""
    await job_routes.cancel_job(state.jobs, job_id, caller)
    return see_other(f"/jobs/{job_id}")


@router.post("/rerun")
@requires(SUBMIT, OWN)
async def rerun(request: Request, job_id: JobId, state: StateDep) -> Response:
    """Run the job's spec again, and show the new job."""
    given = await read_form(request, state.settings)
    again = await job_routes.submit_rerun(state, job_id, idempotency_key(given))
    return see_other(f"/jobs/{again.stored.id}")


@router.post("/baseline")
@requires(SUBMIT, OWN)
async def save_baseline(
    request: Request, job_id: JobId, state: StateDep, saved: baseline_routes.BaselinesDep
) -> Response:
    """Save the result's headline figure as a baseline, and show all baselines."""
    await state.jobs.get(job_id)
    given = await read_form(request, state.settings)
    name = validate_model(_Named, {"name": given.get("name", "")}, [], InvalidBaseline).name
    await baseline_routes.save_baseline(state, saved, name, NewBaseline(job=job_id))
    return see_other("/history#baselines")


@router.post("/delete")
@requires(SUBMIT, OWN)
async def delete(job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """Delete the done job with all its data."""
    await job_routes.delete(job_id, state, caller)
    return see_other("/jobs")
