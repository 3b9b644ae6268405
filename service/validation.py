"""From a request body to checked specs: read it, parse it strictly, name every wrong field at once.

Bodies are bounded in bytes and time, and are JSON in UTF-8. The parser takes what the standard allows and refuses
what two readers could understand differently: repeated keys, numbers that aren't finite, lone surrogates. A body with
the specs of a comparison becomes one spec whose two variants run in turns.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from dyno.errors import FieldError, InvalidComparison, InvalidSpec
from dyno.measure.compare_results import check_specs
from dyno.measure.result_metrics import COLD
from dyno.models.comparison import CompareSpecs
from dyno.models.spec import InterleavedSpec, Processes, Spec
from dyno.settings import Settings
from dyno.validation_messages import validation_message
from dyno.workloads import normalise, validate_params
from dyno.workloads.contract import Params, Workload
from service.problems import BodyTooLarge, BodyTooSlow, MalformedBody, UnsupportedMediaType, pointer


async def read_body(request: Request, settings: Settings) -> bytes:
    """The whole body. Raises UnsupportedMediaType, BodyTooLarge (without reading on) or BodyTooSlow."""
    max_bytes, within_s = settings.max_body_bytes, settings.body_timeout_s
    _check_content_type(request)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > max_bytes:
        raise BodyTooLarge(f"the body has {declared[:20]} bytes, at most {max_bytes} are read")
    try:
        async with asyncio.timeout(within_s):
            return await _collect(request, max_bytes)
    except TimeoutError as error:
        raise BodyTooSlow(f"the body was not complete after {within_s:g} s") from error


async def _collect(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise BodyTooLarge(f"the body has more than {max_bytes} bytes")
        return bytes(body)
    finally:
        body.clear()  # an error refers to what was read by its traceback, until garbage is looked for


def _check_content_type(request: Request) -> None:
    """Only application/json: a form or text body from a foreign web page would come without a CORS preflight."""
    media_type, *parameters = (part.strip().lower() for part in _header_values(request, "content-type").split(";"))
    if media_type != "application/json":
        given = f'"{media_type}"' if media_type else "nothing"
        raise UnsupportedMediaType(f'Content-Type says {given}; send "application/json"')
    charsets = [value.strip('"') for name, _, value in (p.partition("=") for p in parameters) if name == "charset"]
    if any(charset not in ("utf-8", "utf8") for charset in charsets):
        raise UnsupportedMediaType(f'the charset "{charsets[0]}" is not read; JSON is UTF-8')
    encoding = (_header_values(request, "content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f'the Content-Encoding "{encoding}" is not read; send the body as it is')


def _header_values(request: Request, name: str) -> str:
    """All lines of a header: where it is to say one thing, two of them say nothing that is read."""
    return ", ".join(request.headers.getlist(name))


MAX_DEPTH = 20
MAX_PARTS = 2000  # by far more than any spec has; to look at the 30,000 that 64 KiB can hold keeps all others waiting
_EXACT = 2**53  # beyond, float64 doesn't hold every integer

# Strings are consumed whole, so that brackets inside them don't count. The closing quote is optional and the repeat
# possessive: every match succeeds, which keeps the scan linear on a body full of quotes.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)


class _Object(dict[str, Any]):
    """A JSON object that remembers the keys it was given more than once."""

    repeated: tuple[str, ...] = ()


def parse_json(body: bytes) -> tuple[dict[str, Any], list[FieldError]]:
    """The object in `body`, and what is wrong with single values of it: repeated keys, numbers that aren't finite,
    lone surrogates. Raises MalformedBody where there is no object to speak of."""
    text = _decode(body)
    _check_size(text)
    try:
        document = json.loads(text, object_pairs_hook=_json_object, parse_float=_json_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise MalformedBody(f"the body is not JSON: {error.msg} at {where}") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise MalformedBody("the body holds a number with too many digits") from error
    if not isinstance(document, dict):
        raise MalformedBody("the body must be a JSON object")
    return document, list(_json_errors(document, ""))


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start} can't be read") from error


def _check_size(text: str) -> None:
    """How much there is, by what strings don't hold. Looked at no further than to the first part that is too much."""
    parts = deepest = depth = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        parts += character in "[{,"
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
        if parts > MAX_PARTS:
            raise MalformedBody(f"the body has more than {MAX_PARTS} brackets, braces and commas")
    if deepest > MAX_DEPTH:
        raise MalformedBody(f"the body is nested more than {MAX_DEPTH} deep")


