"""Errors of the API as RFC 9457 problems: exceptions, statuses, titles and handlers.

Exceptions for faulty requests are here; all others are in `dyno.errors`. PROBLEMS maps each error code to the status
and title of its problem.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route

from dyno.errors import (
    DynoError,
    FieldError,
    InvalidSpec,
    LimitReached,
    NotComparable,
    ResultNotReady,
    StoreUnavailable,
)
from dyno.logging import current_request_id
from dyno.models.comparison import Difference
from dyno.models.job import Status
from dyno.validation_messages import pointer, validation_message


class MalformedBody(DynoError):
    """The body is not a JSON object."""

    code = "malformed-body"


class BodyTooLarge(DynoError):
    """The body exceeds `settings.max_body_bytes`; the rest was not read."""

    code = "body-too-large"


class BodyTooSlow(DynoError):
    """The body didn't arrive in time."""

    code = "body-timeout"


class RepeatedHeader(DynoError):
    """A header that identifies the caller is repeated, so neither value is trusted."""

    code = "bad-request"


class UnsupportedMediaType(DynoError):
    """The request's headers declare a body other than JSON in UTF-8."""

    code = "unsupported-media-type"


class NotAuthorized(DynoError):
    """The request needs a key or a token, and has none or an unknown one."""

    code = "not-authorized"


class ScopeMissing(DynoError):
    """The key's scope doesn't include the scope that the route needs."""

    code = "scope-missing"


class HostNotAllowed(DynoError):
    """Without a key: the Host header is not a name of this host."""

    code = "host-not-allowed"


class ProxyNotAllowed(DynoError):
    """Without a key: the request came through a proxy."""

    code = "proxy-not-allowed"


class OriginNotAllowed(DynoError):
    """Without a key: a page of another origin sent a request that changes something."""

    code = "origin-not-allowed"


class NotReady(DynoError):
    """The store is unreachable, or isn't configured to keep jobs."""

    code = "not-ready"


class TooManyStreams(DynoError):
    """The service has as many open streams as the settings allow."""

    code = "too-many-streams"


class InvalidRequest(InvalidSpec):
    """A request parameter, not the body, is invalid."""

    code = "invalid-request"


@contextmanager
def hide_store_details() -> Iterator[None]:
    """Remove the store's address from StoreUnavailable: the block runs for callers that aren't authorized yet."""
    try:
        yield
    except StoreUnavailable as error:
        raise StoreUnavailable("Redis is unavailable") from error


# Codes of every route with a JSON body.
OF_BODY = ("malformed-body", "body-timeout", "body-too-large", "unsupported-media-type")

