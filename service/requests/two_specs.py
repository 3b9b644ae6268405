"""From a JSON object to two specs that may be run in turns and compared, with every wrong field named at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from dyno.errors import FieldError, InvalidComparison, InvalidSpec
from dyno.measure.compare_results import check_specs
from dyno.measure.result_metrics import COLD
from dyno.models.comparison import CompareSpecs
from dyno.models.spec import InterleavedSpec, Processes
from dyno.workloads.contract import Workload
from service.requests import specs
from service.requests.specs import Request

_OF_THE_JOB = ("device", "timeout_s", "priority", "labels", "expires_in_s", "queue_if_absent", "webhook")


@dataclass(frozen=True)
class Turns:
    """Two checked requests that may be compared, and the spec of the job that runs both."""

    first: Request
    second: Request
    spec: InterleavedSpec
    body_sha256: str

    @property
    def each(self) -> tuple[Request, Request]:
        return self.first, self.second


def read(document: Mapping[str, Any], faults: Iterable[FieldError], workloads: Mapping[str, Workload]) -> Turns:
    """Raises InvalidComparison with every wrong field of either spec, and NotComparable."""
    errors, asked = [*faults], None
    try:
        asked = CompareSpecs.model_validate(document, strict=True)
    except ValidationError as invalid:
        errors += specs.faults_of(document, invalid)
    requests = _requests(document.get("specs"), workloads, errors)
    if errors or asked is None:
        raise InvalidComparison(specs.first_of_each(errors))
    first, second = (_with_runs(each, asked.pairs) for each in requests)
    check_specs(first.spec, second.spec, first.params.untimed | first.params.how)
    joint = InterleavedSpec(
        **dict(first.spec),
        against=second.spec,
        pairs=asked.pairs,
        control=asked.control,
        metric=_metric(asked.metric, first, second),
        margin=asked.margin,
        confidence=asked.confidence,
    )
    return Turns(first, second, joint, specs.digest(document))


def _requests(given: object, workloads: Mapping[str, Workload], errors: list[FieldError]) -> list[Request]:
    """Both specs, or fewer where something is wrong, which is added to `errors`."""
    if not (isinstance(given, list) and len(given) == 2 and all(isinstance(each, dict) for each in given)):
        return []  # the model has named it
    first, second = given
    inherited = {name: first[name] for name in _OF_THE_JOB if name in first and name not in second}
    found: list[Request] = []
    for place, document in enumerate((first, {**inherited, **second})):
        try:
            found.append(specs.read(document, (), workloads))
        except InvalidSpec as invalid:
            said = {f"/{name}" for name in inherited} if place else set()
            errors += under(place, [e for e in invalid.errors if _field(e.pointer) not in said])
        if "processes" in (document.get("measure") if isinstance(document.get("measure"), dict) else {}):
            detail = "each has as many runs as there are `pairs`: leave it out"
            errors.append(FieldError(f"/specs/{place}/measure/processes", "pairs-say-it", detail))
    if len(found) == 2:
        errors += _of_two_jobs(*found)
    return found


def _field(pointer: str) -> str:
    """The first step of it."""
    return "/".join(pointer.split("/")[:2])


def _of_two_jobs(first: Request, second: Request) -> list[FieldError]:
    detail = "both run as one job on one device: the same as of the first, or left out"
    return [
        FieldError(f"/specs/1/{name}", "not-the-same", detail)
        for name in _OF_THE_JOB
        if getattr(first.spec, name) != getattr(second.spec, name)
    ]


def _with_runs(request: Request, pairs: int) -> Request:
    measure = request.spec.measure.model_copy(update={"processes": Processes(min=pairs, max=pairs)})
    return replace(request, spec=request.spec.model_copy(update={"measure": measure}))


def _metric(asked: str | None, first: Request, second: Request) -> str:
    """What is sampled in every run. Where params change what one execution holds, no figure of so much work will do."""
    alike = first.spec.params.keys() | second.spec.params.keys()
    same = all(first.spec.params.get(n) == second.spec.params.get(n) for n in alike if n in first.params.how)
    sampled = first.workload.sampled_for(first.params)
    able = [metric.name for metric in sampled if same or metric.amount is None]
    if asked is None:
        return able[0]
    if asked not in able:
        known = asked in [metric.name for metric in sampled]
        detail = f'"{asked}" {_why_not(asked, known, first)}; take {" or ".join(able)}'
        raise InvalidComparison([FieldError("/metric", "other-work" if known else "unknown-metric", detail)])
    return asked


def _why_not(asked: str, sampled: bool, request: Request) -> str:
    if sampled:
        return "is of an amount of work that the params decide, in which the specs differ"
    names = [metric.name for metric in request.workload.metrics_for(request.params)]
    return "isn't sampled" if asked.removeprefix(COLD) in names else "is no metric of these specs"


def under(place: int, errors: Iterable[FieldError]) -> list[FieldError]:
    """What is wrong with the spec at `place`, pointed at there."""
    return [FieldError(f"/specs/{place}{each.pointer}", each.code, each.detail) for each in errors]