def _json_number(text: str) -> int | float:
    """1.0 and 1e3 are integers to JSON Schema, and to a caller whose language has one kind of number."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number


def _json_object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        given = Counter(key for key, _ in pairs)
        found.repeated = tuple(key for key, times in given.items() if times > 1)
    return found


def _json_errors(value: Any, at: str) -> Iterator[FieldError]:
    if isinstance(value, _Object):
        for key in value.repeated:
            yield FieldError(pointer(at, key), "duplicate-key", "the key is given more than once")
        for key, item in value.items():
            if not _encodable(key):
                yield FieldError(pointer(at, key), "lone-surrogate", "the key holds half of a surrogate pair")
            yield from _json_errors(item, pointer(at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _json_errors(item, pointer(at, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield FieldError(at, "not-finite", "NaN, Infinity and numbers beyond float64 are refused")
    elif isinstance(value, str) and not _encodable(value):
        yield FieldError(at, "lone-surrogate", "the text holds half of a surrogate pair")


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_Asked = TypeVar("_Asked", bound=BaseModel)


@dataclass(frozen=True)
class JobRequest:
    """What was asked for, checked: the spec with all defaults written out, and what it refers to."""

    spec: Spec
    workload: Workload
    params: Params
    body_sha256: str  # of what was sent, in one canonical form: spaces and the order of keys make no difference


def validate_job(
    document: Mapping[str, Any], faults: Iterable[FieldError], workloads: Mapping[str, Workload]
) -> JobRequest:
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
        raise InvalidSpec(one_error_per_field(errors))
    return JobRequest(normalise(spec), workload, params, body_digest(document))


def body_digest(document: Mapping[str, Any]) -> str:
    """For `Request.body_sha256`."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _envelope(document: Mapping[str, Any], errors: list[FieldError]) -> Spec | None:
    # Strict: "5" and true are no integers, in a benchmark least of all.
    try:
        return Spec.model_validate(document, strict=True)
    except ValidationError as invalid:
        errors += field_errors(document, invalid)
        return None


def validate_model(
    model: type[_Asked], document: Mapping[str, Any], faults: Sequence[FieldError], refusal: type[InvalidSpec]
) -> _Asked:
    """As the model has it. Raises `refusal` with the `faults` found while parsing and the model's together."""
    try:
        asked = model.model_validate(document, strict=True)
    except ValidationError as invalid:
        raise refusal(one_error_per_field([*faults, *field_errors(document, invalid)])) from invalid
    if faults:
        raise refusal([*faults])
    return asked


def field_errors(document: Mapping[str, Any], invalid: ValidationError) -> list[FieldError]:
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


def one_error_per_field(errors: list[FieldError]) -> list[FieldError]:
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


_JOB_FIELDS = ("device", "timeout_s", "priority", "labels", "expires_in_s", "queue_if_absent", "webhook")


@dataclass(frozen=True)
class ComparisonRequest:
    """Two checked requests that may be compared, and the spec of the job that runs both."""

    first: JobRequest
    second: JobRequest
    spec: InterleavedSpec
    body_sha256: str

    @property
    def each(self) -> tuple[JobRequest, JobRequest]:
        return self.first, self.second


def validate_comparison(
    document: Mapping[str, Any], faults: Iterable[FieldError], workloads: Mapping[str, Workload]
) -> ComparisonRequest:
    """Raises InvalidComparison with every wrong field of either spec, and NotComparable."""
    errors, asked = [*faults], None
    try:
        asked = CompareSpecs.model_validate(document, strict=True)
    except ValidationError as invalid:
        errors += field_errors(document, invalid)
    requests = _validate_both(document.get("specs"), workloads, errors)
    if errors or asked is None:
        raise InvalidComparison(one_error_per_field(errors))
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
    return ComparisonRequest(first, second, joint, body_digest(document))


def _validate_both(given: object, workloads: Mapping[str, Workload], errors: list[FieldError]) -> list[JobRequest]:
    """Both specs, or fewer where something is wrong, which is added to `errors`."""
    if not (isinstance(given, list) and len(given) == 2 and all(isinstance(each, dict) for each in given)):
        return []  # the model has named it
    first, second = given
    inherited = {name: first[name] for name in _JOB_FIELDS if name in first and name not in second}
    found: list[JobRequest] = []
    for place, document in enumerate((first, {**inherited, **second})):
        try:
            found.append(validate_job(document, (), workloads))
        except InvalidSpec as invalid:
            said = {f"/{name}" for name in inherited} if place else set()
            errors += errors_in_spec(place, [e for e in invalid.errors if _field(e.pointer) not in said])
        if "processes" in (document.get("measure") if isinstance(document.get("measure"), dict) else {}):
            detail = "each has as many runs as there are `pairs`: leave it out"
            errors.append(FieldError(f"/specs/{place}/measure/processes", "pairs-say-it", detail))
    if len(found) == 2:
        errors += _job_field_errors(*found)
    return found


def _field(pointer: str) -> str:
    """The first step of it."""
    return "/".join(pointer.split("/")[:2])


def _job_field_errors(first: JobRequest, second: JobRequest) -> list[FieldError]:
    detail = "both run as one job on one device: the same as of the first, or left out"
    return [
        FieldError(f"/specs/1/{name}", "not-the-same", detail)
        for name in _JOB_FIELDS
        if getattr(first.spec, name) != getattr(second.spec, name)
    ]


def _with_runs(request: JobRequest, pairs: int) -> JobRequest:
    measure = request.spec.measure.model_copy(update={"processes": Processes(min=pairs, max=pairs)})
    return replace(request, spec=request.spec.model_copy(update={"measure": measure}))


def _metric(asked: str | None, first: JobRequest, second: JobRequest) -> str:
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


def _why_not(asked: str, sampled: bool, request: JobRequest) -> str:
    if sampled:
        return "is of an amount of work that the params decide, in which the specs differ"
    names = [metric.name for metric in request.workload.metrics_for(request.params)]
    return "isn't sampled" if asked.removeprefix(COLD) in names else "is no metric of these specs"


def errors_in_spec(place: int, errors: Iterable[FieldError]) -> list[FieldError]:
    """What is wrong with the spec at `place`, pointed at there."""
    return [FieldError(f"/specs/{place}{each.pointer}", each.code, each.detail) for each in errors]
