"""Parameters, headers, conditional requests and pages that routes declare."""

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import urlencode

from fastapi import Depends, Header, Path, Query, Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from pydantic import AwareDatetime, BaseModel, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from dyno.artifact_store import is_artifact_name
from dyno.errors import ArtifactNotFound, FieldError, InvalidSpec, UnknownJob
from dyno.logging import current_job_id
from dyno.store.jobs import Jobs
from dyno.store.redis import JOB_ID
from dyno.validation_messages import pointer
from service import auth, validation
from service.problems import InvalidRequest, NotAuthorized
from service.state import State

_ETAG = re.compile(r'"[^"]*"')  # without W/: ETags are compared weakly here


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Whether `if_none_match` is `*` or lists `etag`, by weak comparison."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag.removeprefix("W/") in _ETAG.findall(if_none_match)


_DATED = re.compile(r"[0-9]{4}-")
_EPOCH = re.compile(r"[1-9][0-9]{9}([0-9]{3})?")


def _check_dated(text: object) -> object:
    """Refuse numbers: the OpenAPI document doesn't allow them, but Pydantic reads them as seconds or milliseconds."""
    if isinstance(text, str) and _DATED.match(text) is None:
        raise PydanticKnownError("datetime_parsing", {"error": "no date"})
    return text


def _check_dated_or_epoch(text: object) -> object:
    return text if isinstance(text, str) and _EPOCH.fullmatch(text) else _check_dated(text)


Timestamp = Annotated[AwareDatetime, BeforeValidator(_check_dated)]
# Dashboards write the ends of their time range as Unix time in seconds or milliseconds.
TimestampOrEpoch = Annotated[
    AwareDatetime,
    BeforeValidator(_check_dated_or_epoch),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{_EPOCH.pattern}$"}]}
    ),
]


@contextmanager
def as_parameter_errors() -> Iterator[None]:
    """Report InvalidSpec as an invalid query parameter: in this block, only the query can still be wrong."""
    try:
        yield
    except InvalidSpec as invalid:
        raise InvalidRequest([FieldError(f"/query{e.pointer}", e.code, e.detail) for e in invalid.errors]) from invalid


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """Add a link to the next page, if there is one: the URL of this request with the cursor."""
    if cursor is not None:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        query = urlencode([*kept, ("cursor", cursor)])
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'


# Component of the OpenAPI document -> header of responses, its type, its description.
RESPONSE_HEADERS = {
    "RequestId": ("X-Request-ID", "string", "The `X-Request-ID` of the request, or a generated one"),
    "RetryAfter": ("Retry-After", "integer", "Seconds after which to retry"),
    "Challenge": ("WWW-Authenticate", "string", "`Bearer`: a key or a token is needed"),
    "RateLimitPolicy": (
        *("RateLimit-Policy", "string"),
        "The limit that was reached: its quota, and its window in seconds",
    ),
    "RateLimit": ("RateLimit", "string", "What is left of the quota, and the seconds until it is renewed"),
    "ETag": ("ETag", "string", "The version, for `If-None-Match`"),
    "FileETag": ("ETag", "string", "The SHA-256 of the file, for `If-None-Match`"),
    "Encoding": ("Content-Encoding", "string", "`gzip`, if the request's `Accept-Encoding` allows it"),
    "Vary": ("Vary", "string", "Request headers that the response depends on"),
    "Disposition": ("Content-Disposition", "string", "`attachment`, with a file name"),
    "Location": ("Location", "string", "The path of what was created"),
    "Link": ("Link", "string", "The next page, if there is one"),
    "Replayed": (
        *("Idempotent-Replayed", "string"),
        "`true`: this is the job of an earlier request with the same idempotency key",
    ),
    "Preferred": ("Preference-Applied", "string", "The `wait` that was granted"),
}


def sends(*components: str) -> dict[str, Any]:
    """The headers of a response, for a route's `responses`, by their names in RESPONSE_HEADERS."""
    return {"headers": {RESPONSE_HEADERS[name][0]: {"$ref": f"#/components/headers/{name}"} for name in components}}


MAX_WAIT_S = 60
LIST_HEADERS = frozenset({"if-none-match", "prefer"})  # several lines of such a header form one list
_PREFER_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)


# All dependencies are coroutines: FastAPI would run each plain function on a thread.
async def _state(request: Request, caller: auth.CallerDep) -> State:
    return cast(State, request.app.state.opened).seen_by(caller.viewer)


async def _jobs(state: Annotated[State, Depends(_state)]) -> Jobs:
    return state.jobs


async def _job_id(job_id: Annotated[str, Path(description="`job_` and a ULID")]) -> str:
    if not JOB_ID.fullmatch(job_id):
        raise UnknownJob(f'"{job_id[:64]}" is not a job id')
    current_job_id.set(job_id)
    return job_id


