"""What a route declares in its signature: parameters, headers, conditional requests and pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, cast
from urllib.parse import urlencode

from fastapi import Depends, Header, Path, Query, Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from pydantic import AwareDatetime, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from dyno.artifact_store import is_artifact_name
from dyno.errors import ArtifactNotFound, FieldError, InvalidSpec, UnknownJob
from dyno.logging import current_job_id
from dyno.store.jobs import Jobs
from dyno.store.redis import JOB_ID
from service import validation
from service.auth import CONTRACT, CallerDep, bearer_token
from service.problems import InvalidRequest, NotAuthorized, pointer
from service.state import State

_ETAG = re.compile(r'"[^"]*"')  # a W/ before it counts for nothing here: they are compared weakly


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Whether it is `*`, or a list in which `etag` stands; weak or not."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag.removeprefix("W/") in _ETAG.findall(if_none_match)


_DATED = re.compile(r"[0-9]{4}-")
_EPOCH = re.compile(r"[1-9][0-9]{9}([0-9]{3})?")


def _check_dated(text: object) -> object:
    """Pydantic takes a number for seconds, or milliseconds where it is large: nothing that the document says."""
    if isinstance(text, str) and _DATED.match(text) is None:
        raise PydanticKnownError("datetime_parsing", {"error": "no date"})
    return text


def _check_dated_or_epoch(text: object) -> object:
    return text if isinstance(text, str) and _EPOCH.fullmatch(text) else _check_dated(text)


Timestamp = Annotated[AwareDatetime, BeforeValidator(_check_dated)]
# As dashboards write the ends of their range, too: Unix time in seconds or milliseconds.
TimestampOrEpoch = Annotated[
    AwareDatetime,
    BeforeValidator(_check_dated_or_epoch),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{_EPOCH.pattern}$"}]}
    ),
]


@contextmanager
def as_parameter_errors() -> Iterator[None]:
    """What is wrong is a parameter of the request: the cursor, since all else was checked before."""
    try:
        yield
    except InvalidSpec as invalid:
        raise InvalidRequest([FieldError(f"/query{e.pointer}", e.code, e.detail) for e in invalid.errors]) from invalid


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """The same request with the cursor, where there is a next page."""
    if cursor is not None:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        query = urlencode([*kept, ("cursor", cursor)])
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'


MAX_WAIT_S = 60
LIST_HEADERS = frozenset({"if-none-match", "prefer"})  # headers whose lines are read as one list
_PREFER_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)


# All of them are coroutines: FastAPI would run plain functions on a thread each.
async def _state(request: Request, caller: CallerDep) -> State:
    state = cast(State, request.app.state.opened)
    return state if caller.key is None else replace(state, jobs=state.jobs.seen_by(caller.viewer))


async def _jobs(state: Annotated[State, Depends(_state)]) -> Jobs:
    return state.jobs


async def _job_id(job_id: Annotated[str, Path(description="`job_` and a ULID")]) -> str:
    if not JOB_ID.fullmatch(job_id):
        raise UnknownJob(f'"{job_id[:64]}" is not the id of a job')
    current_job_id.set(job_id)
    return job_id


async def _artifact_name(name: Annotated[str, Path(description="A file name, never a path")]) -> str:
    if not is_artifact_name(name):
        raise ArtifactNotFound("no artifact has such a name: letters, digits, dot, dash and underscore, at most 128")
    return name


async def _attempt_token(request: Request) -> str:
    token = bearer_token(request)
    if token is None:
        raise NotAuthorized("only the worker that runs the job may store its files: send its attempt's token")
    return token


async def _submission(request: Request, state: Annotated[State, Depends(_state)]) -> validation.JobRequest:
    raw = await validation.read_body(request, state.settings)
    document, faults = validation.parse_json(raw)
    return validation.validate_job(document, faults, state.workloads)


async def _preferred_wait_s(
    request: Request,
    prefer: Annotated[str | None, Header(description="`wait=N`: hold the answer until done or N s")] = None,
) -> int | None:
    """The `wait` of RFC 7240, at most MAX_WAIT_S; what can't be read is ignored, as that standard says.

    `prefer` is for the OpenAPI document: a caller may send several such headers, of which it holds one.
    """
    found = _PREFER_WAIT.search(",".join(request.headers.getlist("prefer")))
    return min(int(found[1]), MAX_WAIT_S) if found else None


async def check_parameters(request: Request) -> None:
    """In front of every route of the contract. Raises InvalidRequest for what would do nothing without a word.

    A parameter that the route doesn't know is misspelled, or another's. Of one that is given twice one would be lost:
    none in a query is a list.
    """
    route = request.scope["route"]
    headers = [name for name, _ in request.scope["headers"]]
    is_plain = not request.query_params and len(set(headers)) == len(headers)
    if is_plain or not route.path.startswith(CONTRACT):
        return
    known = [(each.alias, each.field_info) for each in get_flat_params(route.dependant)]
    elsewhere = (params.Path, params.Header, params.Cookie)
    of_query = {name for name, info in known if not isinstance(info, elsewhere)}
    of_headers = {name for name, info in known if isinstance(info, params.Header)} - LIST_HEADERS
    given = Counter(name for name, _ in request.query_params.multi_items())
    if wrong := [*_wrong_parameters(of_query, given), *_repeated_headers(of_headers, headers)]:
        raise InvalidRequest(wrong)


def _wrong_parameters(known: Set[str], given: Mapping[str, int]) -> Iterator[FieldError]:
    """Of how often each was given."""
    unknown = f"there is no such parameter here; there is {', '.join(sorted(known)) or 'none'}"
    for name, times in given.items():
        if name not in known:
            yield FieldError(pointer("/query", name), "extra-forbidden", unknown)
        elif times > 1:
            yield FieldError(pointer("/query", name), "duplicate-parameter", "the parameter is given more than once")


def _repeated_headers(known: Set[str], given: Sequence[bytes]) -> Iterator[FieldError]:
    """RFC 9110, section 5.3: only lists may come as several lines."""
    for name in sorted(known):
        if given.count(name.encode()) > 1:
            yield FieldError(pointer("/header", name), "duplicate-parameter", "the header is given more than once")


async def _if_none_match(
    request: Request,
    if_none_match: Annotated[str | None, Header(description="The ETag of the version you have.")] = None,
) -> str | None:
    """All lines of it; `if_none_match`, the last one, is for the OpenAPI document."""
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
    float,
    Query(ge=0, le=MAX_WAIT_S, description="Hold the answer for at most so many seconds, until there is news."),
]
IfNoneMatch = Annotated[str | None, Depends(_if_none_match)]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=255, pattern=r"^[\x20-\x7e]+$", description="Makes a repeated POST one job; 24 h."),
]
