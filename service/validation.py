"""Turn a request body into validated specs: read it, parse it strictly, and report every wrong field at once.

Bodies are JSON in UTF-8, limited in bytes and time. The parser accepts standard JSON, and refuses JSON that two parsers
could read differently: repeated keys, non-finite numbers, lone surrogates. A body with the two specs of a comparison
becomes one spec whose two variants run in turns.
"""

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

from dyno.bench.contract import Params, ResolvedSpec, Workload
from dyno.bench.measure import differences
from dyno.bench.registry import fill_defaults, validate_params, with_defaults_of
from dyno.errors import FieldError, InvalidComparison, InvalidSpec
from dyno.formatting import did_you_mean
from dyno.models.comparison import CompareSpecs
from dyno.models.spec import InterleavedSpec, Processes, Spec
from dyno.settings import Settings
from dyno.validation_messages import field_errors, pointer
from service.problems import BodyTooLarge, BodyTooSlow, MalformedBody, UnsupportedMediaType

JSON = "application/json"


async def read_body(
    request: Request, settings: Settings, media_type: str = JSON, max_bytes: int | None = None
) -> bytes:
    """The whole body, which must be of `media_type`. `max_bytes` replaces the limit for JSON.

    Raises UnsupportedMediaType, BodyTooLarge (without reading on) or BodyTooSlow.
    """
    max_bytes, within_s = max_bytes or settings.max_body_bytes, settings.body_timeout_s
    _check_content_type(request, media_type)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > max_bytes:
        raise BodyTooLarge(f"the body has {declared[:20]} bytes; the limit is {max_bytes}")
    try:
        async with asyncio.timeout(within_s):
            return await _collect(request, max_bytes)
    except TimeoutError as error:
        raise BodyTooSlow(f"the body didn't arrive within {within_s:g} s") from error


async def read_json(request: Request, settings: Settings) -> tuple[dict[str, Any], list[FieldError]]:
    """Read the request's body and parse it. Returns what `parse_json` returns; raises what both functions raise."""
    return parse_json(await read_body(request, settings))