# code -> (status, title). Codes are for programs and never change; a test checks that the table is complete.
PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed-body": (400, "The body is malformed"),
    "bad-request": (400, "The request is malformed"),
    "not-authorized": (401, "The request needs a key or a token"),
    "key-expired": (401, "The key has expired"),
    "scope-missing": (403, "The key's scope doesn't allow this"),
    "priority-not-allowed": (403, "The key may not use this priority"),
    "proxy-not-allowed": (403, "Requests through a proxy need a key"),
    "origin-not-allowed": (403, "Requests from this origin need a key"),
    "not-found": (404, "Not found"),
    "job-not-found": (404, "No such job"),
    "artifact-not-found": (404, "The job has no such file"),
    "workload-not-found": (404, "No such workload"),
    "device-not-found": (404, "No such device"),
    "key-not-found": (404, "No such key"),
    "comparison-not-found": (404, "No such comparison"),
    "baseline-not-found": (404, "No such baseline"),
    "schedule-not-found": (404, "No such schedule"),
    "alarm-not-found": (404, "No such alarm"),
    "sweep-not-found": (404, "No such sweep"),
    "delivery-not-found": (404, "No such delivery"),
    "method-not-allowed": (405, "Method not allowed"),
    "body-timeout": (408, "The body arrived too slowly"),
    "head-timeout": (408, "The request head arrived too slowly"),
    "job-expired": (409, "The job of this idempotency key has expired"),
    "job-finished": (409, "The job is already done"),
    "sweep-finished": (409, "The sweep is already done"),
    "job-live": (409, "The job is not done yet"),
    "result-not-ready": (409, "The job has no result yet"),
    "no-result": (409, "The job ended without a result"),
    "not-comparable": (409, "The results can't be compared"),
    "stale-token": (409, "Another attempt owns the job"),
    "body-too-large": (413, "The body is too large"),
    "artifact-too-large": (413, "The file is too large"),
    "unsupported-media-type": (415, "The body must be JSON"),
    "host-not-allowed": (421, "Requests to this host name need a key"),
    "invalid-request": (422, "A request parameter is invalid"),
    "invalid-spec": (422, "The spec is invalid"),
    "invalid-comparison": (422, "The comparison is invalid"),
    "invalid-baseline": (422, "The baseline is invalid"),
    "invalid-schedule": (422, "The schedule is invalid"),
    "invalid-sweep": (422, "The sweep is invalid"),
    "invalid-import": (422, "The results can't be imported"),
    "invalid-key": (422, "The settings of the new key are invalid"),
    "does-not-fit": (422, "The job needs more memory than any device has"),
    "exceeds-timeout": (422, "The job would take longer than its timeout"),
    "unsupported": (422, "No fitting device supports the job"),
    "no-device-fits": (422, "No device fits the job"),
    "framework-missing": (422, "The framework is not installed"),
    "host-name-taken": (409, "Another machine has this host name"),
    "idempotency-key-reused": (422, "The idempotency key belongs to another request"),
    "queue-full": (429, "Too many jobs are queued"),
    "limit-reached": (429, "The key has reached a limit"),
    "head-too-large": (431, "The request head is too large"),
    "dyno-error": (500, "Internal error"),
    "internal-error": (500, "Internal error"),
    "record-unreadable": (500, "A stored record can't be read"),
    "run-failed": (500, "The run failed"),
    "dataset-damaged": (500, "A data file is damaged"),
    "workload-fault": (500, "A workload is broken"),
    "not-ready": (503, "The service can't accept jobs now"),
    "shutting-down": (503, "The service is shutting down"),
    "too-many-connections": (503, "Too many connections are open"),
    "too-many-streams": (503, "Too many streams are open"),
    "store-unavailable": (503, "The store is not available"),
    "artifact-store-unavailable": (503, "The artifact store is not available"),
    "artifact-store-unfit": (503, "The artifact store can't be used"),
    "store-unfit": (503, "The store is not configured to keep jobs"),
    "tracing-missing": (503, "Tracing is not installed"),
    "device-unavailable": (503, "The device is not available"),
    "device-busy": (503, "Another process uses the device"),
    "server-unavailable": (503, "No store found"),
}


log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100  # per response: a body of 64 KiB can have tens of thousands of wrong fields
RETRY_AFTER_S = 2

_INTERNAL = "the service failed on this request; its log has the reason"
_TELLING = frozenset({"record-unreadable"})  # codes with status 500 whose detail the client may see
_HTTP_CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


class ProblemError(BaseModel):
    """One wrong field."""

    pointer: str = Field(
        description="JSON pointer (RFC 6901) into the body; `/query/<name>` and `/header/<name>` for parameters. In "
        "a body of JSON lines, the first step is the number of the line."
    )
    code: str
    detail: str


class Problem(BaseModel):
    """RFC 9457. `code` is stable; `title` and `detail` are for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str = Field(description="The response's `X-Request-ID`, which is also in the service's log.")
    errors: list[ProblemError] | None = Field(
        default=None, description="Every wrong field; present exactly with status 422."
    )
    job_status: Status | None = Field(
        default=None, description="The job's status; only with `result-not-ready` and `no-result`."
    )
    differing: list[Difference] | None = Field(
        default=None, description="Every field in which the results differ; only with `not-comparable`."
    )


def problem(
    code: str,
    detail: str,
    *,
    errors: list[FieldError] | None = None,
    headers: dict[str, str] | None = None,
    job_status: str | None = None,
    differing: Mapping[str, Sequence[object]] | None = None,
) -> Response:
    """The response for `code`; with status 429 and 503 it always has Retry-After."""
    status, title = PROBLEMS[code]
    content: dict[str, Any] = {
        "type": f"urn:dyno:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
    }
    if (request_id := current_request_id.get()) is not None:
        content["request_id"] = request_id
    if errors is not None:
        content["errors"] = [{"pointer": e.pointer, "code": e.code, "detail": e.detail} for e in errors[:MAX_ERRORS]]
    if job_status is not None:
        content["job_status"] = job_status
    if differing is not None:
        content["differing"] = [{"field": field, "values": values} for field, values in differing.items()]
    answer = JSONResponse(content, status, headers, MEDIA_TYPE)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        answer.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return answer


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI: one entry per status, which lists its codes.

    `service/openapi` adds the codes that every route has, such as `invalid-request` and `store-unavailable`.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status, _ = PROBLEMS[code]
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        entry = responses.setdefault(status, {"description": "", "content": content})
        entry["description"] = ", ".join(filter(None, (entry["description"], f"`{code}`")))
    return responses


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Turn every error of `app` into a problem, including the framework's errors and unexpected exceptions."""
    app.state.routes = routes
    for kind in (DynoError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, respond)


