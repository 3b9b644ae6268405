"""Build the responses that contain stored jobs or results, and answer four frequent requests before they reach FastAPI.

`POST /v1/jobs`, `GET /v1/jobs`, `GET /v1/jobs/{job_id}` and `GET /v1/jobs/{job_id}/result` are answered without
FastAPI's routing, dependencies and serializing. A request with an option (a filter, `wait`, `Prefer`, a repeated
header) goes on to the route in `service/jobs/routes.py`. That route declares the contract, and would answer each of
these requests identically; tests/service/test_hot_routes.py compares both.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dyno.errors import DynoError
from dyno.logging import current_job_id
from dyno.models.job import Job
from dyno.store.jobs import Submitted
from dyno.store.list_pages import RecordPage
from dyno.store.records import StoredJob
from dyno.store.redis import JOB_ID
from dyno.store.stored_results import RESULT_SHAPE, StoredResult
from service import middleware, problems, streaming, submission, validation
from service.auth import authorize, likely_viewer
from service.dependencies import etag_matches
from service.state import State

JSON = "application/json"
DEFAULT_LIMIT = 50  # jobs on a page
_NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0{0,3})?")
# A result never changes, but another version of Dyno may send more of its fields. The weak ETag identifies the result,
# compressed or not.
_RESULT_HEADERS = {
    "ETag": f'W/"{RESULT_SHAPE}"',
    "Cache-Control": "private, max-age=86400, immutable",
    "Vary": "Accept-Encoding",
}
_GZIP_HEADERS = _RESULT_HEADERS | {"Content-Encoding": "gzip"}


def job_etag(job: Job | StoredJob) -> str:
    """A weak ETag, because two responses with the same version of a job may differ in its position in the queue."""
    return f'W/"{job.version}"'


async def accepted_job(state: State, submitted: Submitted, preferred_wait_s: int | None) -> Response:
    """A response 202 with the job, sent as soon as the job is done, or after `preferred_wait_s`."""
    job, headers = submitted.stored, dict[str, str]()
    if preferred_wait_s:
        job = await streaming.wait_until_done(state, job, preferred_wait_s)
        if middleware.held_back.get():
            headers["Preference-Applied"] = f"wait={preferred_wait_s}"
    if submitted.replayed:
        headers["Idempotent-Replayed"] = "true"
    if not job.done:
        headers["Retry-After"] = str(streaming.POLL_AFTER_S)
    headers |= {"Location": f"/v1/jobs/{job.id}", "ETag": job_etag(job)}
    return Response(job.document, 202, headers, JSON)


def job_response(job: StoredJob, if_none_match: str | None, more: Mapping[str, str] | None = None) -> Response:
    """Status 200, or 304 if the caller has this version of the job. `more`: further headers."""
    headers = {"ETag": job_etag(job), "Cache-Control": "no-cache", **(more or {})}
    if etag_matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(job.document, 200, headers, JSON)


def result_response(result: StoredResult, if_none_match: str | None, accept_encoding: str) -> Response:
    """Status 200, or 304 if the caller has the result. A client that accepts gzip gets a compressed body."""
    if etag_matches(if_none_match, _RESULT_HEADERS["ETag"]):
        return Response(status_code=304, headers=_RESULT_HEADERS)
    if accepts_gzip(accept_encoding) and (packed := result.gzip):
        return Response(packed, 200, _GZIP_HEADERS, JSON)
    return Response(result.document, 200, _RESULT_HEADERS, JSON)


@lru_cache(maxsize=64)  # a client sends the same value with each request
def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header's value lists gzip or `*`, with a weight above 0. An explicit gzip overrides `*`."""
    weights: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        weights[coding] = not any(_NO_WEIGHT.fullmatch(parameter) for parameter in parameters)
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", False)))


def list_response(page: RecordPage[StoredJob]) -> Response:
    """One page of jobs. The caller adds the link to the next page."""
    data = ",".join([stored.document for stored in page.data])
    cursor = "null" if page.next_cursor is None else f'"{page.next_cursor}"'
    more = "true" if page.has_more else "false"
    return Response(f'{{"data":[{data}],"next_cursor":{cursor},"has_more":{more}}}', media_type=JSON)


