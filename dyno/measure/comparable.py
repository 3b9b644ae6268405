"""Which results may be compared at all, and what isn't the same in those that may.

They must be of the same work, measured by the same method: workload, params, precision and `method_version`; those of
emulated devices stay apart from those of real ones. Params that don't change what a sample times (`Params.untimed`:
epochs, trials, …) may differ, unless the metric is one that is taken once, such as an accuracy. A precision that nobody
observed is no proof of another one, so it is only told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dyno.errors import FieldError, InvalidComparison, NotComparable
from dyno.models.comparison import Difference
from dyno.models.job import Job
from dyno.models.result import Metric, Result
from dyno.models.spec import Spec

_OF_THE_DEVICE = ("id", "host", "kind", "model", "cores", "memory_bytes", "isa")
_CHOSEN = ("jit_compile", "steps_per_execution", "engine")  # of a result's details: what was left to the run


@dataclass(frozen=True)
class Entry:
    """A job, its result, and the results that other jobs had with the same work on hardware of the same id."""

    job: Job
    result: Result
    others: Sequence[Result] = field(default=())
    arm: Literal["first", "second"] | None = None  # of a job that has several results, whose spec is `spec`
    arm_spec: Spec | None = None

    @property
    def spec(self) -> Spec:
        """What this result was asked for."""
        return self.arm_spec or self.job.spec

    @property
    def name(self) -> str:
        """How sentences call it."""
        return self.job.id if self.arm is None else f"the {self.arm} spec"


def same_work(one: Spec, other: Spec) -> bool:
    """Whether two specs ask for the same thing, however often and with whatever seed it is measured."""
    return _work(one) == _work(other)


def _work(spec: Spec) -> tuple[object, ...]:
    return spec.workload, spec.params, spec.framework, spec.replicas


def named(result: Result, metric: str) -> Metric | None:
    return next((each for each in result.metrics if each.name == metric), None)


def check_comparable(entries: Sequence[Entry], asked: str | None, untimed: Collection[str]) -> str:
    """The name of the metric to compare, `asked` or the first result's first.

    Raises NotComparable with all fields that forbid it, and InvalidComparison where not all have the metric.
    """
    of_first = [each.name for each in entries[0].result.metrics]
    metric = asked or next(iter(of_first), "")
    found = [named(entry.result, metric) for entry in entries]
    differing = _of_the_work(entries)
    whatever_metric = [each for each in differing if not _names(each.field, untimed)]
    if None in found and not whatever_metric:  # a name that was misspelt, before what only that figure forbids
        there = [name for name in of_first if all(named(entry.result, name) for entry in entries)]
        detail = f'not every result has a metric "{metric}"; all have: {", ".join(there) or "none"}'
        raise InvalidComparison([FieldError("/metric", "unknown-metric", detail)])
    all_sampled = all(each and each.by_run for each in found)
    if forbidding := whatever_metric if all_sampled else differing:
        fields = {each.field: each.values for each in forbidding}
        raise NotComparable(f"these results differ in {', '.join(fields)}, so they can't be compared", fields)
    return metric


def check_specs(first: Spec, second: Spec, free: Collection[str]) -> None:
    """Raises NotComparable with all fields that forbid to compare what the two ask for; params in `free` don't."""
    asked = [{"/workload": each.workload, **_flat("/params", each.params, depth=1)} for each in (first, second)]
    fields = {each.field: each.values for each in _differing(asked) if not _names(each.field, free)}
    if fields:
        raise NotComparable(f"these specs differ in {', '.join(fields)}: they don't ask for the same work", fields)


def differences(entries: Sequence[Entry]) -> list[Difference]:
    """All that isn't the same and doesn't forbid to compare; what all agree in is left out."""
    return [*_of_the_work(entries), *_precision_unknown(entries), *_differing([_circumstances(e) for e in entries])]


def _names(pointer: str, params: Collection[str]) -> bool:
    return pointer.removeprefix("/params/").split("/")[0] in params if pointer.startswith("/params/") else False


def _of_the_work(entries: Sequence[Entry]) -> list[Difference]:
    found = _differing([_work_of(entry) for entry in entries])
    observed = [_observed(entry.result) for entry in entries]
    if len(set(observed) - {None}) > 1:
        found.append(Difference(field="/precision/observed", values=list(observed)))
    return found


def _work_of(entry: Entry) -> dict[str, Any]:
    result = entry.result
    return {
        "/workload": result.workload,
        **_flat("/params", entry.spec.params, depth=1),
        "/precision/requested": result.precision.requested if result.precision else None,
        "/method_version": result.method_version,
        "/device/emulated": bool(result.device.get("emulated")),
    }


def _observed(result: Result) -> str | None:
    return result.precision.observed if result.precision else None


def _precision_unknown(entries: Sequence[Entry]) -> list[Difference]:
    observed = [_observed(entry.result) for entry in entries]
    partly = None in observed and len(set(observed)) > 1
    return [Difference(field="/precision/observed", values=list(observed))] if partly else []


def _circumstances(entry: Entry) -> dict[str, Any]:
    result, spec = entry.result, entry.spec
    return {
        "/framework": spec.framework,
        "/replicas": spec.replicas,
        "/seed": spec.seed,
        **_flat("/measure", spec.measure.model_dump(mode="json"), depth=1),
        **{f"/device/{name}": result.device.get(name) for name in _OF_THE_DEVICE},
        "/hardware_id": result.hardware_id,
        "/context_id": result.context_id,
        **_flat("/environment", result.environment, depth=2),
        **{f"/details/{name}": result.details.get(name) for name in _CHOSEN},
        "/training/data/kind": result.training.data.kind if result.training else None,
        "/runs/process_start": " and ".join(sorted({run.process_start for run in result.runs})),
    }


def _flat(root: str, values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Pointers to values; objects are entered so deep, and told whole below that."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        pointer = f"{root}/{name.replace('~', '~0').replace('/', '~1')}"
        found |= _flat(pointer, value, depth - 1) if depth > 1 and isinstance(value, dict) else {pointer: value}
    return found


def _differing(each: Sequence[Mapping[str, Any]]) -> list[Difference]:
    pointers: Iterable[str] = dict.fromkeys(pointer for values in each for pointer in values)
    found = {pointer: [values.get(pointer) for values in each] for pointer in pointers}
    return [
        Difference(field=pointer, values=values)
        for pointer, values in found.items()
        if any(value != values[0] for value in values[1:])
    ]
