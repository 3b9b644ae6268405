"""The workloads: every module of this folder is one, found by its file. Dropping a file in adds a workload."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType

from pydantic import ValidationError

from dyno.errors import FieldError, InvalidSpec, UnknownWorkload, WorkloadFault
from dyno.models.spec import FrameworkName, Spec
from dyno.validation_messages import validation_message
from dyno.workloads._fit import can_run
from dyno.workloads._replicas import check_replicas, check_units
from dyno.workloads.contract import Params, Workload

__all__ = [
    "can_run",
    "check_replicas",
    "check_units",
    "find",
    "normalise",
    "registry",
    "validate_params",
    "workload",
]

_NOT_WORKLOADS = frozenset({"contract", "estimates", "references", "training"})


@cache
def registry() -> Mapping[str, Workload]:
    """Every workload by name. Raises WorkloadFault with all faults of all files, so that a start fails loudly."""
    return find([Path(__file__).parent], __name__)


def workload(name: str) -> Workload:
    """The workload of that name; UnknownWorkload lists those there are."""
    try:
        return registry()[name]
    except KeyError:
        raise UnknownWorkload(f'no workload "{name}"; there is: {", ".join(registry())}') from None


def find(folders: Iterable[Path], package: str) -> Mapping[str, Workload]:
    """The workloads of the modules in `folders`, imported as parts of `package`. Raises WorkloadFault."""
    found: dict[str, Workload] = {}
    faults: list[str] = []
    for name in sorted(module.name for module in pkgutil.iter_modules(str(folder) for folder in folders)):
        if name in _NOT_WORKLOADS or name.startswith("_"):
            continue
        try:
            found[name] = _load(package, name)
        except WorkloadFault as fault:
            faults.append(fault.detail)
    if faults:
        raise WorkloadFault("; ".join(faults))
    return MappingProxyType(found)


def _load(package: str, name: str) -> Workload:
    try:
        module = importlib.import_module(f"{package}.{name}")
    except Exception as error:  # a plug-in may raise anything; all of it is reported
        raise WorkloadFault(f"{name}.py: import failed: {type(error).__name__}: {error}") from error
    return _checked(module, name)


def _checked(module: ModuleType, name: str) -> Workload:
    item = getattr(module, "WORKLOAD", None)
    if not isinstance(item, Workload):
        raise WorkloadFault(f"{name}.py: has no WORKLOAD of type Workload")
    complaints = list(_complaints(item, name))
    if complaints:
        raise WorkloadFault(f"{name}.py: {', '.join(complaints)}")
    return item


def _complaints(item: Workload, name: str) -> Iterable[str]:
    if item.name != name:
        yield f'is named "{item.name}", not as its file'
    if not (isinstance(item.params, type) and issubclass(item.params, Params)):
        yield "params is no subclass of Params"
    if not item.description:
        yield "has no description"
    names = [metric.name for metric in item.metrics]
    if not names:
        yield "has no metrics"
    for twice in sorted({metric for metric in names if names.count(metric) > 1}):
        yield f'has the metric "{twice}" twice'
    for part in ("flops", "estimate", "build", "lint", "executions"):
        if not callable(getattr(item, part)):
            yield f"{part} can't be called"


def validate_params(
    workload: Workload, params: Mapping[str, object], replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Params:
    """The workload's own params with defaults filled in, fit for so many replicas on that framework.

    Raises InvalidSpec with every wrong field: under /params, and /replicas.
    """
    try:
        defaults = workload.params.defaults_over(replicas)
        valid = workload.params.model_validate(defaults | dict(params))
        valid = workload.params.model_validate(defaults | valid.fitted(replicas) | dict(params))
    except ValidationError as invalid:
        errors = [
            FieldError(
                _pointer(params, error["loc"], missing=error["type"] == "missing"),
                error["type"],
                validation_message(error),
            )
            for error in invalid.errors(include_url=False)
        ]
        raise InvalidSpec(errors) from invalid
    own = [*valid.conflicts(), *valid.conflicts_on(framework, replicas)]
    conflicts = [FieldError(f"/params{found.pointer}", found.code, found.detail) for found in own]
    conflicts += check_replicas(workload, valid, replicas, framework)
    if conflicts:
        raise InvalidSpec(conflicts)
    return valid


def _is_in(step: int | str, value: object) -> bool:
    return step in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(step, int)


def _pointer(params: object, path: tuple[int | str, ...], *, missing: bool) -> str:
    """The JSON pointer (RFC 6901) of a field under /params. Steps that Pydantic adds for unions are left out."""
    parts, value = ["params"], params
    for step in path:
        if _is_in(step, value):
            value = value[step]  # type: ignore[index]
        elif not (missing and step == path[-1]):
            continue
        parts.append(str(step))
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def normalise(spec: Spec) -> Spec:
    """The spec with the workload's defaults written out. Raises UnknownWorkload or InvalidSpec."""
    params = validate_params(workload(spec.workload), spec.params, spec.replicas, spec.framework)
    return spec.model_copy(update={"params": params.model_dump(mode="json")})