async def _artifact_name(name: Annotated[str, Path(description="A file name, never a path")]) -> str:
    if not is_artifact_name(name):
        raise ArtifactNotFound("invalid artifact name: use letters, digits, dot, dash and underscore, at most 128")
    return name


async def _attempt_token(request: Request) -> str:
    token = auth.bearer_token(request)
    if token is None:
        raise NotAuthorized("only the worker that runs the job may store its files: send the token of its attempt")
    return token


async def _submission(request: Request, state: Annotated[State, Depends(_state)]) -> validation.JobRequest:
    document, faults = await validation.read_json(request, state.settings)
    return validation.validate_job(document, faults, state.workloads)


_Model = TypeVar("_Model", bound=BaseModel)


def read_model(
    model: type[_Model], refusal: type[InvalidSpec]
) -> Callable[[Request, State], Coroutine[Any, Any, _Model]]:
    """A dependency: the body as a `model`. It raises `refusal` with every wrong field."""

    async def read(request: Request, state: Annotated[State, Depends(_state)]) -> _Model:
        document, faults = await validation.read_json(request, state.settings)
        return validation.validate_model(model, document, faults, refusal)

    return read


def takes(schema: Mapping[str, Any], media_type: str = validation.JSON) -> dict[str, Any]:
    """Document the body of a route that reads the body itself; for `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


async def _preferred_wait_s(
    request: Request,
    prefer: Annotated[str | None, Header(description="`wait=N`: respond when the job is done, or after N s")] = None,
) -> int | None:
    """The `wait` preference of RFC 7240, at most MAX_WAIT_S. Unreadable preferences are ignored, as the RFC asks.

    `prefer` is for the OpenAPI document only: it holds one line of the header, and clients may send several lines.
    """
    match = _PREFER_WAIT.search(",".join(request.headers.getlist("prefer")))
    return min(int(match[1]), MAX_WAIT_S) if match else None


async def check_parameters(request: Request) -> None:
    """Run before every route under /v1/. Raises InvalidRequest for parameters that would be silently ignored.

    An unknown parameter is misspelled, or belongs to another route. Of a repeated parameter, all values but one would
    be lost, because no query parameter is a list.
    """
    route = request.scope["route"]
    headers = [name for name, _ in request.scope["headers"]]
    is_plain = not request.query_params and len(set(headers)) == len(headers)
    if is_plain or not route.path.startswith(auth.CONTRACT):
        return
    parameters = [(field.alias, field.field_info) for field in get_flat_params(route.dependant)]
    elsewhere = (params.Path, params.Header, params.Cookie)
    of_query = {name for name, info in parameters if not isinstance(info, elsewhere)}
    of_headers = {name for name, info in parameters if isinstance(info, params.Header)} - LIST_HEADERS
    given = Counter(name for name, _ in request.query_params.multi_items())
    if wrong := [*_wrong_parameters(of_query, given), *_repeated_headers(of_headers, headers)]:
        raise InvalidRequest(wrong)


def _wrong_parameters(accepted: Set[str], given: Mapping[str, int]) -> Iterator[FieldError]:
    """`given`: how often each parameter was sent."""
    unknown = f"unknown parameter; this route accepts {', '.join(sorted(accepted)) or 'no query parameters'}"
    for name, times in given.items():
        if name not in accepted:
            yield FieldError(pointer("/query", name), "extra-forbidden", unknown)
        elif times > 1:
            yield FieldError(pointer("/query", name), "duplicate-parameter", "the parameter is given more than once")


def _repeated_headers(names: Set[str], given: Sequence[bytes]) -> Iterator[FieldError]:
    """Only list headers may have several lines (RFC 9110, section 5.3)."""
    for name in sorted(names):
        if given.count(name.encode()) > 1:
            yield FieldError(pointer("/header", name), "duplicate-parameter", "the header is given more than once")


async def _if_none_match(
    request: Request,
    if_none_match: Annotated[str | None, Header(description="The ETag of the version you have.")] = None,
) -> str | None:
    """All lines of the header; `if_none_match`, its last line, is for the OpenAPI document only."""
    lines = request.headers.getlist("if-none-match")
    return ", ".join(lines) if lines else None


StateDep = Annotated[State, Depends(_state)]
JobsDep = Annotated[Jobs, Depends(_jobs)]
JobId = Annotated[str, Depends(_job_id)]
ArtifactName = Annotated[str, Depends(_artifact_name)]
AttemptToken = Annotated[str, Depends(_attempt_token)]
Submission = Annotated[validation.JobRequest, Depends(_submission)]
PreferredWait = Annotated[int | None, Depends(_preferred_wait_s)]
Wait = Annotated[
    float, Query(ge=0, le=MAX_WAIT_S, description="Maximum number of seconds to wait for a change before responding.")
]
IfNoneMatch = Annotated[str | None, Depends(_if_none_match)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="For 24 h, repeating the POST with this key returns the same job.",
    ),
]