async def _collect(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise BodyTooLarge(f"the body exceeds the limit of {max_bytes} bytes")
        return bytes(body)
    finally:
        body.clear()  # the traceback of an error would keep the bytes in memory until garbage collection


def _check_content_type(request: Request, expected: str) -> None:
    """Routes of the API accept only JSON: browsers send forms and text of foreign pages without a CORS preflight."""
    sent = [value for name, value in request.scope["headers"] if name in (b"content-type", b"content-encoding")]
    if sent == [expected.encode()]:
        return
    media_type, *parameters = (part.strip().lower() for part in _header_values(request, "content-type").split(";"))
    if media_type != expected:
        given = f'"{media_type}"' if media_type else "missing"
        raise UnsupportedMediaType(f'Content-Type is {given}; send "{expected}"')
    charsets = [value.strip('"') for name, _, value in (p.partition("=") for p in parameters) if name == "charset"]
    if any(charset not in ("utf-8", "utf8") for charset in charsets):
        raise UnsupportedMediaType(f'the charset "{charsets[0]}" is not supported; send UTF-8')
    encoding = (_header_values(request, "content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f'the Content-Encoding "{encoding}" is not supported; send the body unencoded')


def _header_values(request: Request, name: str) -> str:
    """All lines of a header as one value, so that a repeated single-value header is refused."""
    return ", ".join(request.headers.getlist(name))


MAX_DEPTH = 20
MAX_PARTS = 2000  # far more than any spec has; checking the 30,000 that fit into 64 KiB would delay all other requests
_EXACT = 2**53  # float64 represents every integer up to this one exactly

# A match consumes a whole string, so that brackets inside strings aren't counted. The closing quote is optional and
# the repetition is possessive. So every match succeeds, and the scan stays linear on a body full of quotes.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)


class _Object(dict[str, Any]):
    """A JSON object that remembers its repeated keys."""

    repeated: tuple[str, ...] = ()


class _Values:
    """Hooks that `json.loads` calls for objects and numbers. `odd`: whether a value may be invalid."""

    def __init__(self, text: str) -> None:
        self.odd = "\\u" in text  # perhaps an escaped surrogate

    def object(self, pairs: list[tuple[str, Any]]) -> _Object:
        members = _Object(pairs)
        if len(members) < len(pairs):
            self.odd = True
            given = Counter(key for key, _ in pairs)
            members.repeated = tuple(key for key, times in given.items() if times > 1)
        return members

    def number(self, text: str) -> int | float:
        """Return 1.0 and 1e3 as integers, as JSON Schema and languages with a single number type treat them."""
        number = float(text)
        self.odd |= not math.isfinite(number)
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number


def parse_json(body: bytes, max_parts: float = MAX_PARTS) -> tuple[dict[str, Any], list[FieldError]]:
    """The object in `body`, and errors of single values: repeated keys, non-finite numbers, lone surrogates.

    Raises MalformedBody if `body` isn't a JSON object, or exceeds the limits on size and depth.
    """
    text = _decode(body)
    _check_size(text, max_parts)
    values = _Values(text)
    hooks: Any = {"parse_float": values.number, "parse_constant": values.number}
    try:
        document = json.loads(text, object_pairs_hook=values.object, **hooks)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise MalformedBody(f"the body is not JSON: {error.msg} at {where}") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise MalformedBody("the body has a number with too many digits") from error
    if not isinstance(document, dict):
        raise MalformedBody("the body must be a JSON object")
    return document, list(_json_errors(document, "")) if values.odd else []


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start} can't be decoded") from error


def _check_size(text: str, max_parts: float) -> None:
    """Check the number of parts and the depth, ignoring the contents of strings; stop where they exceed the limit."""
    opened = text.count("[") + text.count("{")
    if opened <= MAX_DEPTH and opened + text.count(",") <= max_parts:
        return
    parts = deepest = depth = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        parts += character in "[{,"
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
        if parts > max_parts:
            raise MalformedBody(f"the body has more than {max_parts} brackets, braces and commas")
    if deepest > MAX_DEPTH:
        raise MalformedBody(f"the body is nested more than {MAX_DEPTH} deep")


def _json_errors(value: Any, at: str) -> Iterator[FieldError]:
    if isinstance(value, _Object):
        for key in value.repeated:
            yield FieldError(pointer(at, key), "duplicate-key", "the key is repeated; send it once")
        for key, item in value.items():
            if not _encodable(key):
                yield FieldError(pointer(at, key), "lone-surrogate", "the key contains half of a surrogate pair")
            yield from _json_errors(item, pointer(at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _json_errors(item, pointer(at, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield FieldError(at, "not-finite", "send a finite number: NaN, Infinity and numbers beyond float64 are invalid")
    elif isinstance(value, str) and not _encodable(value):
        yield FieldError(at, "lone-surrogate", "the text contains half of a surrogate pair")


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_Asked = TypeVar("_Asked", bound=BaseModel)
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # faster than an encoder for each call


@dataclass(frozen=True)
class JobRequest(ResolvedSpec):
    """A validated request."""

    body_sha256: str  # of the body in canonical form: spaces and the order of keys don't matter


def validate_job(
    document: Mapping[str, Any], faults: Iterable[FieldError], workloads: Mapping[str, Workload]
) -> JobRequest:
    """Raises InvalidSpec with the `faults` from parsing and the errors of the envelope and of the workload's params."""
    workload = workloads.get(name) if isinstance(name := document.get("workload"), str) else None
    errors = [*faults]
    spec = _envelope(document, errors)
    if spec is not None and workload is not None:
        spec = with_defaults_of(workload, spec)
    params = _params(document, workload, spec, errors)
    if isinstance(name, str) and name and workload is None:
        detail = f'no workload "{_shown(name)}"{did_you_mean(name[:64], workloads)}; {_known(workloads)}'
        errors.append(FieldError("/workload", "unknown-workload", detail))
    if workload is not None and spec is not None and spec.framework not in workload.frameworks:
        able = ", ".join(workload.frameworks)
        errors.append(FieldError("/framework", "framework-unsupported", f"{workload.name} supports only {able}"))
    if errors or spec is None or workload is None or params is None:
        raise InvalidSpec(one_error_per_field(errors))
    return JobRequest(fill_defaults(spec, params), workload, params, body_digest(document))


def body_digest(document: Mapping[str, Any]) -> str:
    """The value of `JobRequest.body_sha256`."""
    return hashlib.sha256(_canonical(document).encode()).hexdigest()


def _envelope(document: Mapping[str, Any], errors: list[FieldError]) -> Spec | None:
    # Strict: "5" and true are not integers.
    try:
        return Spec.model_validate(document, strict=True)
    except ValidationError as invalid:
        errors += field_errors(Spec, document, invalid)
        return None


def validate_model(
    model: type[_Asked], document: Mapping[str, Any], faults: Sequence[FieldError], refusal: type[InvalidSpec]
) -> _Asked:
    """The document as a `model`. Raises `refusal` with the `faults` from parsing and the model's errors."""
    try:
        validated = model.model_validate(document, strict=True)
    except ValidationError as invalid:
        raise refusal(one_error_per_field([*faults, *field_errors(model, document, invalid)])) from invalid
    if faults:
        raise refusal([*faults])
    return validated


def _params(
    document: Mapping[str, Any], workload: Workload | None, spec: Spec | None, errors: list[FieldError]
) -> Params | None:
    params = document.get("params", {})
    if workload is None or not isinstance(params, dict):
        return None  # the errors of the envelope report it
    try:
        on = (spec.replicas, spec.framework) if spec is not None else ()
        return validate_params(workload, params, *on)
    except InvalidSpec as invalid:
        errors += invalid.errors
        return None


def one_error_per_field(errors: list[FieldError]) -> list[FieldError]:
    """The first error of each field. For a NaN, for example, it is the parser's error, and not the model's."""
    first_errors: dict[str, FieldError] = {}
    for error in errors:
        first_errors.setdefault(error.pointer, error)
    return list(first_errors.values())


def _known(workloads: Mapping[str, Workload]) -> str:
    return f"workloads: {', '.join(workloads)}"


def _shown(name: str) -> str:
    return name[:64].encode("utf-8", "backslashreplace").decode("utf-8")


_ACROSS_DEVICES = ". To compare devices, sweep over them with one of them as the base"
_JOB_FIELDS = ("device", "timeout_s", "priority", "labels", "expires_in_s", "queue_if_absent", "webhook")


@dataclass(frozen=True)
class ComparisonRequest:
    """Two validated requests that can be compared, and the spec of the job that runs both."""

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
    """Raises InvalidComparison with every wrong field of either spec, and NotComparable without a shared metric."""
    errors, comparison = [*faults], None
    try:
        comparison = CompareSpecs.model_validate(document, strict=True)
    except ValidationError as invalid:
        errors += field_errors(CompareSpecs, document, invalid)
    requests = _validate_both(document.get("specs"), workloads, errors)
    if errors or comparison is None:
        raise InvalidComparison(one_error_per_field(errors))
    first, second = (_with_runs(request, comparison.pairs) for request in requests)
    joint = InterleavedSpec(
        **dict(first.spec),
        against=second.spec,
        pairs=comparison.pairs,
        control=comparison.control,
        metric=_metric(comparison.metric, first, second),
        margin=comparison.margin,
        confidence=comparison.confidence,
    )
    return ComparisonRequest(first, second, joint, body_digest(document))


def _validate_both(given: object, workloads: Mapping[str, Workload], errors: list[FieldError]) -> list[JobRequest]:
    """Both specs, without those that have errors; the errors are added to `errors`."""
    if not (isinstance(given, list) and len(given) == 2 and all(isinstance(spec, dict) for spec in given)):
        return []  # the model's errors report it
    first, second = given
    inherited = {name: first[name] for name in _JOB_FIELDS if name in first and name not in second}
    validated: list[JobRequest] = []
    for index, document in enumerate((first, {**inherited, **second})):
        try:
            validated.append(validate_job(document, (), workloads))
        except InvalidSpec as invalid:
            reported = {f"/{name}" for name in inherited} if index else set()
            errors += errors_in_spec(index, [e for e in invalid.errors if _field(e.pointer) not in reported])
        if "processes" in (document.get("measure") if isinstance(document.get("measure"), dict) else {}):
            detail = "leave it out: `pairs` sets the number of runs of each spec"
            errors.append(FieldError(f"/specs/{index}/measure/processes", "pairs-say-it", detail))
        if document.get("baseline") is not None:
            detail = "leave it out: a comparison holds the second spec against the first"
            errors.append(FieldError(f"/specs/{index}/baseline", "comparison-judges", detail))
    if len(validated) == 2:
        errors += _job_field_errors(*validated)
    return validated


def _field(pointer: str) -> str:
    """The first step of `pointer`."""
    return "/".join(pointer.split("/")[:2])


def _job_field_errors(first: JobRequest, second: JobRequest) -> list[FieldError]:
    detail = "both specs run as one job on one device: leave it out, or use the value of the first spec"
    return [
        FieldError(f"/specs/1/{name}", "not-the-same", detail + _ACROSS_DEVICES * (name == "device"))
        for name in _JOB_FIELDS
        if getattr(first.spec, name) != getattr(second.spec, name)
    ]


def _with_runs(request: JobRequest, pairs: int) -> JobRequest:
    measure = request.spec.measure.model_copy(update={"processes": Processes(min=pairs, max=pairs)})
    return replace(request, spec=request.spec.model_copy(update={"measure": measure}))


def _metric(requested: str | None, first: JobRequest, second: JobRequest) -> str:
    """The metric to compare, which every run of both specs must sample. Raises NotComparable and InvalidComparison."""
    differing = differences.spec_differences([first.spec, second.spec])
    free = first.params.untimed | first.params.how
    sampled = [request.workload.sampled_for(request.params) for request in (first, second)]
    shared = differences.shared_metrics(sampled, differing, lambda _: free)
    return shared.choose(requested, "a metric that the runs of both specs sample in the same unit")


def errors_in_spec(index: int, errors: Iterable[FieldError]) -> list[FieldError]:
    """The errors of the spec at `index`, with pointers into the comparison's body."""
    return [FieldError(f"/specs/{index}{error.pointer}", error.code, error.detail) for error in errors]
