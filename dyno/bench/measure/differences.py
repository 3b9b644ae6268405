"""Find what differs between results: params and circumstances, by JSON pointer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dyno.models.comparison import Difference
from dyno.models.result import Result, ResultSummary
from dyno.models.spec import Spec
from dyno.validation_messages import pointer

_OF_THE_DEVICE = ("id", "host", "kind", "model", "cores", "memory_bytes", "isa")
_CHOSEN = ("jit_compile", "steps_per_execution", "engine")  # choices of the run, in a result's details


def precision_and_method(result: Result | ResultSummary) -> dict[str, Any]:
    return {
        "/precision/requested": result.precision.requested if result.precision else None,
        "/precision/observed": result.precision.observed if result.precision else None,
        "/method_version": result.method_version,
    }


def circumstances(spec: Spec, result: Result) -> dict[str, Any]:
    """The circumstances on which a figure depends besides the workload and its params."""
    return {
        **precision_and_method(result),
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
