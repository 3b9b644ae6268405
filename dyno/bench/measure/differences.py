"""Find the fields that differ between results, as JSON pointers, and the metrics that can be compared.

The differences decide what a ratio means:

- Results of the same work have the same workload, params and precision. Their ratio is a change of speed. Params may
  differ if they don't change what a sample times (`Params.untimed`: epochs, trials, …) or the amount of work
  (`Params.how`: jit_compile, …). Untimed params must also be equal for a metric that isn't sampled, such as the
  training's time, or the latency of calls that arrive at a rate. An unobserved precision isn't a difference.
- Different work is compared per unit of work (FLOP/s, samples/s, time per sample). If the workload or params change the
  amount of work, totals such as the time of an epoch aren't compared.

Results share a metric if each has a metric of this name, unit and direction.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyno.bench.contract import MetricSpec, Workload
from dyno.errors import FieldError, InvalidComparison, NotComparable
from dyno.models.comparison import Difference
from dyno.models.result import Metric, Result, ResultSummary
from dyno.models.spec import Spec
from dyno.validation_messages import pointer

_OF_THE_DEVICE = ("id", "host", "kind", "model", "cores", "memory_bytes", "isa")
_TOTALS = ("s", "bytes")  # units of metrics that grow with the amount of work; see `_is_total` for exceptions
_CHOSEN = ("jit_compile", "steps_per_execution", "engine")  # choices that a run made, in the result's details


def _precision_and_method(result: Result | ResultSummary) -> dict[str, Any]:
    return {
        "/precision/requested": result.precision.requested if result.precision else None,
        "/precision/observed": result.precision.observed if result.precision else None,
        "/method_version": result.method_version,
    }


def circumstances(spec: Spec, result: Result) -> dict[str, Any]:
    """The circumstances on which a figure depends besides the workload and its params."""
    return {
        **_precision_and_method(result),
        "/framework": spec.framework,
        "/replicas": spec.replicas,
        "/seed": spec.seed,
        **leaves("/measure", spec.measure.model_dump(mode="json")),
        **{f"/device/{name}": result.device.get(name) for name in _OF_THE_DEVICE},
        "/device/emulated": bool(result.device.get("emulated")),
        "/hardware_id": result.hardware_id,
        "/context_id": result.context_id,
        **leaves("/environment", result.environment, depth=2),
        **{f"/details/{name}": result.details.get(name) for name in _CHOSEN},
        "/training/data/kind": result.training.data.kind if result.training else None,
        "/runs/process_start": " and ".join(sorted({run.process_start for run in result.runs})),
    }


def leaves(root: str, values: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    """JSON pointers to values. Objects are flattened to `depth` levels; deeper objects stay whole."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        at = pointer(root, name)
        flattened |= leaves(at, value, depth - 1) if depth > 1 and isinstance(value, dict) else {at: value}
    return flattened


def differing(results: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The fields with more than one value. A result that lacks a field has the value None for it."""
    names: Iterable[str] = dict.fromkeys(name for values in results for name in values)
    by_field = {name: [values.get(name) for values in results] for name in names}
    return [
        Difference(field=name, values=values)
        for name, values in by_field.items()
        if any(value != values[0] for value in values[1:])
    ]


def differences(specs: Sequence[Spec], results: Sequence[Result]) -> list[Difference]:
    """Every field that differs and may explain a ratio."""
    sides = zip(specs, results, strict=True)
    return differing([{**_work(spec, result.params), **circumstances(spec, result)} for spec, result in sides])


def work_differences(specs: Sequence[Spec], results: Sequence[ResultSummary]) -> list[Difference]:
    """The differences that `changes_work` examines."""
    sides = zip(specs, results, strict=True)
    return differing([{**_work(spec, result.params), **_precision_and_method(result)} for spec, result in sides])


def spec_differences(specs: Sequence[Spec]) -> list[Difference]:
    """All differences in the requested work."""
    return differing([_work(spec, spec.params) for spec in specs])


def _work(spec: Spec, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"/workload": spec.workload, **leaves("/params", params)}


@dataclass(frozen=True)
class SharedMetrics:
    """Names of the metrics that all sides have. `totals` can't be compared, because the amounts of work differ."""

    comparable: list[str]
    totals: list[str]
    differing: Mapping[str, Sequence[Any]]  # field in which the work differs -> its value on each side

    def choose(self, requested: str | None, what: str) -> str:
        """The metric to compare: `requested`, or the first comparable metric. `what` describes it in a message.

        Raises NotComparable if no metric is comparable, and InvalidComparison if `requested` isn't comparable.
        """
        if not self.comparable:
            totals = f"{', '.join(self.totals)} would depend on the amount of work"
            why = totals if self.totals else "none has the same name, unit and direction everywhere"
            detail = f"there is no metric to compare: {why}; differing: {', '.join(self.differing)}"
            raise NotComparable(detail, self.differing)
        if requested is None:
            return self.comparable[0]
        choose = f"choose {' or '.join(self.comparable)}"
        if requested in self.totals:
            detail = f'"{requested}" depends on the amount of work, which differs; {choose}'
            raise InvalidComparison([FieldError("/metric", "other-work", detail)])
        if requested not in self.comparable:
            raise InvalidComparison([FieldError("/metric", "unknown-metric", f'"{requested}" isn\'t {what}; {choose}')])
        return requested


_Metrics = Sequence[Metric] | Sequence[MetricSpec]


def shared_metrics(
    of_each: Sequence[_Metrics], differing: Sequence[Difference], free: Callable[[str], Collection[str]]
) -> SharedMetrics:
    """The metrics that all sides have. `free(name)`: params that don't change the amount of a metric's work."""
    first, *others = ({metric.name: (metric.unit, metric.better) for metric in metrics} for metrics in of_each)
    shared = [name for name, form in first.items() if all(forms.get(name) == form for forms in others)]
    totals = [
        name
        for name in shared
        if _is_total(name, first[name][0]) and any(changes_amount(field, free(name)) for field in differing)
    ]
    fields = {field.field: field.values for field in differing if changes_work(field, ())}
    units = [[f"{metric.name} in {metric.unit}" for metric in metrics] for metrics in of_each]
    comparable = [name for name in shared if name not in totals]
    return SharedMetrics(comparable, totals, fields if shared else {**fields, "/metrics": units})


def _is_total(name: str, unit: str) -> bool:
    return unit in _TOTALS and not name.startswith(("time_per_", "time_to_"))


def changes_amount(difference: Difference, free: Collection[str]) -> bool:
    """Whether this is a difference in the amount of work: in the workload, or in params that aren't `free`."""
    root, _, param = difference.field[1:].partition("/")
    return root == "workload" or (root == "params" and param.split("/")[0] not in free)


def changes_work(difference: Difference, free: Collection[str]) -> bool:
    """Like `changes_amount`, but also true for a difference in the precision or in the method of measurement."""
    if difference.field == "/method_version":
        return True
    if difference.field.startswith("/precision/"):
        return len({str(value) for value in difference.values if value is not None}) > 1
    return changes_amount(difference, free)


def free_params(metric: str, workload: Workload | None) -> frozenset[str]:
    """The params that may differ between results of the same work, for this metric."""
    return workload.params.how | workload.untimed_for(metric) if workload else frozenset()
