"""Whether the weights that a spec starts from are there, asked before it is queued."""

from __future__ import annotations

from dyno.artifact_store import WEIGHTS_SUFFIXES, is_weights
from dyno.errors import FieldError, InvalidSpec, ResultNotReady, UnknownJob
from dyno.models.result import Artifact
from dyno.models.spec import WeightsRef
from dyno.workloads.contract import Params
from dyno.workloads.training.params import TrainingParams
from service.state import State

_AT = "/params/weights"


async def check_weights(state: State, params: Params) -> None:
    """Raises InvalidSpec, naming the job or the file that isn't what it should be. The file itself is not opened."""
    ref = params.weights if isinstance(params, TrainingParams) else None
    if ref is None:
        return
    try:
        listed = (await state.jobs.result(ref.job)).artifacts
    except UnknownJob:
        raise _wrong("job", "unknown-job", f"there is no job {ref.job}, or not any more") from None
    except ResultNotReady as error:
        detail = f"{ref.job} is {error.job_status}: only a job that succeeded has left weights"
        raise _wrong("job", "not-succeeded", detail) from None
    _check_name(ref, listed)


def _check_name(ref: WeightsRef, listed: list[Artifact]) -> None:
    weights = [artifact.name for artifact in listed if is_weights(artifact.name)]
    there = f"{ref.job} left these weights: {', '.join(weights) or 'none'}"
    if not is_weights(ref.name):
        kinds = " or ".join(WEIGHTS_SUFFIXES)
        raise _wrong("name", "not-weights", f'a file of weights ends in {kinds}, "{ref.name}" doesn\'t; {there}')
    if ref.name not in weights:
        raise _wrong("name", "artifact-not-found", f'no "{ref.name}"; {there}')


def _wrong(field: str, code: str, detail: str) -> InvalidSpec:
    return InvalidSpec([FieldError(f"{_AT}/{field}", code, detail)])
