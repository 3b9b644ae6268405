"""Find the workloads, and validate the params of a spec.

Every module in `dyno.bench.workloads` and in DYNO_WORKLOADS_DIR is a workload, named after its file. The registry skips
modules whose name starts with an underscore. To add a workload, add a file. A broken file prevents the start.
"""

import importlib
import pkgutil
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from pydantic import ValidationError

from dyno import errors, validation_messages
from dyno.bench.contract import Params, ResolvedSpec, Workload
from dyno.models.spec import FrameworkName, Spec
from dyno.settings import load_settings


def check_replicas(
    workload: Workload, params: Params, replicas: int, framework: FrameworkName = "tensorflow"
) -> list[errors.FieldError]:
    """Errors in `replicas` (/replicas), or in a `batch_size` that `replicas` doesn't divide (/params/batch_size)."""
    if replicas < workload.least_replicas:
        detail = f"{workload.name} needs at least {workload.least_replicas} replicas"
        return [errors.FieldError("/replicas", "too-few-replicas", detail)]
    if replicas == 1:
        return []
    if not (workload.replicable and params.replicable):
        what = f"{workload.name} with these params" if workload.replicable else workload.name
        return [errors.FieldError("/replicas", "not-replicable", f"{what} runs on one device: replicas must be 1")]
    if framework == "torch":
        return [errors.FieldError("/replicas", "not-replicable", "Keras trains on one device under PyTorch")]
    batch_size = getattr(params, "batch_size", None)
    if not isinstance(batch_size, int) or batch_size % replicas == 0:
        return []
    nearest = ", ".join(map(str, _nearest(type(params), batch_size, replicas)))
    detail = f"{batch_size} is not divisible by {replicas} replicas; nearest valid: {nearest or 'none'}"
    return [errors.FieldError("/params/batch_size", "not-divisible", detail)]


def _nearest(params: type[Params], batch_size: int, replicas: int) -> list[int]:
    """The multiples of `replicas` just below and above `batch_size` that the field allows."""
    below = batch_size - batch_size % replicas
    allowed: list[Any] = params.model_fields["batch_size"].metadata
    largest = min((limit.le for limit in allowed if hasattr(limit, "le")), default=None)
    return [size for size in (below, below + replicas) if size > 0 and (largest is None or size <= largest)]


__all__ = [
    "check_replicas",
    "fill_defaults",
    "find",
    "registry",
    "resolve",
    "resolve_stored",
    "validate_params",
    "with_defaults_of",
    "workload",
]

_PACKAGE = "dyno_workloads"  # the package of the files in DYNO_WORKLOADS_DIR


@cache
def bundled() -> Mapping[str, Workload]:
    """Dyno's own workloads by name."""
    return find([Path(__file__).parent / "workloads"], "dyno.bench.workloads")


@cache
def registry() -> Mapping[str, Workload]:
    """Every workload by name. Raises WorkloadFault, which lists all faults of all files and prevents the start."""
    dynos_own = bundled()
    if (folder := load_settings().workloads_dir) is None:
        return dynos_own
    return MappingProxyType(dict(sorted({**dynos_own, **_found_in(folder, dynos_own)}.items())))


def _found_in(folder: Path, taken: Mapping[str, Workload]) -> Mapping[str, Workload]:
    """The workloads of DYNO_WORKLOADS_DIR. They are modules of a separate package, so they can't hide Dyno's own."""
    if not folder.is_dir():
        raise errors.WorkloadFault(f"DYNO_WORKLOADS_DIR: {folder} is not a folder")
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[_PACKAGE] = package
    return find([folder], _PACKAGE, taken=taken)


def workload(name: str, workloads: Mapping[str, Workload] | None = None) -> Workload:
    """The workload called `name`, in `workloads` if given. Raises UnknownWorkload, which lists the known names."""
    by_name = registry() if workloads is None else workloads
    try:
        return by_name[name]
    except KeyError:
        raise errors.UnknownWorkload(f'unknown workload "{name}"; available: {", ".join(by_name)}') from None


