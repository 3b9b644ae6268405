"""The four most frequent requests, answered without FastAPI's routing, dependencies and serializing.

They are `POST /v1/jobs`, `GET /v1/jobs`, `GET /v1/jobs/{job_id}` and `GET /v1/jobs/{job_id}/result`. A request with an
option (a filter, `wait`, `Prefer`, a repeated header) goes on to the route in `service/jobs/routes.py`. The route
declares the contract and answers every request in the same way; tests/service/test_hot_routes.py compares the two.
"""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dyno.errors import DynoError
from dyno.logging import current_job_id
from dyno.store.redis import JOB_ID
from service import problems, streaming, submission, validation
from service.auth import authorize, likely_viewer
from service.responses import DEFAULT_LIMIT, job_response, list_response, result_response
from service.state import State

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
    """None for a request that isn't plain."""
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
    document, faults = validation.parse_json(await validation.read_body(request, state.settings))
    job_request = validation.validate_job(document, faults, state.workloads)
    submitted = await submission.submit(state.seen_by(caller.viewer), job_request, key)
    return await streaming.accepted_job(state, submitted, None)


async def _job(request: Request, state: State) -> Response:
    job_id = request.scope["path"].rpartition("/")[2]
    fetched = state.jobs.fetch(job_id)  # in one round trip with the check of the key
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