async def respond(request: Request, error: Exception) -> Response:
    """The problem for an error that a route or the framework raised."""
    match error:
        case DynoError():
            return _of_dyno(request, error)
        case HTTPException():
            return _of_http(request, error)
        case RequestValidationError():
            return _of_parameters(error)
        case ClientDisconnect():  # the service isn't at fault and can't respond
            return problem("bad-request", "the client disconnected before the end of the body")
        case _:
            # Starlette raises the error again after this response; the server then logs the traceback and closes the
            # connection. `Connection: close` warns the client, whose next request on this connection would be lost.
            return problem("internal-error", _INTERNAL, headers={"Connection": "close"})


def _of_dyno(request: Request, error: DynoError) -> Response:
    status, _ = PROBLEMS.get(error.code, PROBLEMS["dyno-error"])
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _TELLING:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem("internal-error", _INTERNAL)
    errors = _field_errors(error, status)
    # After other errors the server reads the rest of the body: an early close would make the client lose the response.
    headers = {"Connection": "close"} if error.code == "body-timeout" else {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, LimitReached):
        headers |= _rate_limit(error)
    detail = _summary(error.errors) if isinstance(error, InvalidSpec) else error.detail
    more: dict[str, Any] = {}
    if isinstance(error, ResultNotReady):
        more["job_status"] = error.job_status
    if isinstance(error, NotComparable):
        more["differing"] = error.fields
    return problem(error.code, detail, errors=errors, headers=headers, **more)


def _rate_limit(error: LimitReached) -> dict[str, str]:
    """The headers of draft-ietf-httpapi-ratelimit-headers-10: q is the quota per w seconds, r the rest of the quota."""
    window = f";w={error.window_s}" if error.window_s else ""
    return {
        "RateLimit-Policy": f'"{error.policy}";q={error.quota}{window}',
        "RateLimit": f'"{error.policy}";r=0;t={error.retry_after_s}',
        "Retry-After": str(error.retry_after_s),
    }


def _field_errors(error: DynoError, status: int) -> list[FieldError] | None:
    """The fields to change, for every response 422. If the error has no pointers, its code determines the field."""
    if isinstance(error, InvalidSpec):
        return error.errors
    if status != HTTPStatus.UNPROCESSABLE_ENTITY:
        return None
    return [FieldError(_AT.get(error.code, ""), error.code, error.detail)]


_AT = {
    "no-device-fits": "/device",
    "framework-missing": "/framework",
    "idempotency-key-reused": "/header/idempotency-key",
}


def _of_http(request: Request, error: HTTPException) -> Response:
    code = _HTTP_CODES.get(error.status_code, "bad-request")
    headers, detail = dict(error.headers or {}), error.detail
    if code == "method-not-allowed":
        headers["Allow"] = ", ".join(_methods(request))
        detail = f"this path has no {request.method}; use {headers['Allow']}"
    return problem(code, f"{request.method} {request.url.path}: {detail}", headers=headers)


def _methods(request: Request) -> list[str]:
    """All methods of the path: Starlette lists only those of the first route. HEAD is allowed where GET is."""
    routes: Sequence[BaseRoute] = request.app.state.routes
    fitting = [r for r in routes if isinstance(r, Route) and r.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in fitting for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _of_parameters(error: RequestValidationError) -> Response:
    faults = (
        FieldError(reduce(pointer, fault["loc"], ""), fault["type"].replace("_", "-"), validation_message(fault))
        for fault in error.errors()
    )
    errors = list(dict.fromkeys(faults))  # two dependencies of a route may report the same parameter
    return problem("invalid-request", _summary(errors), errors=errors)


def _summary(errors: list[FieldError]) -> str:
    shown = "; ".join(f"{e.pointer or 'the body'}: {e.detail}" for e in errors[:3])
    return shown + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
