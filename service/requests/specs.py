"""From a JSON object to a spec that its workload understands, with every wrong field named at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dyno.errors import FieldError, InvalidSpec
from dyno.models.spec import Spec
from dyno.validation_messages import validation_message
from dyno.workloads import normalise, validate_params
from dyno.workloads.contract import Params, Workload
from service.errors import pointer

_Asked = TypeVar("_Asked", bound=BaseModel)


@dataclass(frozen=True)
class Request:
    """What was asked for, checked: the spec with all defaults written out, and what it refers to."""

    spec: Spec
    workload: Workload
    params: Params
    body_sha256: str  # of what was sent, in one canonical form: spaces and the order of keys make no difference


def read(document: Mapping[str, Any], faults: Iterable[FieldError], workloads: Mapping[str, Workload]) -> Request:
    """Raises InvalidSpec with the `faults` found while parsing, the envelope's errors and the workload's together."""
    workload = workloads.get(name) if isinstance(name := document.get("workload"), str) else None
    errors = [*faults]
    spec = _envelope(document, errors)
    params = _params(document, workload, spec, errors)
    if isinstance(name, str) and name and workload is None:
        errors.append(FieldError("/workload", "unknown-workload", f'no workload "{_shown(name)}"; {_known(workloads)}'))
    if workload is not None and spec is not None and spec.framework not in workload.frameworks:
        able = ", ".join(workload.frameworks)
        errors.append(FieldError("/framework", "framework-unsupported", f"{workload.name} runs on {able}"))
    if errors or spec is None or workload is None or params is None:
        raise InvalidSpec(first_of_each(errors))
    return Request(normalise(spec), workload, params, digest(document))


def digest(document: Mapping[str, Any]) -> str:
    """For `Request.body_sha256`."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _envelope(document: Mapping[str, Any], errors: list[FieldError]) -> Spec | None:
    # Strict: "5" and true are no integers, in a benchmark least of all.
    try:
        return Spec.model_validate(document, strict=True)
    except ValidationError as invalid:
        errors += faults_of(document, invalid)
        return None


def checked(
    model: type[_Asked], document: Mapping[str, Any], faults: Sequence[FieldError], refusal: type[InvalidSpec]
) -> _Asked:
    """As the model has it. Raises `refusal` with the `faults` found while parsing and the model's together."""
    try:
        asked = model.model_validate(document, strict=True)
    except ValidationError as invalid:
        raise refusal(first_of_each([*faults, *faults_of(document, invalid)])) from invalid
    if faults:
        raise refusal([*faults])
    return asked


def faults_of(document: Mapping[str, Any], invalid: ValidationError) -> list[FieldError]:
    """Every wrong field that a model found in the document, with the pointer to it."""
    return [
        FieldError(
            _locate(document, found["loc"], missing=found["type"] == "missing"),
            _code(found["type"]),
            validation_message(found),
        )
        for found in invalid.errors(include_url=False)
    ]


def _params(
    document: Mapping[str, Any], workload: Workload | None, spec: Spec | None, errors: list[FieldError]
) -> Params | None:
    params = document.get("params", {})
    if workload is None or not isinstance(params, dict):
        return None  # the envelope's errors name it
    try:
        on = (spec.replicas, spec.framework) if spec is not None else ()
        return validate_params(workload, params, *on)
    except InvalidSpec as invalid:
        errors += (FieldError(e.pointer, _code(e.code), e.detail) for e in invalid.errors)
        return None


def _locate(document: Any, path: tuple[int | str, ...], *, missing: bool) -> str:
    """The pointer to what `path` means in the document. Pydantic adds steps of its own ("list", "[key]"): left out."""
    at, value = "", document
    for step in path:
        inside = (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int))
        if inside:
            at, value = pointer(at, step), value[step]
        elif missing and step == path[-1]:
            return pointer(at, step)
    return at


def first_of_each(errors: list[FieldError]) -> list[FieldError]:
    """One error per field, the first found: what the parser says of a NaN, the models needn't repeat."""
    found: dict[str, FieldError] = {}
    for error in errors:
        found.setdefault(error.pointer, error)
    return list(found.values())


def _code(code: str) -> str:
    return code.replace("_", "-")


def _known(workloads: Mapping[str, Workload]) -> str:
    return f"there is: {', '.join(workloads)}"


def _shown(name: str) -> str:
    return name[:64].encode("utf-8", "backslashreplace").decode("utf-8")
