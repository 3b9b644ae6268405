"""Baselines: save a job's figure or a limit under a name, read, list and delete them."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from dyno import errors
from dyno.bench.measure import baseline_outcome, peers
from dyno.bench.registry import resolve
from dyno.models.baseline import Baseline, BaselineFigure, BaselineList, NewBaseline, NewLimit
from dyno.models.job import Job
from dyno.models.result import Metric
from dyno.models.spec import BaselineName, InterleavedSpec
from dyno.store.named_documents import Baselines
from service import auth, dependencies, problems, submission, validation
from service.state import State

router = APIRouter(prefix="/v1/baselines", tags=["baselines"])

Name = Annotated[BaselineName, Path(description="Letters, digits, dots, dashes and underscores, 64 at most")]


def _body() -> dict[str, Any]:
    return {"oneOf": [model.model_json_schema() for model in (NewBaseline, NewLimit)]}


async def _asked(request: Request, state: dependencies.StateDep) -> NewBaseline | NewLimit:
    document, faults = await validation.read_json(request, state.settings)
    if "job" in document:
        return validation.validate_model(NewBaseline, document, faults, errors.InvalidBaseline)
    return validation.validate_model(NewLimit, document, faults, errors.InvalidBaseline)


async def _baselines(state: dependencies.StateDep) -> Baselines:
    return submission.baselines_of(state)


BaselinesDep = Annotated[Baselines, Depends(_baselines)]


@router.put(
    "/{name}",
    operation_id="putBaseline",
    summary="Save a baseline",
    response_model=Baseline,
    openapi_extra=dependencies.takes(_body()),
    responses={
        200: {"description": "The baseline of this name was replaced"},
        201: {"model": Baseline, "description": "The baseline is new", **dependencies.sends("Location")},
        **problems.documented(*problems.OF_BODY, "invalid-baseline", "record-unreadable", "store-unfit"),
    },
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def save(
    name: Name,
    new: Annotated[NewBaseline | NewLimit, Depends(_asked)],
    state: dependencies.StateDep,
    saved: BaselinesDep,
    response: Response,
) -> Baseline:
    """Save a copy of a job's figure, or a limit, under a name of your key. Replaces your key's baseline of this name.

    Jobs that name the baseline keep the version that they were submitted with.
    """
    baseline, is_new = await save_baseline(state, saved, name, new)
    if is_new:
        response.status_code = 201
        response.headers["Location"] = f"/v1/baselines/{name}"
    return baseline


async def save_baseline(
    state: State, saved: Baselines, name: str, new: NewBaseline | NewLimit
) -> tuple[Baseline, bool]:
    """Save the baseline; returns it, and whether its name is new. Raises InvalidBaseline and StoreUnfit."""
    common: dict[str, Any] = {"name": name, "saved_at": datetime.now(UTC), "owner": state.jobs.viewer.owner}
    if isinstance(new, NewLimit):
        baseline = Baseline(margin=0, job=None, **new.model_dump(), **common)
    else:
        metric, figure = await _figure(name, new, state, saved)
        of_metric: dict[str, Any] = {"metric": metric.name, "unit": metric.unit, "better": metric.better}
        baseline = Baseline(margin=new.margin, job=new.job, figure=figure, **of_metric, **common)
    await state.readiness.require_fit()
    return baseline, await saved.put(baseline)


async def _figure(name: str, new: NewBaseline, state: State, saved: Baselines) -> tuple[Metric, BaselineFigure]:
    try:
        job, result = await state.jobs.get(new.job), await state.jobs.result(new.job)
    except errors.UnknownJob:
        raise _wrong_job("unknown-job", f"{new.job} doesn't exist, or was deleted") from None
    except errors.ResultNotReady as error:
        detail = f"{new.job} is {error.job_status}: only a job that succeeded has a figure"
        raise _wrong_job("not-succeeded", detail) from None
    if isinstance(job.spec, InterleavedSpec):
        raise _wrong_job("two-specs", f"{job.id} ran two specs in turns; name a job of a single spec")
    metric = baseline_outcome.figure_metric(result, new.metric)
    headline, sampled = None, set[str]()
    try:
        of = resolve(job.spec, state.workloads)
    except (errors.UnknownWorkload, errors.InvalidSpec):  # another version ran the job: save no series
        pass
    else:
        headline = peers.headline(result, of.spec, of.params)
        sampled = {sample.name for sample in of.workload.metrics_for(of.params) if sample.sampled}
    figure = baseline_outcome.figure_of(metric, result, job.spec, headline, sampled, job.finished_at)
    return metric, figure.model_copy(update={"level_since": await _level_since(name, job, figure, saved)})


async def _level_since(name: str, job: Job, figure: BaselineFigure, saved: Baselines) -> str | None:
    if baseline_outcome.is_another_level(job.baseline):
        return job.id
    try:
        before = (await saved.own(name)).figure
    except (errors.UnknownBaseline, errors.RecordUnreadable):
        return None
    since = before.level_since if before is not None and before.series == figure.series else None
    return since if since is not None and since < job.id else None  # ids are in the order of submission


def _wrong_job(code: str, detail: str) -> errors.InvalidBaseline:
    return errors.InvalidBaseline([errors.FieldError("/job", code, detail)])


@router.get("", operation_id="listBaselines", summary="List baselines")
@auth.requires(auth.READ, auth.OWN)
async def browse(saved: BaselinesDep) -> BaselineList:
    """List your key's baselines by name. For an admin's key, list the baselines of all keys."""
    return BaselineList(data=await saved.list())


@router.get(
    "/{name}",
    operation_id="getBaseline",
    summary="Read a baseline",
    responses=problems.documented("baseline-not-found", "record-unreadable"),
)
@auth.requires(auth.READ, auth.OWN)
async def show(name: Name, saved: BaselinesDep) -> Baseline:
    """Read a baseline. If an admin's key has no baseline of this name, the response has another key's baseline."""
    return await saved.get(name)


@router.delete(
    "/{name}",
    operation_id="deleteBaseline",
    summary="Delete a baseline",
    status_code=204,
    responses=problems.documented("baseline-not-found"),
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def delete(name: Name, saved: BaselinesDep) -> None:
    """Delete a baseline of your key. Jobs that name the baseline keep a copy, and are still compared with it."""
    await saved.delete(name)