_LIMIT = re.compile(rb"limit=([1-9][0-9]?)")
_KEY = re.compile(rb"[\x20-\x7e]{1,255}")


class _Route(NamedTuple):
    """The template of a path: the label of metrics and logs, and the key of the route's access rule."""

    path: str


_JOBS, _JOB, _RESULT = _Route("/v1/jobs"), _Route("/v1/jobs/{job_id}"), _Route("/v1/jobs/{job_id}/result")
Answer = Callable[[Request, State], Awaitable[Response]]


class HotRoutes:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched = _answer(scope) if scope["type"] == "http" else None
        if matched is None:
            await self._app(scope, receive, send)
            return
        scope["route"], answer = matched
        request = Request(scope, receive)
        try:
            response = await answer(request, scope["app"].state.opened)
        except Exception as error:
            await (await problems.respond(request, error))(scope, receive, send)
            if not isinstance(error, DynoError | ClientDisconnect):
                raise  # the server logs it
        else:
            await response(scope, receive, send)


def _answer(scope: Scope) -> tuple[_Route, Answer] | None:
    """The route and the function that answers it; None if the request must go on to FastAPI."""
    path: str = scope["path"]
    if not path.startswith(_JOBS.path) or not _has_plain_headers(scope):
        return None
    method, query, rest = scope["method"], scope["query_string"], path[len(_JOBS.path) :]
    if method == "POST":
        return (_JOBS, _submit) if not (rest or query) else None
    if method != "GET":
        return None
    if not rest:
        return (_JOBS, _list) if not query or _LIMIT.fullmatch(query) else None
    job_id, _, part = rest[1:].partition("/")
    if query or rest[0] != "/" or JOB_ID.fullmatch(job_id) is None:
        return None
    if rest.endswith("/result"):
        return (_RESULT, _result) if part == "result" else None
    return (_JOB, _job) if part == "" and not rest.endswith("/") else None


def _has_plain_headers(scope: Scope) -> bool:
    """No repeated header, no `Prefer`, and no invalid idempotency key."""
    headers = dict(scope["headers"])
    if len(headers) < len(scope["headers"]) or b"prefer" in headers:
        return False
    return _KEY.fullmatch(headers.get(b"idempotency-key", b"-")) is not None


async def _submit(request: Request, state: State) -> Response:
    caller = await authorize(request)
    key = request.headers.get("idempotency-key")
    document, faults = await validation.read_json(request, state.settings)
    job_request = validation.validate_job(document, faults, state.workloads)
    submitted = await submission.submit(state.seen_by(caller.viewer), job_request, key)
    return await accepted_job(state, submitted, None)


async def _job(request: Request, state: State) -> Response:
    job_id = request.scope["path"].rpartition("/")[2]
    fetched = state.jobs.fetch(job_id)  # in the same round trip to Redis as the check of the key
    caller = await authorize(request)
    current_job_id.set(job_id)
    job = await state.jobs.seen_by(caller.viewer).read(job_id, fetched)
    return job_response(job, request.headers.get("if-none-match"))


async def _result(request: Request, state: State) -> Response:
    job_id = request.scope["path"].split("/")[3]
    fetched = state.jobs.fetch_result(job_id)
    caller = await authorize(request)
    current_job_id.set(job_id)
    result = await state.jobs.seen_by(caller.viewer).stored_result(job_id, fetched)
    return result_response(result, request.headers.get("if-none-match"), request.headers.get("accept-encoding", ""))


async def _list(request: Request, state: State) -> Response:
    query: bytes = request.scope["query_string"]
    given = _LIMIT.fullmatch(query)
    limit = int(given[1]) if given else DEFAULT_LIMIT
    viewer = likely_viewer(request, state)
    fetched = None if viewer is None else state.jobs.seen_by(viewer).fetch_first(limit)
    caller = await authorize(request)
    jobs = state.jobs.seen_by(caller.viewer)
    page = await jobs.browse_first(limit, fetched if viewer == caller.viewer else None)
    response = list_response(page)
    if page.next_cursor is not None:
        filters = f"{query.decode()}&" if query else ""
        response.headers["Link"] = f'<{_JOBS.path}?{filters}cursor={page.next_cursor}>; rel="next"'
    return response