def find(folders: Iterable[Path], package: str, *, taken: Collection[str] = ()) -> Mapping[str, Workload]:
    """The workloads in `folders`, imported as modules of `package`. Raises WorkloadFault, also for names in `taken`."""
    by_name: dict[str, Workload] = {}
    faults: list[str] = []
    for name in sorted(module.name for module in pkgutil.iter_modules(str(folder) for folder in folders)):
        if name.startswith("_"):
            continue
        if name in taken:
            faults.append(f"{name}.py: Dyno has a workload of this name; rename the file")
            continue
        try:
            by_name[name] = _load(package, name)
        except errors.WorkloadFault as fault:
            faults.append(fault.detail)
    if faults:
        raise errors.WorkloadFault("; ".join(faults))
    return MappingProxyType(by_name)


def _load(package: str, name: str) -> Workload:
    try:
        module = importlib.import_module(f"{package}.{name}")
    except Exception as error:  # a plug-in may raise anything
        raise errors.WorkloadFault(f"{name}.py: import failed: {type(error).__name__}: {error}") from error
    return _checked(module, name)


def _checked(module: ModuleType, name: str) -> Workload:
    item = getattr(module, "WORKLOAD", None)
    if not isinstance(item, Workload):
        raise errors.WorkloadFault(f"{name}.py: define WORKLOAD, a Workload")
    complaints = list(_complaints(item, name))
    if complaints:
        raise errors.WorkloadFault(f"{name}.py: {', '.join(complaints)}")
    return item


def _complaints(item: Workload, name: str) -> Iterable[str]:
    if item.name != name:
        yield f'the workload is named "{item.name}", unlike its file'
    if not (isinstance(item.params, type) and issubclass(item.params, Params)):
        yield "params must be a subclass of Params"
    if not item.description:
        yield "the description is missing"
    names = [metric.name for metric in item.metrics]
    if not names:
        yield "metrics are missing"
    for twice in sorted({metric for metric in names if names.count(metric) > 1}):
        yield f'duplicate metric "{twice}"'
    for attribute in ("flops", "estimate", "build", "lint", "executions"):
        if not callable(getattr(item, attribute)):
            yield f"{attribute} must be callable"


def validate_params(
    workload: Workload, params: Mapping[str, object], replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Params:
    """The workload's own params with defaults filled in, checked for `replicas` on `framework`.

    Raises InvalidSpec, which lists every invalid field under /params and /replicas.
    """
    try:
        defaults = workload.params.defaults_over(replicas)
        valid = workload.params.model_validate(defaults | dict(params))
        if fitted := valid.fitted(replicas):
            valid = workload.params.model_validate(defaults | fitted | dict(params))
    except ValidationError as invalid:
        wrong = validation_messages.field_errors(workload.params, params, invalid, "/params")
        raise errors.InvalidSpec(wrong) from invalid
    of_params = [*valid.conflicts(), *valid.conflicts_on(framework, replicas)]
    conflicts = [errors.FieldError(f"/params{error.pointer}", error.code, error.detail) for error in of_params]
    conflicts += check_replicas(workload, valid, replicas, framework)
    if conflicts:
        raise errors.InvalidSpec(conflicts)
    return valid


def resolve(spec: Spec, workloads: Mapping[str, Workload] | None = None) -> ResolvedSpec:
    """Look up the workload, validate the params and fill in the defaults. Raises UnknownWorkload or InvalidSpec."""
    named = workload(spec.workload, workloads)
    spec = with_defaults_of(named, spec)
    params = validate_params(named, spec.params, spec.replicas, spec.framework)
    return ResolvedSpec(fill_defaults(spec, params), named, params)


def resolve_stored(spec: Spec, workloads: Mapping[str, Workload] | None = None) -> ResolvedSpec:
    """Like `resolve`, for a spec from the store. A newer version may have stored nulls for params that it added."""
    known = workload(spec.workload, workloads).params.model_fields
    params = {name: value for name, value in spec.params.items() if name in known or value is not None}
    return resolve(spec.model_copy(update={"params": params}), workloads)


def with_defaults_of(workload: Workload, spec: Spec) -> Spec:
    """`spec` with the workload's first framework and least number of replicas, unless it names others."""
    own = {"framework": workload.frameworks[0], "replicas": workload.least_replicas}
    absent = {name: value for name, value in own.items() if name not in spec.model_fields_set}
    return spec.model_copy(update=absent) if any(getattr(spec, name) != absent[name] for name in absent) else spec


def fill_defaults(spec: Spec, params: Params) -> Spec:
    """The spec with all its params, defaults included."""
    return spec.model_copy(update={"params": params.model_dump(mode="json")})
